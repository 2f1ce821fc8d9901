"""Bits and features as numbers, fitted by least squares: the linear-Gaussian model in the limit of no noise."""

from typing import Any

import numpy as np

from thali.core.binary import column_counts
from thali.core.distributions import NormalOffset
from thali.core.observation import Engine
from thali.core.spec import is_distribution
from thali.kernels.bits.point_rows import hard_sweep
from thali.observations.gaussian.codebook import GaussianCodebook
from thali.observations.gaussian.least_squares import PointData, Statistics
from thali.observations.gaussian.model import GaussianModel

Array = np.ndarray

_ROUNDS = 8  # of a shared feature: who has it, what it is
_LEAST = 0.01  # share of a dim's variance that counts as noise, however well it could be explained


class PointGaussian(Engine):
    """PointRows of a model whose codes are bits.

    A learned offset is fitted with the features, as one that every row has and that costs nothing. Where each dim has
    its own noise, errors are in units of its fixed noise variance, or of the variance of the dim if that is learned.
    """

    model: GaussianModel

    def prepare(self, X: Array) -> PointData:
        n_dims = X.shape[1]
        has_offset = isinstance(self.model.offset, NormalOffset)
        offset = self.model.offset.centre if has_offset else self.model.offset
        offset = np.zeros(n_dims) if offset is None else np.broadcast_to(offset, n_dims).astype(float)
        unit = np.ones(n_dims)
        if self.model.per_dim:
            unit = np.sqrt(self.model.scale if is_distribution(self.model.noise_var) else self.model.noise_var)
        return PointData.of(self.model.from_origin(X), offset, unit, has_offset)

    def matrix(self, data: PointData) -> tuple[Array, bool]:
        matrix = data.X if data.seen is None else np.where(data.seen > 0, data.X, np.nan)
        return matrix, data.has_offset

    def noise(self, data: PointData) -> tuple[float | None, float]:
        if not is_distribution(self.model.noise_var):
            return (1.0 if self.model.per_dim else float(self.model.noise_var)), 0.0
        least = np.maximum(_LEAST * np.asarray(self.model.scale), self.model.floor(len(data.unit)))
        return None, float(np.mean(least / data.unit**2))

    def features(self, data: PointData, Z: Array) -> Array:
        return Statistics(data, Z).features()

    def error(self, data: PointData, Z: Array, features: Array) -> float:
        left = data.residual(Z, features)
        return float(np.einsum("nd,nd->", left, left))

    def sweep(
        self, data: PointData, Z: Array, features: Array, penalty: float, limit: int, order: Array
    ) -> tuple[Array, int]:
        row, total, K = 0, 0, Z.shape[1]
        features, X = data.split(features)
        square = np.einsum("nd,nd->n", X, X)
        room = K if penalty == np.inf else min(limit, K + 8)
        while True:
            wide, A, products, gram = _with_room(X, Z, features, room)
            K, row, changes = hard_sweep(
                X, square, products, data.missing_start, data.missing_dim,
                order, row, wide, K, A, gram, penalty, limit,
            )  # fmt: skip
            Z, features, total = np.ascontiguousarray(wide[:, :K]), A[:K], total + changes
            if row == len(order):
                return Z, total
            room = min(limit, 2 * K)

    def refit_sweep(
        self, data: PointData, Z: Array, features: Array, penalty: float, limit: int, order: Array
    ) -> tuple[Array, int]:
        Z, K, total = Z.copy(), Z.shape[1], 0
        features, X = data.split(features)
        square = np.einsum("nd,nd->n", X, X)
        _, A, products, gram = _with_room(X, Z, features, K)
        statistics = Statistics(data, Z)
        for i, n in enumerate(order):
            old = data.dense(Z[n : n + 1])[0]
            *_, changes = hard_sweep(
                X, square, products, data.missing_start, data.missing_dim,
                order[: i + 1], i, Z, K, A, gram, np.inf, limit,
            )  # fmt: skip
            z, total = data.dense(Z[n : n + 1])[0], total + changes
            if changes:
                statistics.change_row(n, old, z)
            if limit > K and statistics.gain_of_own(n, z) > penalty:
                alone = np.zeros((len(Z), 1), dtype=np.uint8)
                alone[n] = 1
                Z, K, total = np.hstack([Z, alone]), K + 1, total + 1
                statistics = Statistics(data, Z)
                features, X = data.split(statistics.features())
                square = np.einsum("nd,nd->n", X, X)
                _, A, products, gram = _with_room(X, Z, features, K)
        return Z, total

    def worth(self, data: PointData, Z: Array) -> Array:
        return Statistics(data, Z).worth()[: Z.shape[1]]

    def column(
        self, rng: np.random.Generator, data: PointData, Z: Array, features: Array, tries: int
    ) -> tuple[Array, float]:
        left = data.residual(Z, features)
        size = np.einsum("nd,nd->n", left, left)
        if not size.any():
            return np.zeros(len(Z), dtype=np.uint8), 0.0
        directions = left[rng.choice(len(Z), size=tries, p=size / size.sum())]
        root = np.sqrt(np.arange(1, len(Z) + 1))[:, None]
        each = np.arange(tries)
        gains, columns = np.zeros(tries), np.zeros((len(Z), tries))
        for _ in range(_ROUNDS):
            along = left @ directions.T
            by_size = np.argsort(-along, axis=0)
            # eq: own.shared-feature
            reach = np.cumsum(np.take_along_axis(along, by_size, axis=0), axis=0) / root
            lowest = along[by_size[np.argmax(reach, axis=0), each], each]  # of those who have it
            who = (along >= lowest).astype(float)
            total = who.T @ left
            n_seen = who.sum(axis=0)[:, None] if data.seen is None else np.maximum(who.T @ data.seen, 1.0)
            found = np.sum(total**2 / n_seen, axis=1)
            better = found > gains * (1.0 + 1e-9)
            if not better.any():
                break
            gains = np.where(better, found, gains)
            columns = np.where(better, who, columns)
            directions = np.where(better[:, None], total / n_seen, directions)
        best = int(np.argmax(gains))
        return columns[:, best].astype(np.uint8), float(gains[best])

    def point(self, data: PointData, Z: Array, features: Array) -> tuple[GaussianModel, GaussianCodebook]:
        n_dims = data.X.shape[1]
        left = data.residual(Z, features) * data.unit
        n_seen = np.full(n_dims, len(Z)) if data.seen is None else data.seen.sum(axis=0)
        features = features * data.unit
        changes: dict[str, Any] = {}
        if data.has_offset:
            changes["offset"] = data.offset + features[-1]
            features = features[:-1]
        if is_distribution(self.model.noise_var):
            var = np.einsum("nd,nd->d", left, left)
            least = np.maximum(1e-9 * np.asarray(self.model.scale), self.model.floor(n_dims))
            if self.model.per_dim:
                changes["noise_var"] = np.maximum(var / n_seen, least)
            else:
                changes["noise_var"] = float(max(var.sum() / n_seen.sum(), least.mean()))
        if is_distribution(self.model.feature_var):
            unit = changes.get("noise_var", self.model.noise_var) if self.model.per_dim else 1.0
            size = float(np.mean(features**2 / unit)) if len(features) else self.model.feature_var.centre
            changes["feature_var"] = max(size, 1e-9 * self.model.feature_var.centre)
        K = len(features)
        codebook = GaussianCodebook(features, column_counts(Z), np.zeros((K, K)))
        return self.model.replace(**changes), codebook

    def completed(self, X: Array, Z: Array, codebook: GaussianCodebook) -> Array:
        X = self.model.from_origin(X)
        return np.where(np.isnan(X), self.model.means(Z, codebook.features), X)


def _with_room(X: Array, Z: Array, features: Array, room: int) -> tuple[Array, Array, Array, Array]:
    """Z, A, X A' and A A' with `room` columns, the unused ones zero."""
    K = Z.shape[1]
    wide, A = np.zeros((len(Z), room), dtype=np.uint8), np.zeros((room, X.shape[1]))
    wide[:, :K], A[:K] = Z, features
    return wide, A, X @ A.T, A @ A.T
