"""How far the noise may be learned away: a floor that prevents collapse and leaves the posterior alone.

Collapse: with ever more features the noise of a dim goes to nothing. The noise that an ordinary factor analysis leaves
says where that begins. A floor at that estimate would cut off half of the posterior, so it lies below, by more than
chance moves an estimate from so many cells.
"""

import numpy as np
from scipy.special import gammaincinv

from thali.observations._odd_cells import spreads
from thali.observations._uniqueness import Uniqueness

Array = np.ndarray

_SHARE = 0.7  # of the noise that is left, at most
_CHANCE = 0.01  # with which noise of the size that is left would seem to be at its floor
_MOSTLY_EQUAL = 0.1  # of the variance of a dim of which more than half of the cells are equal


def floor_share(found: Uniqueness, X: Array, scale: Array) -> Array:
    """The floor of each dim as a share of its variance `scale`.

    In a dim of which most cells are equal, rare cells carry all of the variance and rare features explain them one by
    one: there a factor analysis leaves too little, and a tenth of the variance is the least.
    """
    least = np.where(spreads(X) > 0, 0.0, _MOSTLY_EQUAL)
    return np.clip(floor_below(found) / scale, least, 0.999)


def floor_below(found: Uniqueness) -> Array:
    """The floor of each dim: a share of what a factor analysis leaves, its degrees of freedom counted."""
    free = np.maximum(found.n_cells - found.n_factors - 1, 1)
    least = gammaincinv(0.5 * free, _CHANCE) / (0.5 * free)  # of a mean square with so many degrees of freedom
    return np.minimum(np.minimum(_SHARE, least) * found.n_cells / free, 1.0) * found.noise_var
