"""Proposals of whole columns of Z for Gaussian models, and what a search for a good start needs to know of a state."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from thali.kernels.bits.collapsed_entropy import collapsed_entropy
from thali.kernels.bits.column_moves import propose_exclusive_or, propose_rebirth, propose_recoding
from thali.observations.gaussian.data import GaussianData, GaussianRows, with_room

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

        The conditionals are those of a sweep; columns that one row alone has, and missing cells, are taken as they are.
        """
        if local.z.shape[1] == 0:
            return 0.0
        X, _, square = data.standardised(self.offset, self.units[1], local.filled)
        P = np.linalg.inv(self._precision(local))
        counts = np.diag(local.gram).astype(np.int64)
        # by the number of other owners; out of range where no row is on, or none is off
        odds_on, odds_off = log_odds[np.maximum(counts - 1, 0)], log_odds[np.minimum(counts, len(log_odds) - 1)]
        mean = P @ self.standard_cross(local)
        return collapsed_entropy(X, square, np.ascontiguousarray(local.z), P, mean, odds_on, odds_off, self.units[0])
