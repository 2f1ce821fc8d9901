"""Sums over all positive integers of smooth, slowly falling terms, by quadrature.

E log(1 - x) of a random weight x in (0, 1) is the series - sum_r E[x^r] / r, whose terms fall only as a power of r: cut
off after a thousand terms it can be ten percent too small. Here the first terms are added one by one; the integers of
each panel [2^j, 2^(j+1)) are replaced by the nodes of a Gauss rule for the uniform measure *on those integers*, exact
for polynomials; and what lies beyond the last panel is a power law, known in closed form.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

Array = np.ndarray

_FIRST_PANEL, _LAST_PANEL, _POINTS = 5, 80, 10  # panels begin at 2^5, the power law at 2^80
_STIRLING = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)  # of log Gamma, in 1/x^2
_SHIFT = 8  # Stirling's series has errors below 1e-15 from there on


@cache
def series_nodes() -> tuple[Array, Array]:
    """(r, weights): sum_{r >= 1} g(r) = g(nodes) @ weights + g(r[-1]) r[-1] / decay where g falls as r^(-1 - decay)."""
    nodes = [np.arange(1.0, 2**_FIRST_PANEL)]
    weights = [np.ones(2**_FIRST_PANEL - 1)]
    for panel in range(_FIRST_PANEL, _LAST_PANEL):
        x, w = _integer_rule(2.0**panel)
        nodes.append(2.0**panel + x)
        weights.append(w)
    r = np.concatenate([*nodes, [2.0**_LAST_PANEL]])
    w = np.concatenate([*weights, [0.0]])
    r.flags.writeable = w.flags.writeable = False
    return r, w


def _integer_rule(n: float) -> tuple[Array, Array]:
    """Gauss rule for sum_{i=0}^{n-1} g(i): eigenvalues of the Jacobi matrix of the discrete Chebyshev polynomials."""
    k = np.arange(1.0, _POINTS)
    off = np.sqrt(k**2 * (1 - (k / n) ** 2) / (4 * (4 * k**2 - 1)))  # eq: own.integer-rule
    x, vectors = np.linalg.eigh(np.diag(off, 1) + np.diag(off, -1))
    return (n - 1) / 2 + n * x, n * vectors[0] ** 2


def sum_series(terms: Array, decay: Array | float) -> Array:
    """sum_{r >= 1} g(r) from the values of g at the nodes (last axis), where g falls as r^(-1 - decay).

    Values at the first nodes alone say that g is nothing after them.
    """
    r, weights = series_nodes()
    n_nodes = terms.shape[-1]
    total = terms @ weights[:n_nodes]
    return total if n_nodes < len(r) else total + terms[..., -1] * r[-1] / decay


def expected_log_complement(log_moment: Callable[[Array], Array], decay: Array | float) -> Array:
    """E log(1 - x) for random x in (0, 1).

    `log_moment(r)` gives log E[x^r] at the nodes r, along its last axis; E[x^r] falls as r^-decay for large r.
    """
    r, _ = series_nodes()
    return -sum_series(np.exp(log_moment(r) - np.log(r)), decay)  # eq: own.log-complement


def log_beta_moment(a: Array | float, b: Array | float, r: Array) -> Array:
    """log E[x^r] = log B(a + r, b) / B(a, b) of x ~ Beta(a, b), without cancellation for any r > 0; falls as r^-b.

    r is a vector; a and b are numbers, or arrays whose last axis has length one.
    """
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    near = r < _SHIFT
    steps = np.arange(_SHIFT)
    # Stirling's series needs arguments of 8 and more: Gamma(x) = Gamma(x + 8) / (x (x + 1) ... (x + 7))
    shift = -np.log1p(b[..., None] / (a[..., None] + steps)).sum(axis=-1)
    shift_near = np.log1p(b[..., None] / ((a + r[near])[..., None] + steps)).sum(axis=-1)
    a, r = a + _SHIFT, np.where(near, r, r - _SHIFT)
    s = a + b
    # eq: own.beta-moment
    powers = (a - 0.5) * np.log1p(b * r / (a * (s + r))) - b * np.log1p(r / s) - r * np.log1p(b / (a + r))
    result = powers + _stirling(a + r) - _stirling(s + r) + (_stirling(s) - _stirling(a) + shift)
    result[..., near] += shift_near
    return result


def _stirling(x: Array) -> Array:
    """log Gamma(x) - (x - 1/2) log x + x - log(2 pi)/2 for x >= 8."""
    return np.polyval(_STIRLING, 1 / x**2) / x
