"""Where chains of factors with few loadings begin: an ordinary factor analysis, rotated until most loadings are small.

Factors with Gaussian values are known up to a rotation only; which of them is right, the zeros among the loadings say.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from thali.inference.calibration.factor_em import FactorFit, fit_factors, validated_factors
from thali.numerics.blas import one_blas_thread

Array = np.ndarray
Generator = np.random.Generator

_SOME = 2000  # variables by which the number of factors is found
_GRID = (*range(1, 21), 25, 30, 35, 40, 50, 60)  # numbers of factors that are tried
_TRIES, _ROUNDS, _TOL = 10, 300, 1e-9  # of rotation
_SOFTNESS = (1.0, 0.3, 0.1)  # sizes below which an entry is as good as none, in units of the noise
_FAINT = 2.5  # standard errors below which a loading is taken for none
_FEW = 3  # factors, if there is no time to count them


@one_blas_thread()
def factor_start(rng: Generator, Y: Array, n_features: int | None, is_over: Callable[[], bool]) -> Array:
    """Loadings (n_variables, n_features) of Y (n_samples, n_variables), NaN where missing; many of them are zero."""
    fit = _counted(rng, Y, n_features, is_over)
    A, noise = fit.loadings.T, fit.noise_var
    root = np.sqrt(noise)[:, None]
    V = sparse_rotation(rng, A / root) * root
    n_seen = np.maximum(np.sum(~np.isnan(Y), axis=0), 1)
    faint = np.abs(V) < _FAINT * np.sqrt(noise / n_seen)[:, None]
    if V.size:
        faint[np.abs(V).argmax(axis=0), np.arange(V.shape[1])] = False
    return np.where(faint, 0.0, V)


def _counted(rng: Generator, Y: Array, n_features: int | None, is_over: Callable[[], bool]) -> FactorFit:
    """The fit with as many factors as hidden cells speak for, at most `n_features`."""
    n_variables = Y.shape[1]
    some = Y if n_variables <= _SOME else Y[:, np.sort(rng.permutation(n_variables)[:_SOME])]
    most = min(_GRID[-1] if n_features is None else n_features, min(Y.shape) - 1)
    try:
        n_factors = len(validated_factors(rng, some, grid=[k for k in _GRID if k <= most], is_over=is_over).loadings)
    except TimeoutError:
        n_factors = min(_FEW, most)
    return fit_factors(Y, n_factors)


def sparse_rotation(rng: Generator, A: Array) -> Array:
    """A (n_variables, n_factors), in units of its errors, rotated so that the sum of the sizes of its entries is least.

    Of several rotations, each from a random start by way of that in which squares vary most within columns (varimax,
    Kaiser 1958), the best: both criteria have local optima.
    """
    K = A.shape[1]
    if K < 2:
        return A
    best, least = A, np.inf
    for _ in range(_TRIES):
        R = _climb(A, _polar(rng.standard_normal((K, K))), _varimax_slope)
        for softness in _SOFTNESS:
            R = _climb(A, R, partial(_size_slope, softness=softness))
        size = float(np.sum(np.sqrt((A @ R) ** 2 + _SOFTNESS[-1] ** 2)))
        if size < least:
            best, least = A @ R, size
    return best


def _climb(A: Array, R: Array, slope: Callable[[Array], Array]) -> Array:
    """The rotation R at a local maximum of a function of A R that is convex in it, given its slope."""
    for _ in range(_ROUNDS):
        new = _polar(A.T @ slope(A @ R))
        change = np.abs(1.0 - np.einsum("jk,jk->k", new, R)).max()
        R = new
        if change < _TOL:
            break
    return R


def _varimax_slope(B: Array) -> Array:
    return B**3 - B * np.mean(B * B, axis=0)


def _size_slope(B: Array, softness: float) -> Array:
    """Of sum(b^2 / (2 softness) - sqrt(b^2 + softness^2)), which is convex; under rotations only the sizes change."""
    return B / softness - B / np.sqrt(B * B + softness**2)


def _polar(M: Array) -> Array:
    left, _, right = np.linalg.svd(M)
    return left @ right
