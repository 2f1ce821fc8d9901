"""Proposals of whole columns of Z for Gaussian models, and what a search for a good start needs to know of a state."""

import numpy as np

from thali.core.observation import Engine
from thali.core.odds import RowOdds
from thali.kernels.bits.collapsed_entropy import collapsed_entropy
from thali.kernels.bits.column_moves import propose_exclusive_or, propose_rebirth, propose_recoding
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.room import with_room
from thali.observations.gaussian.rows import BitRows, GaussianRows

Array = np.ndarray


class GaussianColumnMoves(Engine):
    """ColumnMoves and BitEntropy of a model whose codes are bits."""

    model: GaussianModel

    def __init__(self, model: GaussianModel) -> None:
        super().__init__(model)
        self.rows = BitRows(model)

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
            X,
            Z,
            local.z.shape[1],
            gram,
            cross,
            weight,
            self.model.units[0],
            float(self.model.feature_var),
            columns,
            n_new,
            rng,
        )
        return self.rows.from_standard(Z, K, gram, cross, local.filled), log_ratio

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
        noise, feature = self.model.units[0], float(self.model.feature_var)
        log_ratio = propose_recoding(X, Z, K, gram, cross, weight, noise, feature, pair, table, rng)
        return self.rows.from_standard(Z, K, gram, cross, local.filled), log_ratio

    def propose_exclusive_or(
        self, data: GaussianData, local: GaussianRows, weight: Array, pair: Array
    ) -> tuple[GaussianRows, float]:
        X, Z, gram, cross = self._arrays(data, local, 0)
        K = local.z.shape[1]
        log_ratio = propose_exclusive_or(
            X, Z, K, gram, cross, weight, self.model.units[0], float(self.model.feature_var), pair
        )
        return self.rows.from_standard(Z, K, gram, cross, local.filled), log_ratio

    def _arrays(self, data: GaussianData, local: GaussianRows, extra: int) -> tuple[Array, Array, Array, Array]:
        X, _, _ = data.standardised(self.model.offset, self.model.units[1], local.filled)
        return X, *with_room(local.z, local.gram, self.rows.standard_cross(local), local.z.shape[1] + extra)

    def likeness(self, local: GaussianRows) -> Array:
        """|cosine| of the features' posterior means, (n_features, n_features)."""
        mean = np.linalg.solve(self._precision(local), self.rows.standard_cross(local))
        mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-300)
        return np.abs(mean @ mean.T)

    def _precision(self, local: GaussianRows) -> Array:
        return local.gram + self.model.units[0] / self.model.feature_var * np.eye(len(local.gram))

    def bit_entropy(self, data: GaussianData, local: GaussianRows, odds: RowOdds) -> float:
        """Sum over all bits of the entropy of their single-site conditional, in nats.

        The conditionals are those of a sweep; columns that one row alone has, and missing cells, are taken as they are.
        Cells with bounds count, too, features at their mean: how well a state foretells them shows there alone.
        """
        if local.z.shape[1] == 0:
            return self.rows.cell_entropy(data, local)
        X, _, square = data.standardised(self.model.offset, self.model.units[1], local.filled)
        P = np.linalg.inv(self._precision(local))
        counts, (log_odds, _) = np.diag(local.gram).astype(np.int64), odds.table()
        # by the number of other owners; out of range where no row is on, or none is off
        odds_on, odds_off = log_odds[np.maximum(counts - 1, 0)], log_odds[np.minimum(counts, len(log_odds) - 1)]
        mean = P @ self.rows.standard_cross(local)
        noise = self.model.units[0]
        bits = collapsed_entropy(X, square, np.ascontiguousarray(local.z), P, mean, odds_on, odds_off, noise)
        return float(bits + self.rows.cell_entropy(data, local))
