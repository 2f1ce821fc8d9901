"""Proposals of whole columns of Z for Gaussian models, and what a search for a good start needs to know of a state."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from thali.kernels.column_moves import propose_exclusive_or, propose_rebirth, propose_recoding
from thali.observations._gaussian import GaussianData, GaussianRows, with_room

Array = np.ndarray


class ColumnProposals:
    """For a concrete Gaussian model."""

    if TYPE_CHECKING:  # what the model itself has
        offset: Any
        feature_var: Any
        noise_var: Any

        @property
        def units(self) -> tuple[float, Array | None]: ...
        @property
        def per_dim(self) -> bool: ...
        def replace(self, **changes: Any) -> Self: ...
        def standard_cross(self, local: GaussianRows) -> Array: ...
        def from_standard(self, Z: Array, K: int, gram: Array, cross: Array, filled: Array) -> GaussianRows: ...

    def propose_rebirth(
        self,
        rng: np.random.Generator,
        data: GaussianData,
        local: GaussianRows,
        weight: Array,
        columns: Array,
        n_new: int,
    ) -> tuple[GaussianRows, float]:
        X, Z, gram, cross = self._arrays(data, local, n_new)
        K, log_ratio = propose_rebirth(
            X, Z, local.z.shape[1], gram, cross, weight, self.units[0], float(self.feature_var), columns, n_new, rng
        )
        return self.from_standard(Z, K, gram, cross, local.filled), log_ratio

    def propose_recoding(
        self,
        rng: np.random.Generator,
        data: GaussianData,
        local: GaussianRows,
        weight: Array,
        pair: Array,
        table: Array,
    ) -> tuple[GaussianRows, float]:
        X, Z, gram, cross = self._arrays(data, local, 0)
        K = local.z.shape[1]
        noise, feature = self.units[0], float(self.feature_var)
        log_ratio = propose_recoding(X, Z, K, gram, cross, weight, noise, feature, pair, table, rng)
        return self.from_standard(Z, K, gram, cross, local.filled), log_ratio

    def propose_exclusive_or(
        self, data: GaussianData, local: GaussianRows, weight: Array, pair: Array
    ) -> tuple[GaussianRows, float]:
        X, Z, gram, cross = self._arrays(data, local, 0)
        K = local.z.shape[1]
        log_ratio = propose_exclusive_or(X, Z, K, gram, cross, weight, self.units[0], float(self.feature_var), pair)
        return self.from_standard(Z, K, gram, cross, local.filled), log_ratio

    def _arrays(self, data: GaussianData, local: GaussianRows, extra: int) -> tuple[Array, Array, Array, Array]:
        X, _, _ = data.standardised(self.offset, self.units[1], local.filled)
        return X, *with_room(local.z, local.gram, self.standard_cross(local), local.z.shape[1] + extra)

    def likeness(self, local: GaussianRows) -> Array:
        """|cosine| of the features' posterior means, (n_features, n_features)."""
        mean = np.linalg.solve(self._precision(local), self.standard_cross(local))
        mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-300)
        return np.abs(mean @ mean.T)

    def _precision(self, local: GaussianRows) -> Array:
        return local.gram + self.units[0] / self.feature_var * np.eye(len(local.gram))

    def bit_entropy(self, data: GaussianData, local: GaussianRows, log_odds: Array) -> float:
        """Sum over all bits of the entropy of their single-site conditional, in nats.

        The conditionals are those of a sweep, for all rows at once: three matrix products. Columns that one row alone
        has, and missing cells, are taken as they are.
        """
        n_features = local.z.shape[1]
        if n_features == 0:
            return 0.0
        X, _, square = data.standardised(self.offset, self.units[1], local.filled)
        Z = local.z.astype(float)
        P = np.linalg.inv(self._precision(local))
        mean = P @ self.standard_cross(local)
        G = mean @ mean.T
        b, Pz, Gz = X @ mean.T, Z @ P, Z @ G
        q, zb, zGz = np.sum(Z * Pz, axis=1), np.sum(Z * b, axis=1), np.sum(Z * Gz, axis=1)
        left = np.maximum(1.0 - q, 1e-12)[:, None]
        # row removal, as own.row-removal
        g, h, e = Pz / left, b - Gz, (square - 2 * zb + zGz)[:, None]
        b -= g * (square - zb)[:, None]
        Gz += g * (e * q[:, None] / left - (zb - zGz)[:, None]) - h * q[:, None] / left
        q_out = np.sum(Z * g, axis=1)[:, None]
        s_out = square[:, None] + np.sum(Z * (Gz - 2 * b), axis=1, keepdims=True)
        step = 1.0 - 2.0 * Z
        q_new = q_out + 2 * step * g + np.diag(P) + left * g * g
        s_new = s_out + 2 * step * (Gz - b) + np.diag(G) - 2 * g * h + e * g * g
        others = np.diag(local.gram).astype(np.int64) - local.z
        odds = log_odds[others]
        free = np.isfinite(odds)
        v, w = 1.0 / (1.0 + np.maximum(q_new, 0.0)), 1.0 / (1.0 + np.maximum(q_out, 0.0))
        size = 0.5 * data.n_dims * np.log(v / w) + 0.5 / self.units[0] * (s_out * w - s_new * v)
        size = np.abs(np.where(free, size + step * np.where(free, odds, 0.0), 0.0))
        with np.errstate(under="ignore"):
            t = np.exp(-size)
        return float(np.sum(np.where(free, np.log1p(t) + size * t / (1.0 + t), 0.0)))
