"""Another likelihood that lives outside of thali: its features have real weights."""

from dataclasses import dataclass

import numpy as np

import thali
from thali.core.spec import positive, setting
from thali.observations import Likelihood

Array = np.ndarray

_LOG_NORM = 0.5 * np.log(2 * np.pi)


@thali.register("outside.Scaled")
@dataclass(frozen=True, eq=False)
class Scaled(Likelihood):
    """X = (Z * W) A + noise with standard normal weights and features."""

    noise_sd: float = setting(0.5, positive)
    code_kind = "real"

    def draw_features(self, rng: np.random.Generator, n_features: int, n_dims: int) -> Array:
        return rng.standard_normal((n_features, n_dims))

    def log_features(self, features: Array) -> Array:
        return -0.5 * features**2 - _LOG_NORM

    def draw_codes(self, rng: np.random.Generator, Z: Array) -> Array:
        return Z * rng.standard_normal(np.shape(Z))

    def log_codes(self, codes: Array) -> float:
        weights = codes[codes != 0]
        return float(np.sum(-0.5 * weights**2 - _LOG_NORM))

    def log_cells(self, X: Array, codes: Array, features: Array) -> Array:
        left = (X - codes @ features) / self.noise_sd
        return -0.5 * left**2 - _LOG_NORM - np.log(self.noise_sd)

    def sample_cells(self, rng: np.random.Generator, codes: Array, features: Array) -> Array:
        mean = self.reconstruct(codes, features)
        return mean + self.noise_sd * rng.standard_normal(mean.shape)

    def reconstruct(self, codes: Array, features: Array) -> Array:
        return codes @ features
