"""The sweep of a linear-Gaussian model with features and weights drawn beside Z, on several threads.

Given both, rows are independent, except that with infinitely many features a column in use must keep an owner. So the
rows are split into two halves at random. While one is updated, the bits of columns that have an owner in the other are
free; columns whose owners, two or more, all lie in this half stay as they are; columns that one row alone has are drawn
anew. What a column is cannot change meanwhile, so that every row of the half is drawn from its conditional.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from thali.core.observation import Engine
from thali.kernels.bits.parallel_rows import BLOCK
from thali.kernels.bits.parallel_sweep import (
    CHUNK,
    FAILED,
    FULL,
    N_BORN,
    N_COLUMNS,
    N_KEPT,
    N_SHARED,
    PHASE,
    sweep_rows,
)
from thali.numerics.threads import together
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.room import room_for
from thali.observations.gaussian.rows import BitRows, GaussianRows

Array = np.ndarray

_LEAST_ROWS = 16 * BLOCK  # for a thread: with fewer it takes longer to wake it than to draw them


class ParallelGaussian(Engine):
    """ParallelRows of a model whose codes are bits."""

    model: GaussianModel

    def parallel_sweep(
        self,
        rng: np.random.Generator,
        data: GaussianData,
        local: GaussianRows,
        draw_weights: Callable[[Array], Array],
        new_rate: float,
        n_threads: int | None = None,
    ) -> GaussianRows:
        n_rows, K = local.z.shape
        rows = BitRows(self.model)
        features, counts = rows.drawn_features(rng, local), np.diag(local.gram).astype(np.int64)
        keys = rng.integers(2**64, size=2, dtype=np.uint64)
        room = K if new_rate == 0 else 8 + K + K // 4
        weights = draw_weights(np.concatenate([counts, np.ones(room - K, np.int64)]))
        X = data.seen(local.filled)
        while True:
            shared, arrays, results = self._sweep_arrays(data, X, local, counts, features, weights, new_rate, keys)
            together(partial(_sweep_with_others, shared, arrays), n_rows // _LEAST_ROWS, n_threads)
            if shared[PHASE] >= FAILED:
                raise MemoryError("There was not enough memory to draw the rows. Use fewer threads, or fewer rows.")
            if shared[PHASE] < FULL:
                kept, grams, crosses, free = results
                filled = data.with_free(free, local.filled)
                J = int(shared[N_KEPT])
                gram, cross = np.sum(grams[:, :J, :J], axis=0), np.sum(crosses[:, :J], axis=0)
                local = GaussianRows(kept[: n_rows * J].reshape(n_rows, J), gram, cross, filled)
                return rows.redraw_cells(rng, data, local)
            # once more from the beginning, with the same draws: they depend on the keys only
            room = room_for(int(shared[N_COLUMNS] + shared[N_BORN]), n_rows, data.n_dims, new_rate)
            weights = np.concatenate([weights, draw_weights(np.ones(room - len(weights), np.int64))])

    def _sweep_arrays(
        self, data: GaussianData, X: Array, local: GaussianRows, counts: Array, features: Array, weights: Array,
        new_rate: float, keys: Array,
    ) -> tuple[Array, tuple[Any, ...], tuple[Array, ...]]:  # fmt: skip
        """(what threads share, arguments of `sweep_rows`, those that get the results), with room for the weights."""
        (n_rows, n_dims), K, room = X.shape, len(features), len(weights)
        noise, scale = self.model.units
        offset = np.zeros(n_dims) if self.model.offset is None else np.array(self.model.offset, dtype=float)
        scale = np.ones(n_dims) if scale is None else scale
        with np.errstate(divide="ignore"):  # a weight that rounds to 0 or 1
            odds = np.log(weights) - np.log1p(-weights)
        A, free, kept = np.empty((room, n_dims)), np.empty(len(data.free_dim)), np.empty(n_rows * room, np.uint8)
        A[:K] = features
        shared = np.zeros(N_SHARED, np.int64)
        shared[N_COLUMNS] = K
        n_chunks = -(-n_rows // CHUNK)
        grams, crosses = np.empty((n_chunks, room, room)), np.empty((n_chunks, room, n_dims))
        Z, born, born_rows = np.empty((n_rows, room), np.uint8), np.empty((room, n_dims)), np.empty(room, np.int64)
        part_owners, owners = np.empty((-(-n_rows // (2 * BLOCK)), room), np.int64), np.empty((2, room), np.int64)
        arguments = (
            X, offset, scale, data.free_start, data.free_dim, free, np.ascontiguousarray(local.z), counts,
            A, odds, new_rate, noise, float(self.model.feature_var), keys, shared, Z, part_owners, owners, born,
            born_rows, kept, grams, crosses,
        )  # fmt: skip
        return shared, arguments, (kept, grams, crosses, free)


def _sweep_with_others(shared: Array, arguments: tuple[Any, ...], is_last: bool) -> None:
    try:
        sweep_rows(*arguments, is_last)
    except BaseException:
        shared[PHASE] = FAILED  # nobody waits for this thread
        raise
