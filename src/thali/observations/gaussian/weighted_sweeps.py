"""The sweeps of models with weights, features drawn beside the codes, and the entropy that scores their modes."""

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import entr, expit

from thali.core.binary import column_counts
from thali.core.observation import Engine
from thali.core.odds import RowOdds, one_kind
from thali.kernels.weights.scaled_rows import scaled_sweep
from thali.kernels.weights.scaled_slices import scaled_slice_sweep
from thali.kernels.weights.swaps import like_pairs, swap_features
from thali.numerics.slice_sampling import slice_sample
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.room import room_for
from thali.observations.gaussian.weight_law import draw_scales
from thali.observations.gaussian.weighted_rows import WeightedChain, WeightedRows

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.gaussian.weighted import WeightedGaussian

Array = np.ndarray
Generator = np.random.Generator

_CANDIDATES = 8  # proposals for the features that a row alone has


class WeightedSweeps(Engine):
    """ConditionalRows, SliceRows, GroupedRows and BitEntropy of a model with weights."""

    model: "WeightedGaussian"

    def __init__(self, model: "WeightedGaussian") -> None:
        super().__init__(model)
        self.rows = WeightedChain(model)

    def conditional_sweep(self, rng: Generator, data: GaussianData, local: WeightedRows, odds: RowOdds) -> WeightedRows:
        model = self.model
        log_odds, new_rate = odds.table()
        noise, scale = model.units
        X, _, _ = data.standardised(model.offset, scale, local.filled)
        K = local.v.shape[1]
        most_own = 0 if np.isfinite(log_odds[0]) else int(16 + 8 * new_rate)
        room = K + most_own + (K // 4 + 8 if most_own else 0)
        A = self.rows.drawn_features(rng, local)
        V, A, counts, scales = _with_room(local.v, A, draw_scales(rng, model, local.v), room)
        ard = model.ard or 0.0
        rate = max(new_rate, 1e-300)  # a tiny mass may round to none
        row = 0
        while row < data.n_rows:
            K, row = scaled_sweep(
                X, data.free_start, data.free_dim, V, K, A, counts, scales, log_odds, rate, noise,
                float(model.feature_var), *model.law, ard, _CANDIDATES, most_own, row, rng,
            )  # fmt: skip
            if row < data.n_rows:
                room = room_for(K, data.n_rows, data.n_dims, new_rate) + most_own
                V, A, counts, scales = _with_room(V[:, :K], A[:K], scales[:K], room)
        swap_features(
            X, data.free_start, data.free_dim, V, A, counts, scales, like_pairs(A[:K]), log_odds,
            noise, *model.law, rng,
        )  # fmt: skip
        codes = V[:, :K] * self.stretch(rng, V[:, :K] / scales[:K], A[:K])
        local = self.rows.rows(data, codes, data.take_filled(model.offset, scale, local.filled))
        return self.rows.redraw_cells(rng, data, local)

    def stretch(self, rng: Generator, weights: Array, A: Array) -> Array:
        """Factors c_k by which weights grow and features shrink: (c w, a / c) fits as well, and by single draws the
        two would change sizes slowly (Liu & Sabatti 2000; A is in standardised units)."""
        rate, precision, _ = self.model.law
        n_on, n_dims = np.sum(weights != 0, axis=0), A.shape[1]
        first, second = rate * np.abs(weights).sum(axis=0), 0.5 * precision * np.sum(weights**2, axis=0)
        third = 0.5 * np.sum(A**2, axis=1) / self.model.feature_var
        factors = np.ones(len(A))
        for k in range(len(A)):

            def log_density(t: float, k: int = k) -> float:
                c = math.exp(t)
                # eq: own.stretch
                return (n_on[k] - n_dims) * t - c * first[k] - c * c * second[k] - third[k] / (c * c)

            factors[k] = math.exp(slice_sample(log_density, 0.0, rng))
        return factors

    def weighted_sweep(
        self,
        rng: Generator,
        data: GaussianData,
        local: WeightedRows,
        used: Array,
        unused: Array,
        level: float = 0.0,
    ) -> WeightedRows:
        return self.grouped_sweep(rng, data, local, *one_kind(data.n_rows, used, unused), level)[0]

    def grouped_sweep(
        self,
        rng: Generator,
        data: GaussianData,
        local: WeightedRows,
        chances: Array,
        kinds: Array,
        sizes: Array,
        level: float = 0.0,
    ) -> tuple[WeightedRows, Array]:
        model = self.model
        noise, scale = model.units
        X, _, _ = data.standardised(model.offset, scale, local.filled)
        n_unused = len(sizes) - local.v.shape[1]
        fresh = np.sqrt(model.feature_var) * rng.standard_normal((n_unused, data.n_dims))
        A = np.vstack([self.rows.drawn_features(rng, local), fresh])
        V = np.hstack([local.v, np.zeros((data.n_rows, n_unused))])
        slices, scales = (chances, kinds, sizes, level), draw_scales(rng, model, V)
        missing = data.free_start, data.free_dim
        scaled_slice_sweep(X, *missing, V, A, *slices, scales, noise, *model.law, rng)
        filled = data.take_filled(model.offset, scale, local.filled)
        kept: Array = np.asarray(V.any(axis=0))
        return self.rows.redraw_cells(rng, data, self.rows.rows(data, V[:, kept], filled)), kept

    def bit_entropy(self, data: GaussianData, local: WeightedRows, odds: RowOdds) -> float:
        """Sum of the entropies of each bit with its weight, given the rest and the features at their mean, in nats.

        A score of modes only, so Laplace weights count as normal ones of the same variance, and scales as 1.
        """
        model = self.model
        noise, scale = model.units
        X, _, _ = data.standardised(model.offset, scale, local.filled)
        P = np.linalg.inv(local.gram + noise / model.feature_var * np.eye(len(local.gram)))
        A = P @ self.rows.standard_cross(local)
        G = A @ A.T
        curve = np.diag(G) / noise + 1.0 / model.weight_var
        pull = (X @ A.T - local.v @ (G - np.diag(np.diag(G)))) / noise
        log_odds, _ = odds.table()
        prior = log_odds[column_counts(local.z) - local.z]
        own = ~np.isfinite(prior)  # features of one row stay, or cannot be had
        delta = np.where(own, 0.0, prior) + 0.5 * pull**2 / curve - 0.5 * np.log(model.weight_var * curve)
        p = np.where(own, local.z, expit(delta))
        weights = p * 0.5 * np.log(2 * np.pi * np.e / curve)
        return float(np.sum(entr(p) + entr(1.0 - p) + weights))


def _with_room(V: Array, A: Array, scales: Array, room: int) -> tuple[Array, Array, Array, Array]:
    """Copies with `room` columns, the number of non-zeros in each, and their scales."""
    K, room = V.shape[1], max(room, 1)
    wide, features = np.zeros((len(V), room)), np.zeros((room, A.shape[1]))
    counts, wide_scales = np.zeros(room, np.int64), np.ones(room)
    wide[:, :K], features[:K], counts[:K], wide_scales[:K] = V, A, (V != 0).sum(axis=0), scales
    return wide, features, counts, wide_scales
