"""A likelihood that lives outside of thali: 0/1 data in which each feature may switch a dim on (noisy or).

It is docs/skeletons/likelihood.py filled in: the five methods, and a check of the data.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import thali
from thali.core.spec import hyper, positive, setting, unit_interval
from thali.observations import Likelihood

Array = np.ndarray


@thali.register("outside.NoisyOr")
@dataclass(frozen=True, eq=False)
class NoisyOr(Likelihood):
    """x_nd = 0 with probability (1 - leak) prod_k (1 - A_kd)^z_nk, and A_kd ~ Beta(strength, 1)."""

    strength: Any = hyper(2.0, positive)
    leak: float = setting(0.05, unit_interval)

    # ---- what features are

    def draw_features(self, rng: np.random.Generator, n_features: int, n_dims: int) -> Array:
        return rng.beta(self.strength, 1.0, (n_features, n_dims))

    def log_features(self, features: Array) -> Array:
        inside = (features > 0) & (features < 1)
        return np.where(inside, np.log(self.strength) + (self.strength - 1) * np.log(np.abs(features)), -np.inf)

    # ---- what data are, given codes and features

    def log_cells(self, X: Array, codes: Array, features: Array) -> Array:
        log_off = np.log1p(-self.leak) + codes @ np.log1p(-features)
        return np.where(X > 0, np.log(-np.expm1(log_off)), log_off)

    def sample_cells(self, rng: np.random.Generator, codes: Array, features: Array) -> Array:
        rate = self.reconstruct(codes, features)
        return (rng.random(rate.shape) < rate).astype(float)

    def reconstruct(self, codes: Array, features: Array) -> Array:
        return -np.expm1(np.log1p(-self.leak) + codes @ np.log1p(-features))

    # ---- optional

    def check_data(self, X: Any) -> Array:
        X = super().check_data(X)
        if not np.isin(X[~np.isnan(X)], (0.0, 1.0)).all():
            raise thali.InvalidDataError("X must hold zeros and ones, NaN where a cell is missing.")
        return X
