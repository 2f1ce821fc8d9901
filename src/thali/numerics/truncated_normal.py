"""The entropy of a normal distribution between two bounds, also where these lie far out in a tail."""

import numpy as np
from scipy.special import log_ndtr

Array = np.ndarray

_LOG_NORM = 0.5 * np.log(2 * np.pi)


def truncated_normal_entropy(mean: Array, sd: Array, lower: Array, upper: Array) -> Array:
    """Of x ~ N(mean, sd^2) given that lower <= x <= upper, which may be infinite; in nats.

    A probability keeps its digits below the mean only, so that an interval that leans to the other side is mirrored.
    """
    low, high = (lower - mean) / sd, (upper - mean) / sd
    mirrored = low > -high
    low, high = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    log_mass = log_ndtr(high) + np.log1p(-np.exp(log_ndtr(low) - log_ndtr(high)))
    edges = np.zeros(np.shape(low))
    for bound, sign in ((low, 0.5), (high, -0.5)):
        inside = np.where(np.isfinite(bound), bound, 0.0)
        edges += sign * inside * np.exp(-0.5 * bound**2 - _LOG_NORM - log_mass)
    return _LOG_NORM + 0.5 + np.log(sd) + log_mass + edges
