"""The beta process, cut after R rounds: P(some of N rows has a feature of a later round).

Features are a Poisson process, so the probability is 1 - exp(-E), E the expected number of features of later rounds
that some row has. E is an alternating sum with binomial coefficients, useless in floating point; as an integral along
a line between its first two poles (Nörlund and Rice) it has no cancellation and a cost that does not grow with N.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betaln, digamma, log1p, loggamma, pdtr

Array = np.ndarray

_STEP = 0.025
_U = _STEP * np.arange(601)
_SUMMED = 1000  # terms of a series that are added one by one
_X, _X_WEIGHTS = np.polynomial.legendre.leggauss(12)


def log_first_order(mass: float, concentration: float, n_rows: int, rounds: int) -> float:
    """Log of the expected number of bits that the rows have beyond the rounds, N mass (c / (1 + c))^R."""
    # eq: own.rounds-mean
    return math.log(n_rows) + math.log(mass) - rounds * math.log1p(1 / concentration)


def bounds(mass: float, concentration: float, n_rows: int, rounds: int) -> dict[str, float]:
    """The probability and its upper bounds, by name, from tight to loose."""
    simple = math.exp(log_first_order(mass, concentration, n_rows, rounds))
    exponents = {
        "exact": features_beyond(mass, concentration, n_rows, rounds),
        "simple": simple,
        "eq_25": simple * jensen_series(concentration, rounds),
        "eq_26": simple * printed_series(concentration, rounds),
        # eq: own.rounds-pi-squared
        "pi_squared": simple * math.pi**2 / 6,
        # eq: PCB11.theorem-1
        "theorem_1": simple * 2,
    }
    return {name: -math.expm1(-exponent) for name, exponent in exponents.items()}


def probability(mass: float, concentration: float, n_rows: int, rounds: int) -> float:
    return -math.expm1(-features_beyond(mass, concentration, n_rows, rounds))


def validity(mass: float, rounds: int, n_features: int) -> float:
    """P(the first n_features features hold all of the rounds): C_1 + ... + C_R is Poisson(mass R)."""
    # eq: PCB11.validity
    return float(pdtr(n_features, mass * rounds))


def validity_printed(mass: float, rounds: int, n_features: int) -> float:
    """The same as printed, P(C_1 + ... + C_R <= n_features - 1): too small."""
    return float(pdtr(n_features - 1, mass * rounds))


def features_beyond(mass: float, concentration: float, n_rows: int, rounds: int) -> float:
    """E = mass c sum_j (-1)^(j+1) binom(N, j) B(j, c) (c / (c + j))^R."""
    c = concentration
    first = math.exp(log_first_order(mass, c, n_rows, rounds))
    # first - second <= E <= first, as N x - N (N-1) x^2 / 2 <= 1 - (1 - x)^N <= N x
    log_share = math.log(max(n_rows - 1, 1e-99) / (2 * (c + 1))) - rounds * math.log1p(1 / (c + 1))
    if log_share < -37 or first == 0:  # the second term is lost in rounding
        return first

    def slope(e: float) -> float:  # of the log integrand on the real line, at s = 1 - e
        s = 1 - e
        return digamma(s) - digamma(c + s) - rounds / (c + s) - digamma(e) - 1 / s + digamma(n_rows + e)

    at = _falling_root(slope)  # the line through the saddle point, on which nothing oscillates
    scale = min(at, 1 - at)
    e = at - 1j * scale * np.sinh(_U)
    s = 1 - e
    # eq: own.rounds-truncation
    log_f = loggamma(s) - _log_gamma_ratio(c, s) - rounds * log1p(s / c)
    log_f += loggamma(e) - np.log(s) - _log_gamma_ratio(n_rows + 1, -s)
    f = np.exp(log_f).real * np.cosh(_U)
    return min(mass * c * scale / math.pi * _STEP * float(f.sum() - 0.5 * f[0]), first)


def _falling_root(f: Callable[[float], float]) -> float:
    """Where f falls through zero between 0 and 1, well enough to put a line through."""
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if f(middle) > 0 else (low, middle)
    return low


def _log_gamma_ratio(z: float, d: Array) -> Array:
    """log Gamma(z + d) - log Gamma(z), without cancellation for a large z."""
    if z < 100:
        return loggamma(z + d) - loggamma(z)
    a = z + d
    return (a - 0.5) * log1p(d / z) + d * (math.log(z) - 1) + _stirling(a) - _stirling(z)


def _stirling(z: Array | float) -> Array | float:
    return 1 / (12 * z) - 1 / (360 * z**3) + 1 / (1260 * z**5)


def jensen_series(concentration: float, rounds: int) -> float:
    """-E log(1 - weight) of the features of later rounds, over their expected weight: c sum_m B(m, c) / m q_m^R."""
    c = concentration

    def log_term(m: Array) -> Array:
        return math.log(c) + betaln(m, c) - np.log(m)

    # eq: PCB11.eq-25
    return _series(log_term, c, rounds)


def printed_series(concentration: float, rounds: int) -> float:
    """The same with E V^m <= E V: sum_m (c + m) / ((c + 1) m^2) q_m^R."""
    c = concentration
    # eq: PCB11.eq-26
    return _series(lambda m: np.log((c + m) / (c + 1)) - 2 * np.log(m), c, rounds)


def _series(log_term: Callable[[Array], Array], c: float, rounds: int) -> float:
    """sum_m exp(log_term(m)) (q_m / q_1)^R with q_m = c / (c + m), the tail as an integral in log m (midpoint rule)."""

    def term(m: Array) -> Array:
        return np.exp(log_term(m) - rounds * np.log1p((m - 1) / (c + 1)))

    half = 0.5 * np.ones((45, 1))
    x = math.log(_SUMMED + 0.5) + (np.arange(45)[:, None] + half * (1 + _X)).ravel()
    tail = np.sum((half * _X_WEIGHTS).ravel() * term(np.exp(x)) * np.exp(x))
    return float(term(np.arange(1.0, _SUMMED + 1)).sum() + tail)
