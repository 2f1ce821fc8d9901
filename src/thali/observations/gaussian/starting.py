"""Where chains of Gaussian models begin."""

import math
from typing import Any, cast

import numpy as np

from thali.core.distributions import NormalOffset, PerDim
from thali.core.observation import Engine
from thali.core.protocols.engines.chains import ChainRows
from thali.core.spec import is_distribution
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.rows import GaussianChain

Array = np.ndarray


class GaussianStart(Engine):
    """StartRows of any Gaussian model."""

    model: GaussianModel

    def matrix(self, data: GaussianData) -> tuple[Array, bool]:
        X, offset = data.X, self.model.offset
        if data.any_hidden:
            X = X.copy()
            X[data.hidden] = data.points
        if offset is None or isinstance(offset, NormalOffset):
            return X, offset is not None
        return X - offset, False

    def units(self, n_dims: int) -> Array | None:
        """The dims' own units, if each has its own, and a noise level of its own."""
        own = self.model.own_units and isinstance(self.model.noise_var, PerDim)
        return np.sqrt(np.broadcast_to(self.model.scale, n_dims)) if own else None

    def begin(self, data: GaussianData, codes: Array, matrix: Array) -> tuple[GaussianModel, Any]:
        """Learned variances from the least-squares fit of X on the codes."""
        model, X = self.model, matrix
        changes: dict[str, Any] = {}
        filled = matrix[data.hidden]
        if isinstance(model.offset, NormalOffset):
            changes["offset"] = np.array(model.offset.centre, dtype=float)
            X = X - model.offset.centre
        elif model.offset is not None:
            filled = filled + model.offset[data.hidden_dim]
        dense = codes.astype(float)
        n_features = dense.shape[1]
        weights = np.linalg.solve(dense.T @ dense + 0.1 * np.eye(n_features), dense.T @ X)
        residual = np.mean((X - dense @ weights) ** 2, axis=0)
        if is_distribution(model.noise_var):
            noise = np.maximum(np.maximum(residual, 0.01 * np.asarray(model.scale)), model.floor(data.n_dims))
            changes["noise_var"] = noise if model.per_dim else float(noise.mean())
        if is_distribution(model.feature_var):
            unit = changes.get("noise_var", model.noise_var) if model.per_dim else 1.0
            changes["feature_var"] = _probable_variance(model.feature_var, weights**2 / unit)
        chain = cast(GaussianChain, model.engine(ChainRows))
        return model.replace(**changes), chain.rows(data, codes, filled)

    def tempered(self, factor: float) -> GaussianModel:
        return self.model.tempered(factor)


def _probable_variance(law: Any, squares: Array) -> float:
    """Variance of numbers with these squares: the most probable of 33 between the prior's centre and their mean.

    A start outside the prior's bulk would not do: from a point of all but no density, one slice reaches any size.
    """
    if squares.size == 0:
        return float(law.centre)
    mean = max(float(squares.mean()), 1e-3 * law.centre)
    grid = np.geomspace(law.centre, mean, 33)
    density = [law.log_prob(v) - 0.5 * squares.size * (math.log(v) + mean / v) for v in grid]
    return float(grid[int(np.argmax(density))])
