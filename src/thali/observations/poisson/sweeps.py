"""Sweeps of a Poisson-gamma model: the features, then every row with its allocation summed out, then the allocation."""

from typing import TYPE_CHECKING

import numpy as np

from thali.core.observation import Engine
from thali.core.odds import RowOdds, one_kind
from thali.errors import InvalidParameterError
from thali.kernels.counts.poisson_sweeps import poisson_slice_sweep, poisson_sweep
from thali.observations.poisson.data import CountData
from thali.observations.poisson.rows import MOST, CountRows, drawn_features

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.poisson_gamma import PoissonGamma

Array = np.ndarray
Generator = np.random.Generator


class PoissonSweeps(Engine):
    """ConditionalRows, SliceRows and GroupedRows of a Poisson-gamma model."""

    model: "PoissonGamma"

    def conditional_sweep(self, rng: Generator, data: CountData, local: CountRows, odds: RowOdds) -> CountRows:
        log_odds, new_rate = odds.table()
        K, row, log_parts = local.v.shape[1], 0, 0.0
        arrays = local.v, drawn_features(rng, self.model, data, local), np.zeros((K, data.n_dims))
        law = float(self.model.weight_shape), float(self.model.weight_rate), float(self.model.feature_shape)
        while row < len(data):
            room = K if np.isfinite(log_odds[0]) else K + 8 + K // 4
            if room > MOST:
                raise InvalidParameterError(f"Got more than {MOST} features. Lower the mass, or raise weight_shape.")
            V, A, allocated, members = _with_room(*arrays, room)
            K, row, part = poisson_sweep(
                *data.arrays, V, K, A, members, allocated, np.asarray(log_odds, dtype=float), float(new_rate),
                *law, self.model.features_rate(data.n_dims), row, rng,
            )  # fmt: skip
            log_parts += part
            arrays = V[:, :K], A[:K], allocated[:K]
        keep = np.ones(K, bool) if np.isfinite(log_odds[0]) else (arrays[0] > 0).any(axis=0)
        V = np.ascontiguousarray(arrays[0][:, keep])
        return CountRows((V > 0).astype(np.uint8), V, np.ascontiguousarray(arrays[2][keep]), log_parts)

    def weighted_sweep(
        self,
        rng: Generator,
        data: CountData,
        local: CountRows,
        used: Array,
        unused: Array,
        level: float = 0.0,
    ) -> CountRows:
        return self.grouped_sweep(rng, data, local, *one_kind(len(data), used, unused), level)[0]

    def grouped_sweep(
        self,
        rng: Generator,
        data: CountData,
        local: CountRows,
        chances: Array,
        kinds: Array,
        sizes: Array,
        level: float = 0.0,
    ) -> tuple[CountRows, Array]:
        n_unused = len(sizes) - local.v.shape[1]
        fresh = self.model.draw_features(rng, n_unused, data.n_dims)
        A = np.vstack([drawn_features(rng, self.model, data, local), fresh])
        V = np.hstack([local.v, np.zeros((len(data), n_unused))])
        allocated = np.zeros_like(A)
        log_parts = poisson_slice_sweep(
            *data.arrays, V, A, chances, kinds, sizes, level, allocated, float(self.model.weight_shape),
            float(self.model.weight_rate), rng,
        )  # fmt: skip
        keep: Array = np.asarray(V.any(axis=0))
        V = np.ascontiguousarray(V[:, keep])
        allocated = np.ascontiguousarray(allocated[keep])
        return CountRows((V > 0).astype(np.uint8), V, allocated, log_parts), keep


def _with_room(V: Array, A: Array, allocated: Array, room: int) -> tuple[Array, Array, Array, Array]:
    """Copies with room for so many features, and the number of rows that have each."""
    K, n_dims = A.shape
    wide, features, made = np.zeros((len(V), room)), np.zeros((room, n_dims)), np.zeros((room, n_dims))
    wide[:, :K], features[:K], made[:K] = V, A, allocated
    return wide, features, made, (wide > 0).sum(axis=0)
