"""X = offset + (Z * W) A + noise with Laplace weights: infinite independent components (Knowles & Ghahramani 2007)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from thali.core.binary import Array
from thali.core.registry import stored
from thali.core.spec import positive, setting
from thali.observations.gaussian.weight_law import WeightLaw
from thali.observations.gaussian.weighted import WeightedGaussian


@stored("ICA")
@dataclass(frozen=True, eq=False)
class ICA(WeightedGaussian):
    """Sources with Laplace weights of variance `weight_var`, mixed by the features, and Gaussian noise.

    The default variance is that of the Laplace law with scale 1. All else is as in `FactorAnalysis`.
    """

    weight_var: float = setting(2.0, positive)

    words: ClassVar[str] = "independent components"

    @property
    def law(self) -> WeightLaw:
        rate = math.sqrt(2.0 / self.weight_var)
        return WeightLaw(rate, 0.0, math.log(2.0 / rate))

    def draw_weights(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        return rng.laplace(scale=math.sqrt(0.5 * self.weight_var), size=size)
