"""The likelihood of codes with the features integrated out, in the space of K features."""

import math
from typing import NamedTuple

import numpy as np

from thali.core.observation import Engine
from thali.observations.gaussian.model import GaussianModel

Array = np.ndarray


class Spectrum(NamedTuple):
    """Eigenvalues of Z'Z and what the collapsed likelihood needs besides, so that it costs O(K) to evaluate.

    log p(X | Z) = -N D/2 log(2 pi s) - D/2 sum log(1 + lam f/s) - (square - sum power / (lam + s/f)) / (2 s),
    s the noise and f the feature variance.
    """

    lam: Array
    power: Array  # |u_i' Z'X|^2
    square: float  # |X|^2
    n_rows: int
    n_dims: int

    def log_likelihood(self, noise_var: float, feature_var: float) -> float:
        # eq: DV09.collapsed-likelihood
        ratio = feature_var / noise_var
        with np.errstate(over="ignore", invalid="ignore"):  # of an absurd ratio, which has no probability
            explained = float((self.power / (self.lam + 1.0 / ratio)).sum())
            spread = float(np.log1p(self.lam * ratio).sum())
        return (
            -0.5 * self.n_rows * self.n_dims * math.log(2 * math.pi * noise_var)
            - 0.5 * self.n_dims * spread
            - 0.5 * max(self.square - explained, 0.0) / noise_var
        )


def spectrum(gram: Array, cross: Array, square: float, n_rows: int, n_dims: int) -> Spectrum:
    """From Z'Z, Z'X and |X|^2."""
    lam, vectors = np.linalg.eigh(gram)
    power = ((vectors.T @ cross) ** 2).sum(axis=1)
    return Spectrum(np.maximum(lam, 0.0), power, square, n_rows, n_dims)


class GaussianMarginal(Engine):
    """MarginalRows of any Gaussian model."""

    model: GaussianModel

    def log_marginal(self, X: Array, codes: Array) -> float:
        model = self.model
        model.require_concrete("log_marginal")
        X, V = model.from_origin(model.check_data(X)), model.check_codes(codes)
        noise, scale = model.units
        Y = X if model.offset is None else X - model.offset
        Y = Y if scale is None else Y / scale
        total = 0.0 if scale is None else -float(np.sum(~np.isnan(X) * np.log(scale)))
        patterns, group = np.unique(~np.isnan(X), axis=1, return_inverse=True)
        for g, seen in enumerate(patterns.T):  # dims observed in the same rows share their matrices
            y, v = Y[np.ix_(seen, group.ravel() == g)], V[seen]
            part = spectrum(v.T @ v, v.T @ y, float(np.sum(y * y)), *y.shape)
            total += part.log_likelihood(noise, model.feature_var)
        return total

    def log_codes(self, codes: Array) -> float:
        return 0.0
