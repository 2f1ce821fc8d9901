"""Sticks of the one-parameter IBP, cut after K features: P(some of N rows has a feature beyond the K-th).

The weights beyond the K-th are a Poisson process of rate mass / x on (0, w), w the K-th weight, and y = -log w is
Gamma(K, rate mass). So each value here is an expectation over y, and quadrature in y is exact to rounding.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, exp1, gammainc

Array = np.ndarray

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)
_FEW_ROWS = 64
_UNDERFLOW = 740.0  # exp of minus this is zero, or nearly


def log_first_order(mass: float, n_rows: int, truncation: int) -> float:
    """Log of the expected number of bits that the rows have beyond the truncation, N mass (mass / (1 + mass))^K."""
    # eq: DV09.stick-mean
    return math.log(n_rows) + math.log(mass) - truncation * math.log1p(1 / mass)


def bounds(mass: float, n_rows: int, truncation: int, taylor_terms: int = 50) -> dict[str, float]:
    """The probability and its upper bounds, by name, from tight to loose ("jensen" stands between both ends)."""
    first_order = math.exp(log_first_order(mass, n_rows, truncation))
    one_row = probability(mass, 1, truncation, linear=True)
    return {
        "exact": probability(mass, n_rows, truncation),
        "linear": probability(mass, n_rows, truncation, linear=True),
        # eq: DV09.eq-11
        "row_by_row": -math.expm1(n_rows * math.log1p(-one_row)) if one_row < 1 else 1.0,
        "jensen": jensen(mass, n_rows, truncation),
        # eq: DV09.eq-12
        "eq_12": -math.expm1(-first_order),
        "taylor": taylor(mass, n_rows, truncation, taylor_terms),
        # eq: DV09.appendix-f
        "appendix_f": -math.expm1(-2 * first_order),
    }


def probability(mass: float, n_rows: int, truncation: int, *, linear: bool = False) -> float:
    """1 - E exp(-mass g(w)), g the exact rate at which unseen sticks are used; `linear`: g(w) = N w, a bound."""
    grid = _grid(mass, n_rows, truncation)
    if grid is None:
        return 0.0
    rate, slope = (_linear_rate, _linear_rate) if linear else (unseen_rate, _slope)
    # By parts: E f(y) = -integral f'(y) P(Y <= y), f = 1 - exp(-mass g), and -f' = mass slope exp(-mass g).
    # eq: own.stick-truncation
    density = mass * slope(grid.y, n_rows) * np.exp(-mass * rate(grid.y, n_rows)) * grid.below
    beyond_end = -math.expm1(-mass * float(rate(grid.end, n_rows)))
    return min(float(np.sum(grid.weights * density)) + grid.last_below * beyond_end, 1.0)


def jensen(mass: float, n_rows: int, truncation: int) -> float:
    """1 - exp(-mass E g(w))."""
    grid = _grid(mass, n_rows, truncation)
    if grid is None:
        return 0.0
    # eq: own.stick-jensen
    mean = float(np.sum(grid.weights * _slope(grid.y, n_rows) * grid.below))
    return -math.expm1(-mass * (mean + grid.last_below * float(unseen_rate(grid.end, n_rows))))


def taylor(mass: float, n_rows: int, truncation: int, n_terms: int) -> float:
    """The series of Appendix F, cut after n_terms: the first is Eq. 12 and all are positive, so it is never tighter."""
    r = np.arange(1, n_terms + 1)
    # eq: DV09.taylor
    terms = np.exp(-truncation * np.log1p(r / mass) - 2 * np.log(r))
    return -math.expm1(-n_rows * mass * float(terms.sum()))


def unseen_rate(y: Array | float, n_rows: int) -> Array:
    """g(w) = sum_{j <= N} (1 - (1 - w)^j) / j at w = exp(-y): how often N rows use sticks below w, over mass."""
    w = np.exp(-np.asarray(y, dtype=float))
    if n_rows <= _FEW_ROWS:
        with np.errstate(divide="ignore"):
            log_miss = np.log1p(-w)
        # eq: own.unseen-rate
        return np.sum([-np.expm1(j * log_miss) / j for j in range(1, n_rows + 1)], axis=0)
    middle = 0.5 / n_rows
    return np.where(w < middle, _rate_small(np.minimum(w, middle), n_rows), _rate_large(np.maximum(w, middle), n_rows))


def _rate_small(w: Array, n_rows: int) -> Array:
    """-sum_i binom(N, i) (-w)^i / i, for N w below 1/2."""
    total, term = np.zeros_like(w), -np.ones_like(w)
    for i in range(1, 16):
        term = term * -w * ((n_rows - i + 1) / i)
        total = total + term / i
    return total


def _rate_large(w: Array, n_rows: int) -> Array:
    """H_N + log w + sum_{j > N} exp(-decay j) / j, the sum by Euler and Maclaurin; decay = -log(1 - w)."""
    a, b = -np.log1p(-np.minimum(w, 1 - 1e-15)), 1 / n_rows
    value = np.exp(-a * n_rows) * b
    first = -(a + b)
    third = -(a**3 + 3 * a**2 * b + 6 * a * b**2 + 6 * b**3)
    fifth = -(a**5 + 5 * a**4 * b + 20 * a**3 * b**2 + 60 * a**2 * b**3 + 120 * a * b**4 + 120 * b**5)
    tail = exp1(a * n_rows) - value * (0.5 + first / 12 - third / 720 + fifth / 30240)
    return digamma(n_rows + 1) + np.euler_gamma + np.log(w) + tail


def _slope(y: Array | float, n_rows: int) -> Array:
    """-dg/dy = 1 - (1 - w)^N."""
    return -np.expm1(n_rows * np.log1p(-np.exp(-y)))


def _linear_rate(y: Array | float, n_rows: int) -> Array:
    """N w: it is its own slope."""
    return n_rows * np.exp(-y)


class _Grid(NamedTuple):
    """Panels of Gauss-Legendre nodes over the y that matter; all beyond `end` is worth f(end) times `last_below`."""

    y: Array
    weights: Array
    below: Array  # P(Y <= y)
    end: float
    last_below: float


def _grid(mass: float, n_rows: int, truncation: int) -> _Grid | None:
    """None where the probability is below the smallest number."""
    if log_first_order(mass, n_rows, truncation) < -_UNDERFLOW:
        return None
    sd = math.sqrt(truncation)
    # Where w is small the integrand is that of Gamma(K, rate 1 + mass); nothing happens left of it.
    tilted = 1 + mass
    start = max((truncation - 14 * sd) / tilted, 0.0)
    reach = (truncation + 14 * sd + 40) / mass  # P(Y > reach) is nothing
    dull = math.log1p(mass * n_rows) + 40  # beyond it the probability is linear in w
    end = max(min(reach, dull), (truncation + 14 * sd + 40) / tilted)
    n_panels = math.ceil((end - start) / min(0.75, 2 * sd / tilted))
    edges = np.linspace(start, end, n_panels + 1)
    half = 0.5 * np.diff(edges)[:, None]
    y = (edges[:-1, None] + half * (1 + _NODES)).ravel()
    weights = (half * _NODE_WEIGHTS).ravel()
    return _Grid(y, weights, gammainc(truncation, mass * y), end, float(gammainc(truncation, mass * end)))
