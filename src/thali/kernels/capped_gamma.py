"""Gamma variables below a ceiling: precisions whose variances stay above a floor.

P(shape, x) = x^shape e^-x / Gamma(shape + 1) (1 + series), series = sum_{i>=1} x^i / ((shape + 1) ... (shape + i)), so
that the mean is shape / rate times P(shape + 1, x) / P(shape, x) = series / (1 + series), x = rate * ceiling.
"""

import math

from thali.kernels._jit import jit

_ROUNDING = 1e-17


def _capped_series(shape, x):
    """(series, whether the ceiling matters): beyond the bulk of the gamma law it does not, to rounding."""
    if x > shape + 10.0 * math.sqrt(shape) + 40.0:
        return 0.0, False
    total, term, i = 0.0, 1.0, 0
    while term > _ROUNDING * (1.0 + total):
        i += 1
        term *= x / (shape + i)
        total += term
    return total, True


def _capped_mean(shape, rate, ceiling):
    """E of Gamma(shape, rate) given that it is at most the ceiling, which may be infinite."""
    series, matters = capped_series(shape, rate * ceiling)
    # eq: own.capped-gamma
    return shape / rate * (series / (1.0 + series)) if matters else shape / rate


def _capped_log_mass(shape, rate, ceiling):
    """log of the integral of x^(shape - 1) e^(-rate x) from 0 to the ceiling."""
    series, matters = capped_series(shape, rate * ceiling)
    # eq: own.capped-gamma
    if matters:
        return shape * math.log(ceiling) - rate * ceiling - math.log(shape) + math.log1p(series)
    return math.lgamma(shape) - shape * math.log(rate)


def _capped_gammas(shapes, rates, ceiling, means, log_masses):
    """Both for many, written to `means` and `log_masses`."""
    for i in range(shapes.size):
        means[i] = capped_mean(shapes[i], rates[i], ceiling)
        log_masses[i] = capped_log_mass(shapes[i], rates[i], ceiling)


capped_series = jit(_capped_series)
capped_mean = jit(_capped_mean)
capped_log_mass = jit(_capped_log_mass)
capped_gammas = jit(_capped_gammas)
