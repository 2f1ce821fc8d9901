"""The row variables that chains of sparse factor analysis keep: loadings, factors, their precisions and the noise.

All are in the units of the dims. A row is an owner of loadings: a dim, or a row of X (`LoadingData`).
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thali.core.observation import Engine
from thali.core.registry import stored
from thali.observations.sparse.codebook import FactorsCodebook, LoadingsCodebook
from thali.observations.sparse.data import LoadingData
from thali.observations.sparse.factors import draw_factors, factor_means, residual_squares
from thali.observations.sparse.offsets import offset_of_cells, offset_of_owners

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.sparse_factors import SparseFactorAnalysis

Array = np.ndarray
Generator = np.random.Generator


@stored("LoadingRows")
class LoadingRows(NamedTuple):
    """Row variables."""

    z: Array  # (n_rows, n_features) uint8
    v: Array  # loadings, zero where z is
    factors: Array  # (n_features, n_cells)
    precisions: Array  # (n_features,) of the loadings
    noise: Array  # (n_rows,) variances
    levels: Array  # (2,) of the precisions and of the noise: what new factors and new rows have


class SparseChain(Engine):
    """ChainRows of sparse factor analysis."""

    model: "SparseFactorAnalysis"

    def prepare(self, X: Array) -> LoadingData:
        return LoadingData(np.ascontiguousarray(self.model.owned(X)))

    def place(self, data: LoadingData, codes: Array, X: Array) -> LoadingRows:
        """Factors at their mean given the loadings, and the noise that is left."""
        V = np.ascontiguousarray(codes, dtype=float)
        Y = data.without(self.model.owned_offset())
        noise = np.full(data.n_rows, 0.5)
        if not self.model.laws.learns_noise:
            noise = np.full(data.n_rows, float(self.model.noise_var))
        F = factor_means(data, Y, V, noise)
        if self.model.laws.learns_noise:
            noise = np.maximum(residual_squares(data, Y, V, F) / np.maximum(data.n_seen, 1), 0.01)
        on = np.maximum((V != 0).sum(axis=0), 1)
        precisions = self.model.laws.usual_precisions(np.sum(V * V, axis=0) / on)
        levels = self.model.laws.usual_levels(precisions, noise)
        return LoadingRows((V != 0).astype(np.uint8), V, F, precisions, noise, levels)

    def completed(self, data: LoadingData, local: LoadingRows) -> Array:
        """X with missing cells at their means: chains do not keep them."""
        Y = data.Y + 0.0
        if data.any_missing:
            means = local.v @ local.factors + np.broadcast_to(self.model.owned_offset(), Y.shape)
            Y[data.missing] = means[data.missing]
        return np.ascontiguousarray(self.model.by_owner(Y)) * np.sqrt(self.model.unit_squares)

    def codes(self, local: LoadingRows) -> Array:
        return local.v

    def check(self, data: LoadingData, local: LoadingRows) -> None:
        if not isinstance(local, LoadingRows):
            raise ValueError("its row variables are those of another model")
        K = local.z.shape[1]
        shapes = {"v": local.z.shape, "factors": (K, data.n_cells), "precisions": (K,), "noise": (data.n_rows,)}
        shapes["levels"] = (2,)
        for name, shape in shapes.items():
            values = getattr(local, name)
            if values.shape != shape or values.dtype != np.float64 or not np.isfinite(values).all():
                raise ValueError(f"{name} does not fit its bits")
        if not np.array_equal(local.z, local.v != 0):
            raise ValueError("its loadings are not those of its bits")
        if any((getattr(local, name) <= 0).any() for name in ("precisions", "noise", "levels")):
            raise ValueError("a variance is not positive")

    def log_evidence(self, data: LoadingData, local: LoadingRows) -> float:
        """log p(X, loadings, factors, precisions, noise | Z), levels integrated out."""
        model = self.model
        Y = data.without(model.owned_offset())
        squares = residual_squares(data, Y, local.v, local.factors)
        total = -0.5 * np.sum(data.n_seen * np.log(2 * np.pi * local.noise) + squares / local.noise)
        total -= 0.5 * (local.factors.size * np.log(2 * np.pi) + np.sum(local.factors**2))
        total += log_loadings(local.v, local.precisions) + model.laws.log_precisions(local.precisions)
        if model.laws.learns_noise:
            total += model.noise_var.log_prob(local.noise)
        units = np.log(model.unit_squares)
        seen = (~data.missing).sum(axis=0 if model.sparse == "rows" else 1)
        return float(total - 0.5 * np.sum(np.broadcast_to(units, seen.shape) * seen))

    def resample(
        self, rng: Generator, spec: "SparseFactorAnalysis", data: LoadingData, local: LoadingRows
    ) -> "SparseFactorAnalysis":
        """The offset given the loadings, the factors (or at least their levels) integrated out."""
        if "offset" not in spec.learned:
            return self.model
        units = np.sqrt(spec.unit_squares)
        law = np.asarray(spec.offset.centre) / units, float(spec.offset.spread)
        if spec.owners == "dims":
            values = offset_of_owners(rng, data, local.v, local.factors, local.noise, *law)
        else:
            values = offset_of_cells(rng, data, local.v, local.noise, *law)
        return self.model.updated(offset=units * values)

    def refresh(self, rng: Generator, data: LoadingData, local: LoadingRows) -> LoadingRows:
        """The factors."""
        Y = data.without(self.model.owned_offset())
        return local._replace(factors=draw_factors(rng, data, Y, local.v, local.noise))

    def shown(self, local: LoadingRows) -> LoadingRows:
        """Factors of one dim as part of its noise, which they are by another name: every prediction stays as it is."""
        if self.model.owners == "rows":  # a new row may share such a factor
            return local
        single = local.z.sum(axis=0, dtype=np.int64) == 1
        noise = local.noise + np.sum(local.v[:, single] ** 2, axis=1)
        V = np.where(single, 0.0, local.v)
        return local._replace(z=(V != 0).astype(np.uint8), v=V, noise=noise)

    def codebook(self, data: LoadingData, local: LoadingRows) -> LoadingsCodebook | FactorsCodebook:
        used = local.z.any(axis=0)
        V, F = local.v[:, used], local.factors[used]
        counts = local.z[:, used].sum(axis=0, dtype=np.int64)
        units = np.sqrt(self.model.unit_squares)
        if self.model.owners == "dims":
            sign = _signs(V / np.sqrt(local.noise)[:, None])
            return LoadingsCodebook((sign * V).T * units, counts, local.noise * units**2, sign[:, None] * F)
        sign = _signs(F.T)
        V = sign * V
        weights = V[local.z[:, used] != 0]
        return FactorsCodebook(
            sign[:, None] * F * units, counts, local.precisions[used], local.levels, local.noise, weights
        )


def _signs(columns: Array) -> Array:
    """-1 for columns whose entry that is largest in size is negative, else 1."""
    peak = np.abs(columns).argmax(axis=0)
    return np.where(columns[peak, np.arange(columns.shape[1])] < 0, -1.0, 1.0)


def log_loadings(V: Array, precisions: Array) -> float:
    """log p(loadings | Z, precisions)."""
    on = V != 0
    return float(0.5 * np.sum(on * np.log(precisions / (2 * np.pi))) - 0.5 * np.sum(V * V * precisions))
