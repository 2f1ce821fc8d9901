"""The sweeps of a linear-Gaussian model with its features drawn beside Z."""

import numpy as np

from thali.core.observation import Engine
from thali.core.odds import RowOdds, one_kind
from thali.kernels.bits.conditional_rows import conditional_sweep
from thali.kernels.bits.importance_rows import importance_sweep
from thali.kernels.bits.weighted_rows import weighted_sweep
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.room import room_for
from thali.observations.gaussian.rows import BitRows, GaussianRows

Array = np.ndarray


class ConditionalGaussian(Engine):
    """ConditionalRows, ImportanceRows, SliceRows and GroupedRows of a model whose codes are bits."""

    model: GaussianModel

    def __init__(self, model: GaussianModel) -> None:
        super().__init__(model)
        self.rows = BitRows(model)

    def conditional_sweep(
        self, rng: np.random.Generator, data: GaussianData, local: GaussianRows, odds: RowOdds
    ) -> GaussianRows:
        log_odds, new_rate = odds.table()
        noise, scale = self.model.units
        X, _, _ = data.standardised(self.model.offset, scale, local.filled)
        K = local.z.shape[1]
        feature_var = float(self.model.feature_var)
        A = self.rows.drawn_features(rng, local)
        Z, A, counts = _with_room(local.z, A, K + (0 if new_rate == 0 else 8 + K // 4))
        row, pending = 0, -1
        while row < data.n_rows:
            K, row, pending = conditional_sweep(
                X, data.free_start, data.free_dim, Z, K, A, counts,
                log_odds, new_rate, noise, feature_var, row, pending, rng,
            )  # fmt: skip
            if row < data.n_rows:
                Z, A, counts = _with_room(Z[:, :K], A[:K], room_for(K + pending, data.n_rows, data.n_dims, new_rate))
        filled = data.take_filled(self.model.offset, scale, local.filled)
        return self.rows.redraw_cells(rng, data, self.rows.rows(data, Z[:, :K], filled))

    def importance_sweep(
        self,
        rng: np.random.Generator,
        data: GaussianData,
        local: GaussianRows,
        odds: RowOdds,
        n_candidates: int,
    ) -> GaussianRows:
        log_odds, new_rate = odds.table()
        noise, scale = self.model.units
        X, _, _ = data.standardised(self.model.offset, scale, local.filled)
        K = local.z.shape[1]
        Z, A, counts = _with_room(
            local.z, self.rows.drawn_features(rng, local), K + (0 if new_rate == 0 else 8 + K // 4)
        )
        K, Z, _, _ = importance_sweep(
            X, data.free_start, data.free_dim, Z, K, A, counts,
            log_odds, new_rate, noise, float(self.model.feature_var), n_candidates, rng,
        )  # fmt: skip
        if local.z.shape[1] < K:
            room_for(K, data.n_rows, data.n_dims, new_rate)
        filled = data.take_filled(self.model.offset, scale, local.filled)
        return self.rows.redraw_cells(rng, data, self.rows.rows(data, Z[:, :K], filled))

    def weighted_sweep(
        self,
        rng: np.random.Generator,
        data: GaussianData,
        local: GaussianRows,
        used: Array,
        unused: Array,
        level: float = 0.0,
    ) -> GaussianRows:
        return self.grouped_sweep(rng, data, local, *one_kind(data.n_rows, used, unused), level)[0]

    def grouped_sweep(
        self,
        rng: np.random.Generator,
        data: GaussianData,
        local: GaussianRows,
        chances: Array,
        kinds: Array,
        sizes: Array,
        level: float = 0.0,
    ) -> tuple[GaussianRows, Array]:
        noise, scale = self.model.units
        X, _, _ = data.standardised(self.model.offset, scale, local.filled)
        A = self.rows.drawn_features(rng, local)
        n_unused = len(sizes) - len(A)
        fresh = np.sqrt(self.model.feature_var) * rng.standard_normal((n_unused, data.n_dims))
        Z = np.hstack([local.z, np.zeros((data.n_rows, n_unused), np.uint8)])
        A = np.vstack([A, fresh])
        weighted_sweep(X, data.free_start, data.free_dim, Z, A, chances, kinds, sizes, level, noise, rng)
        filled = data.take_filled(self.model.offset, scale, local.filled)
        kept: Array = np.asarray(Z.any(axis=0))
        return self.rows.redraw_cells(rng, data, self.rows.rows(data, Z[:, kept], filled)), kept


def _with_room(Z: Array, A: Array, room: int) -> tuple[Array, Array, Array]:
    """Copies with `room` columns, and the number of ones in each."""
    K = Z.shape[1]
    wide, features, counts = np.zeros((len(Z), room), np.uint8), np.zeros((room, A.shape[1])), np.zeros(room, np.int64)
    wide[:, :K], features[:K], counts[:K] = Z, A, Z.sum(axis=0)
    return wide, features, counts
