"""What noise, precisions of loadings and their levels are like in sparse factor analysis."""

from typing import Any

import numpy as np

from thali.core.distributions import PerDim, PerFeature
from thali.observations.gaussian.variances import draw_truncated_inverse_gamma

Array = np.ndarray
Generator = np.random.Generator


class Laws:
    """Of the noise of each owner and of the precision of each factor's loadings; a number stands for what is fixed.

    Levels are two: that of the precisions and that of the noise, 1 for what is fixed.
    """

    def __init__(self, loading_var: PerFeature | float, noise_var: PerDim | float, noise_floor: float) -> None:
        self.loading_var: Any = loading_var
        self.noise_var: Any = noise_var
        self.noise_floor = float(noise_floor)

    @property
    def learns_loadings(self) -> bool:
        return isinstance(self.loading_var, PerFeature)

    @property
    def learns_noise(self) -> bool:
        return isinstance(self.noise_var, PerDim)

    def precision(self, level: float) -> tuple[float, float]:
        """(shape, rate) of the precision of a new factor given the level of all; (0, variance) if it is fixed."""
        if not self.learns_loadings:
            return 0.0, float(self.loading_var)
        shape = float(self.loading_var.shape)
        return shape, shape * level

    def noise(self, level: float) -> tuple[float, float, float]:
        """(shape, rate, floor) of a noise variance given the level of all; (0, 0, 0) if it is fixed."""
        if not self.learns_noise:
            return 0.0, 0.0, 0.0
        shape = float(self.noise_var.shape)
        return shape, shape * level, self.noise_floor

    def new_precisions(self, rng: Generator, n_features: int, level: float) -> Array:
        """Of factors that nobody has yet."""
        shape, rate = self.precision(level)
        return rng.standard_gamma(shape, n_features) / rate if shape > 0 else np.full(n_features, 1.0 / rate)

    def new_noise(self, rng: Generator, n_owners: int, level: float) -> Array:
        """Noise variances of so many owners of whom nothing is known, given their level."""
        if not self.learns_noise:
            return np.full(n_owners, float(self.noise_var))
        shape, rate, floor = self.noise(level)
        return draw_truncated_inverse_gamma(rng, shape, np.full(n_owners, rate), np.full(n_owners, floor))

    def draw_levels(self, rng: Generator, precisions: Array, noise: Array) -> Array:
        """The levels given all precisions and noise variances."""
        levels = np.ones(2)
        if self.learns_loadings:
            levels[0] = self.loading_var.draw_level(rng, precisions)
        if self.learns_noise:
            levels[1] = self.noise_var.sample_level(rng, noise)
        return levels

    def new_levels(self, rng: Generator) -> Array:
        """The levels before anything is known."""
        return self.draw_levels(rng, np.zeros(0), np.zeros(0))

    def log_precisions(self, precisions: Array) -> float:
        return self.loading_var.log_density(precisions) if self.learns_loadings else 0.0

    def usual_precisions(self, squares: Array) -> Array:
        """Where those of factors whose loadings have these mean squares may begin."""
        if self.learns_loadings:
            return 1.0 / np.maximum(squares, 1e-3)
        return np.full(len(squares), 1.0 / self.loading_var)

    @staticmethod
    def usual_levels(precisions: Array, noise: Array) -> Array:
        """Where levels may begin: the inverse of a mean precision."""
        mean = precisions.mean() if len(precisions) else 1.0
        return np.array([1.0 / mean, 1.0 / np.mean(1.0 / noise)])
