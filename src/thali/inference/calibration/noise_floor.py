"""How far the noise may be learned away: a floor that prevents collapse and leaves the posterior alone.

Collapse: with ever more features the noise of a dim goes to nothing. The noise that an ordinary factor analysis leaves
says where that begins. A floor at that estimate would cut off half of the posterior, so it lies below, by more than
chance moves an estimate from so many cells.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import gammaincinv

from thali.core.model import Model
from thali.core.protocols.engines.calibration import NoiseFloor
from thali.inference.calibration.uniqueness import Uniqueness, uniqueness
from thali.rng import make_generator

Array = np.ndarray

_SHARE = 0.5  # of the noise that is left, at most
_CHANCE = 0.01  # with which noise of the size that is left would seem to be at its floor


def calibrate(model: Model, X: Any, is_over: Callable[[], bool] = lambda: False) -> Model:
    """The model with all that refers to the data made absolute: scales, and a floor that asks for the uniqueness.

    Once `is_over()`, that is taken from some of the rows.
    """
    observation = model.observation.adapt(X)
    if model.observation.has(NoiseFloor):
        floor = model.observation.engine(NoiseFloor)
        if floor.is_open:
            found = uniqueness(make_generator(0), floor.usual_cells(observation, X), is_over)
            observation = floor.closed(observation, found.noise_var, floor_below(found))
    return Model(model.prior, observation)


def floor_below(found: Uniqueness) -> Array:
    """The floor of each dim: a share of what a factor analysis leaves, less where few cells say what that is."""
    free = np.maximum(found.n_cells - found.n_factors - 1, 1)
    least = gammaincinv(0.5 * free, _CHANCE) / (0.5 * free)  # of a mean square with so many degrees of freedom
    return np.minimum(_SHARE, least) * found.noise_var
