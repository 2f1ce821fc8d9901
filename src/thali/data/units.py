"""The unit of each dim: how far its cells lie from each other, by what most of them say."""

import numpy as np

from thali.data.odd_cells import medians

Array = np.ndarray

_ROUNDING = 1e-13  # of a mean: smaller standard deviations are errors of rounding


def moments(X: Array, missing: Array) -> tuple[Array, Array]:
    """Mean and variance of the observed cells of each dim; dims without any, or with equal ones, have a typical one."""
    n = np.maximum(np.sum(~missing, axis=0), 1)
    mean = np.sum(X, axis=0, where=~missing) / n
    var = np.sum((X - mean) ** 2, axis=0, where=~missing) / n
    return mean, with_typical(var, mean)


def unit_squares(X: Array) -> Array:
    """The square of a unit for each dim: the mean square, about the mean, of the cells that differ from the median.

    That is the variance, unless many cells are equal. In a dim that is nearly always zero (a pixel at the edge, a rare
    event) the variance says how rare the others are; what to expect of one of them, and how far noise may shrink, is
    said by their own size.
    """
    seen = ~np.isnan(X)
    mean, _ = moments(X, ~seen)
    equal = seen & (medians(X) == X)
    differs = seen & ~(equal & (equal.sum(axis=0) > 1))  # one cell is the median of an odd number
    square = np.sum((X - mean) ** 2, axis=0, where=differs) / np.maximum(differs.sum(axis=0), 1)
    return with_typical(square, mean)


def with_typical(var: Array, mean: Array) -> Array:
    """Variances with the median one in place of those that are 0 but for rounding: a constant dim has no unit."""
    varies = var > (_ROUNDING * mean) ** 2
    return np.where(varies, var, np.median(var[varies]) if varies.any() else 1.0)
