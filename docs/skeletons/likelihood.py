"""A likelihood to begin with: copy this file into your own package, give it your names, and fill in the methods.

It runs as it stands: X = Z A + noise whose law is Laplace, so that odd cells do little harm. Five methods are needed;
three more are optional. Everything else follows from them, slowly but right: `Gibbs` and `SliceSampler` sample it, and
a fit predicts, fills missing cells, is saved, loaded and resumed.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import thali
from thali.core.spec import hyper, positive, setting
from thali.observations import Likelihood

Array = np.ndarray


@thali.register("yourpackage.LaplaceNoise")  # its name in files, once and for all; it has a dot
@dataclass(frozen=True, eq=False)
class LaplaceNoise(Likelihood):
    """x_nd ~ Laplace(sum_k z_nk A_kd, scale), and A_kd ~ N(0, feature_var)."""

    # A number is a fixed hyperparameter, a distribution a learned one: `hyper`. What is never learned: `setting`.
    scale: Any = hyper(0.5, positive)
    feature_var: float = setting(1.0, positive)

    # ---- what features are

    def draw_features(self, rng: np.random.Generator, n_features: int, n_dims: int) -> Array:
        """Features from their prior, (n_features, n_dims). All randomness comes from `rng`."""
        return np.sqrt(self.feature_var) * rng.standard_normal((n_features, n_dims))

    def log_features(self, features: Array) -> Array:
        """Log density of each value under that prior, normalised; -inf outside of its support."""
        return -0.5 * (features**2 / self.feature_var + np.log(2 * np.pi * self.feature_var))

    # ---- what data are, given codes (n_rows, n_features), here bits, and features

    def log_cells(self, X: Array, codes: Array, features: Array) -> Array:
        """Log density of each cell, normalised. Cells are independent; missing ones are left out by the caller."""
        return -np.abs(X - codes @ features) / self.scale - np.log(2 * self.scale)

    def sample_cells(self, rng: np.random.Generator, codes: Array, features: Array) -> Array:
        """A draw of X from that density."""
        return rng.laplace(self.reconstruct(codes, features), self.scale)

    def reconstruct(self, codes: Array, features: Array) -> Array:
        """The mean of that density."""
        return codes @ features

    # ---- optional

    # def check_data(self, X):
    #     """X as float64, or `thali.InvalidDataError`. Needed if X is not any real numbers: begin with
    #     X = super().check_data(X), which takes care of shapes, text and infinities."""

    # If features have weights, say of which kind, code_kind = "real" or "positive", and have both of these:
    #
    # def draw_codes(self, rng, Z):
    #     """Weights from their prior where Z is 1, else 0."""
    #
    # def log_codes(self, codes):
    #     """Log density of all weights that are not 0, a number."""

    # What should be fast gets an engine of its own, one class for one capability of thali.core.protocols.engines:
    #
    # engines = Likelihood.engines | {ConditionalRows: MySweeps}


def prove(rng: np.random.Generator) -> None:
    """How such a part is proved; these lines belong in your tests."""
    thali.testing.check_observation(LaplaceNoise(), rng, n_draws=3000)  # draws, densities and engines agree
    model = thali.core.model.Model(thali.BetaBernoulli(mass=1.0, n_features=1), LaplaceNoise())
    X = np.array([[1.8, -1.4], [1.2, -2.0], [0.4, 1.4]])  # which must say something, and leave doubts
    sampler = thali.Gibbs(start="empty")
    thali.testing.check_inference(sampler, model, X, rng, n_steps=25)  # and a sampler of it is exact, by enumeration


def prove_learning(rng: np.random.Generator) -> None:
    """That a step leaves the joint distribution of everything as it is, with a hyperparameter that is learned."""
    learned = LaplaceNoise(scale=thali.Gamma(4.0, 8.0))
    model = thali.core.model.Model(thali.IBP(mass=0.8), learned)
    assert thali.testing.geweke(model, thali.Gibbs(), rng, n_rows=3, n_replicates=2000).passed
