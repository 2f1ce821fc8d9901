"""Sweeps of sparse factor analysis: every row's loadings, then precisions and noise."""

from typing import TYPE_CHECKING

import numpy as np

from thali.core.observation import Engine
from thali.core.odds import RowOdds
from thali.kernels.weights.sparse_rows import sparse_sweep
from thali.observations.gaussian.variances import draw_truncated_inverse_gamma
from thali.observations.sparse.data import LoadingData
from thali.observations.sparse.factors import residual_squares
from thali.observations.sparse.rows import LoadingRows

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.sparse_factors import SparseFactorAnalysis

Array = np.ndarray
Generator = np.random.Generator

_MOVES = 3  # births and deaths of a row's own factors, in a sweep


class SparseSweeps(Engine):
    """ConditionalRows and ProposedRows of sparse factor analysis."""

    model: "SparseFactorAnalysis"

    def conditional_sweep(self, rng: Generator, data: LoadingData, local: LoadingRows, odds: RowOdds) -> LoadingRows:
        return self._sweep(rng, data, local, odds, _MOVES, (0.0, 0.0))

    def proposed_sweep(
        self, rng: Generator, data: LoadingData, local: LoadingRows, odds: RowOdds, boost: float, single: float
    ) -> LoadingRows:
        return self._sweep(rng, data, local, odds, 0, (boost, single))

    def _sweep(
        self,
        rng: Generator,
        data: LoadingData,
        local: LoadingRows,
        odds: RowOdds,
        n_moves: int,
        proposal: tuple[float, float],
    ) -> LoadingRows:
        model = self.model
        log_odds, new_rate = odds.table()
        Y = data.without(model.owned_offset())
        F = local.factors
        levels = model.laws.draw_levels(rng, local.precisions, local.noise)
        loading_law, noise_law = model.laws.precision(levels[0]), model.laws.noise(levels[1])
        noise = local.noise.copy()
        grows = bool(np.isneginf(log_odds[0]))
        V, precisions = local.v, local.precisions
        K, row = V.shape[1], 0
        spare = max(n_moves, int(16 + 8 * proposal[0] * new_rate)) if grows else 0
        while row < data.n_rows:
            V, F, precisions, counts = _with_room(V[:, :K], F[:K], precisions[:K], K + 2 * spare + K // 4 * grows)
            K, row = sparse_sweep(
                Y, data.start, data.cells, V, K, F, precisions, counts, Y @ F.T, np.asarray(log_odds, dtype=float),
                max(float(new_rate), 1e-300), noise, loading_law, noise_law, n_moves, proposal, row, rng,
            )  # fmt: skip
        V, F, precisions = np.ascontiguousarray(V[:, :K]), np.ascontiguousarray(F[:K]), precisions[:K].copy()
        shape, rate = loading_law
        if shape > 0:
            on = (V != 0).sum(axis=0)
            # eq: NSFA.precision
            precisions = rng.standard_gamma(shape + 0.5 * on) / (rate + 0.5 * np.sum(V * V, axis=0))
        if model.laws.learns_noise:
            noise = draw_noise(rng, data, noise_law, residual_squares(data, Y, V, F))
        return LoadingRows((V != 0).astype(np.uint8), V, F, precisions, noise, levels)


def draw_noise(rng: Generator, data: LoadingData, law: tuple[float, float, float], squares: Array) -> Array:
    """Noise variances given what is left of each row."""
    shape, rate, floor = law
    # eq: NSFA.noise
    return draw_truncated_inverse_gamma(
        rng, shape + 0.5 * data.n_seen, rate + 0.5 * squares, np.full(data.n_rows, floor)
    )


def _with_room(V: Array, F: Array, precisions: Array, room: int) -> tuple[Array, Array, Array, Array]:
    """Copies with room for so many factors, and the number of rows that have each."""
    K, room = V.shape[1], max(room, 1)
    wide, factors, values = np.zeros((len(V), room)), np.zeros((room, F.shape[1])), np.ones(room)
    wide[:, :K], factors[:K], values[:K] = V, F, precisions
    return wide, factors, values, (wide != 0).sum(axis=0)
