"""Twins of thali.kernels.capped_gamma, by incomplete gamma functions."""

import numpy as np
from scipy.special import gammainc, gammaln


def capped_series(shape, x):
    """(series, whether the ceiling matters): P(shape, x) is its first term times 1 + series."""
    if x > shape + 10.0 * np.sqrt(shape) + 40.0:
        return 0.0, False
    log_first = shape * np.log(x) - x - gammaln(shape + 1)
    return gammainc(shape, x) / np.exp(log_first) - 1.0, True


def capped_mean(shape, rate, ceiling):
    return shape / rate * gammainc(shape + 1, rate * ceiling) / gammainc(shape, rate * ceiling)


def capped_log_mass(shape, rate, ceiling):
    return np.log(gammainc(shape, rate * ceiling)) + gammaln(shape) - shape * np.log(rate)


def capped_gammas(shapes, rates, ceiling, means, log_masses):
    means[:] = capped_mean(shapes, rates, ceiling)
    log_masses[:] = capped_log_mass(shapes, rates, ceiling)
