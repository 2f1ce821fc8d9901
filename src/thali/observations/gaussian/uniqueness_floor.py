"""A floor of learned noise that refers to what a factor analysis leaves."""

from typing import TYPE_CHECKING, Any

import numpy as np

from thali.core.distributions import PerDim
from thali.core.observation import Engine
from thali.observations.gaussian.scale import usual_cells

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.gaussian.weighted import WeightedGaussian

Array = np.ndarray


class UniquenessFloor(Engine):
    """NoiseFloor of a model with weights, as it was before it was adapted to the data."""

    model: "WeightedGaussian"

    @property
    def is_open(self) -> bool:
        return isinstance(self.model.noise_floor, str) and "noise_var" in self.model.learned

    def usual_cells(self, adapted: Any, X: Array) -> Array:
        return usual_cells(adapted, X)

    def closed(self, adapted: Any, noise_var: Array, floor: Array) -> Any:
        if isinstance(self.model.noise_var, PerDim):
            adapted = adapted.replace(noise_var=self.model.noise_var.by_dim(noise_var))
        return adapted.replace(noise_floor=np.minimum(floor / adapted.scale, 0.999))
