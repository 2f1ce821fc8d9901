"""The noise that an ordinary factor analysis leaves in each dim, by what most cells say."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from thali.data.odd_cells import odd_cells, spreads
from thali.inference.calibration.factor_em import fit_factors, residuals, validated_factors

Array = np.ndarray

_SOME = 300  # rows, if there is no time for all
_FARTHEST = 5.0  # standard deviations that a hidden cell counts at most


class Uniqueness(NamedTuple):
    """What is left unexplained."""

    n_factors: int
    noise_var: Array  # (n_dims,)
    n_cells: Array  # (n_dims,) on which it rests


def uniqueness(rng: np.random.Generator, X: Array, is_over: Callable[[], bool] = lambda: False) -> Uniqueness:
    """Of a factor analysis whose number of factors is chosen by hidden cells; of some rows, once `is_over()`.

    X has no cells that are far from the others of their dim. Those that are far from what the rest of their row
    predicts are left out, too, unless most cells of the dim are equal: then the others are what there is to explain.
    """
    try:
        fit = validated_factors(rng, X, farthest=_FARTHEST, is_over=is_over)
    except TimeoutError:
        X = X[np.sort(rng.permutation(len(X))[:_SOME])]
        fit = validated_factors(rng, X, farthest=_FARTHEST)
    odd = odd_cells(residuals(fit, X, ~np.isnan(X))[0]) & (spreads(X) > 0)
    if odd.any():
        X = np.where(odd, np.nan, X)
        fit = fit_factors(X, len(fit.loadings))
    return Uniqueness(len(fit.loadings), fit.noise_var, np.sum(~np.isnan(X), axis=0))
