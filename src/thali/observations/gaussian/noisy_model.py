"""Gaussian models whose noise is a parameter: fixed or learned, relative to the scale of the data, above a floor."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from thali.core.binary import Array
from thali.core.distributions import InverseGamma, PerDim
from thali.core.spec import hyper, is_distribution, setting
from thali.errors import InvalidParameterError
from thali.observations.gaussian.domains import (
    feature_domain,
    floor_domain,
    noise_domain,
    offset_domain,
    origin_domain,
    scale_domain,
)
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.scale import adapted, with_scale


@dataclass(frozen=True, eq=False)
class NoisyGaussian(GaussianModel):
    """Subclasses say what codes are, if not bits."""

    noise_var: Any = hyper(InverseGamma(1.0, 0.1, relative=True), noise_domain)
    feature_var: Any = hyper(None, feature_domain)
    offset: Any = hyper(None, offset_domain)
    noise_floor: Any = setting(0.0, floor_domain)
    scale: Any = setting(None, scale_domain)
    origin: Any = field(default=None, kw_only=True, metadata={"domain": origin_domain})

    def __post_init__(self) -> None:
        super().__post_init__()
        floored = not isinstance(self.noise_floor, str) and np.any(np.asarray(self.noise_floor) > 0)
        if floored and not is_distribution(self.noise_var) and self.scale is None:
            raise InvalidParameterError(
                f"{type(self).__name__}.noise_floor bounds a learned noise_var, but noise_var is fixed at "
                f"{self.noise_var!r}. Leave noise_floor out, or let noise_var be learned."
            )

    @property
    def floor_share(self) -> float | None:
        return 0.0 if isinstance(self.noise_floor, str) else float(np.mean(self.noise_floor))

    def adapt(self, X: Array) -> Self:
        return adapted(self, X)

    def draw(self, rng: np.random.Generator, n_dims: int) -> Self:
        spec = with_scale(self, np.broadcast_to(1.0 if self.scale is None else self.scale, n_dims))
        floor = spec.floor(n_dims)
        noise = spec.noise_var
        if isinstance(spec.noise_var, PerDim):
            noise = spec.noise_var.sample(rng, n_dims)
            while (noise < floor).any():  # the joint prior is restricted, not each dim's
                noise = spec.noise_var.sample(rng, n_dims)
        elif is_distribution(spec.noise_var):
            noise = spec.noise_var.sample(rng)
            while noise < floor.mean():
                noise = spec.noise_var.sample(rng)
        return GaussianModel.draw(spec.replace(noise_var=noise), rng, n_dims)  # features and offset
