"""Draws from a normal distribution between two bounds, also where these lie far out in a tail."""

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

Array = np.ndarray

_TAIL = -30.0  # sds: below, probabilities are near the smallest numbers, and their logarithms are used instead
_LOG_NORM = 0.5 * np.log(2 * np.pi)
_FAR = -1e4  # sds: below, differences of logarithms lose more digits than are lost by a Rayleigh tail, 1 / _FAR^2


def draw_truncated_normal(rng: np.random.Generator, mean: Array, sd: Array, lower: Array, upper: Array) -> Array:
    """x ~ N(mean, sd^2) given that lower <= x <= upper, which may be infinite; by inversion, one uniform for each.

    A probability keeps its digits below the mean only, so that an interval that leans to the other side is mirrored.
    """
    low, high, mirrored = _leaning_left(mean, sd, lower, upper)
    u = np.maximum(rng.random(np.shape(low)), 2.0**-54)  # zero has no quantile
    below = ndtr(low)
    x = ndtri(below + u * (ndtr(high) - below))  # eq: own.interval-cells
    deep = high < _TAIL
    if deep.any():
        x[deep] = _in_the_tail(u[deep], low[deep], high[deep])
    x = np.clip(x, low, high)
    return np.clip(mean + sd * np.where(mirrored, -x, x), lower, upper)


def truncated_normal_entropy(mean: Array, sd: Array, lower: Array, upper: Array) -> Array:
    """Entropy of such a draw, in nats."""
    low, high, _ = _leaning_left(mean, sd, lower, upper)
    log_mass = log_ndtr(high) + np.log1p(-np.exp(log_ndtr(low) - log_ndtr(high)))
    edges = np.zeros(np.shape(low))
    for bound, sign in ((low, 0.5), (high, -0.5)):
        inside = np.where(np.isfinite(bound), bound, 0.0)
        edges += sign * inside * np.exp(-0.5 * bound**2 - _LOG_NORM - log_mass)
    return _LOG_NORM + 0.5 + np.log(sd) + log_mass + edges


def _leaning_left(mean: Array, sd: Array, lower: Array, upper: Array) -> tuple[Array, Array, Array]:
    """(bounds in sds from the mean, mirrored where most of the interval lies above it; where that is)."""
    low, high = (lower - mean) / sd, (upper - mean) / sd
    mirrored = low > -high
    return np.where(mirrored, -high, low), np.where(mirrored, -low, high), mirrored


def _in_the_tail(u: Array, low: Array, high: Array) -> Array:
    """Quantiles u between low and high, both far below zero."""
    far = high < _FAR
    with np.errstate(invalid="ignore", over="ignore"):  # infinite bounds
        gap = np.where(far, 0.5 * (high - low) * (high + low), log_ndtr(low) - log_ndtr(high))
    gap = np.where(np.isneginf(low), -np.inf, gap)  # logarithm of P(below low) / P(below high)
    log_share = np.log(u - (1.0 - u) * -np.exp(gap))
    return np.where(far, -np.sqrt(high**2 - 2.0 * log_share), ndtri_exp(log_ndtr(high) + log_share))
