"""The sweep of a linear-Gaussian model with its features integrated out."""

import numpy as np

from thali.core.observation import Engine
from thali.core.odds import RowOdds
from thali.kernels.bits.collapsed_rows import collapsed_sweep
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.room import room_for, with_room
from thali.observations.gaussian.rows import BitRows, GaussianRows

Array = np.ndarray


class CollapsedGaussian(Engine):
    """CollapsedRows of a model whose codes are bits."""

    model: GaussianModel

    def sweep(
        self,
        rng: np.random.Generator,
        data: GaussianData,
        local: GaussianRows,
        odds: RowOdds,
        group: int = 1,
        keys: Array | None = None,
    ) -> tuple[GaussianRows, dict[str, float]]:
        model, rows = self.model, BitRows(self.model)
        log_odds, new_rate = odds.table()
        noise, scale = model.units
        offset = model.offset
        X, products, square = data.standardised(offset, scale, local.filled)
        K = local.z.shape[1]
        room = K + (0 if new_rate == 0 else 8 + K // 4)
        order = rng.random(room) if keys is None else np.concatenate([keys, np.zeros(room - K)])
        Z, gram, cross = with_room(local.z, local.gram, rows.standard_cross(local), room)
        row, pending, changed, rebuilt = 0, -1, 0, 0
        while row < data.n_rows:
            K, row, pending, n_changed, n_rebuilt, drift = collapsed_sweep(
                X, square, products, data.free_start, data.free_dim, Z, K, gram, cross,
                log_odds, new_rate, noise, float(model.feature_var), group, order, row, pending, rng,
            )  # fmt: skip
            changed, rebuilt = changed + n_changed, rebuilt + n_rebuilt
            if row < data.n_rows:
                room = room_for(K + pending, data.n_rows, data.n_dims, new_rate)
                Z, gram, cross = with_room(Z[:, :K], gram[:K, :K], cross[:K], room)
                order = np.concatenate([order[:K], np.zeros(room - K)])
        filled = data.take_filled(offset, scale, local.filled)
        info = {"changed": changed / data.n_rows, "rebuilt": rebuilt / data.n_rows, "drift": drift}
        return rows.redraw_cells(rng, data, rows.from_standard(Z, K, gram, cross, filled)), info
