"""X = offset + (Z * W) A + noise: features with a real weight in each row that has them.

The scale of a feature and of its weights cannot be told apart; the weights' variance is therefore fixed. Their signs
cannot either: of each feature, the value that is largest in size, in units of its dim's noise, is shown as positive.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import entr, expit, gammaln

from thali.core.binary import Array, column_counts
from thali.core.distributions import NormalOffset, PerDim
from thali.core.registry import stored
from thali.core.spec import hyper, positive, setting
from thali.errors import InvalidDataError
from thali.kernels.weights.scaled_rows import scaled_sweep
from thali.kernels.weights.scaled_slices import scaled_slice_sweep
from thali.kernels.weights.swaps import like_pairs, swap_features
from thali.numerics.slice_sampling import slice_sample
from thali.observations.encoded import Encoded
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.domains import ard_domain, noise_domain, offset_domain, weighted_floor_domain
from thali.observations.gaussian.encode_weighted import encode_weighted
from thali.observations.gaussian.factor_em import unit_squares
from thali.observations.gaussian.mean_field.weights import MeanFieldCodes
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.noise_floor import floor_below
from thali.observations.gaussian.odd_cells import odd_cells
from thali.observations.gaussian.origin import locate
from thali.observations.gaussian.uniqueness import uniqueness
from thali.rng import make_generator

_CANDIDATES = 8  # proposals for the features that a row alone has


@stored("WeightedRows")
class WeightedRows(NamedTuple):
    """Row variables of a model with weights, and the statistics that go with them."""

    z: Array  # (n_rows, n_features) uint8
    v: Array  # z * w
    gram: Array  # v'v
    cross: Array  # v'X in the data's units, missing cells filled
    filled: Array  # the missing cells, in row-major order


class WeightLaw(NamedTuple):
    """p(w) = exp(-rate |w| - precision w^2 / 2 - log_norm)."""

    rate: float
    precision: float
    log_norm: float


@dataclass(frozen=True, eq=False)
class WeightedGaussian(MeanFieldCodes, GaussianModel):
    """Subclasses say what the law of a weight is."""

    noise_var: Any = hyper(PerDim(), noise_domain)
    offset: Any = hyper(NormalOffset(), offset_domain)
    noise_floor: Any = setting("uniqueness", weighted_floor_domain)
    weight_var: float = setting(1.0, positive)
    ard: Any = setting(None, ard_domain)

    @property
    @abstractmethod
    def law(self) -> WeightLaw:
        """Of a weight that is on."""

    @abstractmethod
    def draw_weights(self, rng: np.random.Generator, size: Any) -> Array:
        """Weights from their prior."""

    # ---- units and the floor

    def adapt(self, X: Array) -> Self:
        """With one noise level per dim, each dim counts in its own unit, which odd cells do not set."""
        located: Self = locate(self, X)[0]
        near = located.from_origin(X)
        usual = np.where(odd_cells(near), np.nan, near)
        if self.scale is None:
            located = located.replace(scale=unit_squares(usual))
        adapted = super(WeightedGaussian, located).adapt(X)
        if not isinstance(self.noise_floor, str):
            return adapted
        adapted = adapted.replace(noise_floor=0.0)
        if "noise_var" not in self.learned:
            return adapted
        found = uniqueness(make_generator(0), usual)
        if isinstance(self.noise_var, PerDim):
            adapted = adapted.replace(noise_var=self.noise_var.by_dim(found.noise_var))
        return adapted.replace(noise_floor=np.minimum(floor_below(found) / adapted.scale, 0.999))

    def _with_scale(self, var: Array) -> Self:
        adapted = super()._with_scale(var)
        if not self.per_dim:
            return adapted
        noise = self.noise_var.by_dim(np.array(var)) if isinstance(self.noise_var, PerDim) else self.noise_var
        return adapted.replace(scale=np.array(var), noise_var=noise)

    def start_units(self, n_dims: int) -> Array | None:
        """By which starts divide the dims: their own units, if each dim has a noise level of its own."""
        return np.sqrt(np.broadcast_to(self.scale, n_dims)) if isinstance(self.noise_var, PerDim) else None

    # ---- codes are weights where the bits are on

    def check_codes(self, codes: Any) -> Array:
        codes = np.asarray(codes)
        if codes.ndim != 2 or codes.dtype.kind not in "buif" or not np.isfinite(codes).all():
            raise InvalidDataError(
                "codes must be a matrix (n_rows, n_features): weights, and 0 where a row lacks a feature. "
                f"Got shape {codes.shape} and dtype {codes.dtype}."
            )
        return codes.astype(float)

    def draw_codes(self, rng: np.random.Generator, Z: Array) -> Array:
        weights = Z * self.draw_weights(rng, np.shape(Z))
        return weights * self.draw_scales(rng, weights[..., :0, :])[..., None, :]

    # ---- automatic relevance: each feature has its own variance. That of its weights, in fact, since only the product
    # counts; it is drawn when it is needed and forgotten, so that it is not part of a chain's state.

    def _scale_law(self, codes: Array) -> tuple[Array, Array]:
        """Shape and rate of the inverse of each feature's (squared, for normal weights) scale, given its codes."""
        a, (rate, precision, _) = float(self.ard), self.law
        n_on = np.sum(codes != 0, axis=-2)
        if rate == 0:
            return a + 0.5 * n_on, a + 0.5 * precision * np.sum(codes**2, axis=-2)
        return a + n_on, a + rate * np.sum(np.abs(codes), axis=-2)

    def draw_scales(self, rng: np.random.Generator, codes: Array) -> Array:
        """Scales of the weights of each feature given its codes (..., n_rows, n_features): 1 without ARD."""
        if self.ard is None:
            return np.ones(codes.shape[:-2] + codes.shape[-1:])
        shape, rate = self._scale_law(codes)
        # eq: own.ard
        values = rate / rng.standard_gamma(shape)
        return np.sqrt(values) if self.law.rate == 0 else values

    def codes(self, Z: Array, codebook: dict[str, Array]) -> Array:
        codes = np.zeros(Z.shape)
        codes[Z != 0] = codebook["weights"]
        return codes

    def codes_of(self, local: WeightedRows) -> Array:
        return local.v

    def totals(self, local: WeightedRows) -> Array:
        return local.v.sum(axis=0)

    def rows(self, data: GaussianData, codes: Array, filled: Array) -> WeightedRows:
        V = np.ascontiguousarray(codes, dtype=float)
        return WeightedRows((V != 0).astype(np.uint8), V, *self.statistics(data, V, filled), filled)

    def log_codes(self, codes: Array) -> float:
        """log p(W | Z)."""
        w = codes[codes != 0]
        rate, precision, log_norm = self.law
        if self.ard is not None:
            shape, left = self._scale_law(codes)
            log_norm_of_scale = self.ard * np.log(self.ard) - gammaln(self.ard)
            # eq: own.ard-weights
            return float(np.sum(log_norm_of_scale + gammaln(shape) - shape * np.log(left)) - log_norm * w.size)
        return float(-rate * np.abs(w).sum() - 0.5 * precision * np.sum(w * w) - log_norm * w.size)

    def log_evidence(self, data: GaussianData, local: WeightedRows) -> float:
        """log p(X, W | Z), features integrated out and missing cells at their current values."""
        return super().log_evidence(data, local) + self.log_codes(local.v)

    # ---- ConditionalRows

    def conditional_sweep(
        self, rng: np.random.Generator, data: GaussianData, local: WeightedRows, log_odds: Array, new_rate: float
    ) -> WeightedRows:
        noise, scale = self.units
        X, _, _ = data.standardised(self.offset, scale, local.filled)
        K = local.v.shape[1]
        most_own = 0 if np.isfinite(log_odds[0]) else int(16 + 8 * new_rate)
        room = K + most_own + (K // 4 + 8 if most_own else 0)
        A = self.drawn_features(rng, local)
        V, A, counts, scales = _with_room(local.v, A, self.draw_scales(rng, local.v), room)
        ard = self.ard or 0.0
        rate = max(new_rate, 1e-300)  # a tiny mass may round to none
        row = 0
        while row < data.n_rows:
            K, row = scaled_sweep(
                X, data.missing_start, data.missing_dim, V, K, A, counts, scales, log_odds, rate, noise,
                float(self.feature_var), *self.law, ard, _CANDIDATES, most_own, row, rng,
            )  # fmt: skip
            if row < data.n_rows:
                room = self.room_for(K, data, new_rate) + most_own
                V, A, counts, scales = _with_room(V[:, :K], A[:K], scales[:K], room)
        swap_features(
            X, data.missing_start, data.missing_dim, V, A, counts, scales, like_pairs(A[:K]), log_odds,
            noise, *self.law, rng,
        )  # fmt: skip
        codes = V[:, :K] * self._stretch(rng, V[:, :K] / scales[:K], A[:K])
        return self.rows(data, codes, data.take_filled(self.offset, scale, local.filled))

    def _stretch(self, rng: np.random.Generator, weights: Array, A: Array) -> Array:
        """Factors c_k by which weights grow and features shrink: (c w, a / c) fits as well, and by single draws the
        two would change sizes slowly (Liu & Sabatti 2000; A is in standardised units)."""
        rate, precision, _ = self.law
        n_on, n_dims = np.sum(weights != 0, axis=0), A.shape[1]
        first, second = rate * np.abs(weights).sum(axis=0), 0.5 * precision * np.sum(weights**2, axis=0)
        third = 0.5 * np.sum(A**2, axis=1) / self.feature_var
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
        rng: np.random.Generator,
        data: GaussianData,
        local: WeightedRows,
        used: Array,
        unused: Array,
        level: float = 0.0,
    ) -> WeightedRows:
        noise, scale = self.units
        X, _, _ = data.standardised(self.offset, scale, local.filled)
        fresh = np.sqrt(self.feature_var) * rng.standard_normal((len(unused), data.n_dims))
        A = np.vstack([self.drawn_features(rng, local), fresh])
        V = np.hstack([local.v, np.zeros((data.n_rows, len(unused)))])
        chances, scales = np.concatenate([used, unused]), self.draw_scales(rng, V)
        missing = data.missing_start, data.missing_dim
        scaled_slice_sweep(X, *missing, V, A, chances, level, scales, noise, *self.law, rng)
        return self.rows(data, V[:, V.any(axis=0)], data.take_filled(self.offset, scale, local.filled))

    def bit_entropy(self, data: GaussianData, local: WeightedRows, log_odds: Array) -> float:
        """Sum of the entropies of each bit with its weight, given the rest and the features at their mean, in nats.

        A score of modes only, so Laplace weights count as normal ones of the same variance, and scales as 1.
        """
        noise, scale = self.units
        X, _, _ = data.standardised(self.offset, scale, local.filled)
        P = np.linalg.inv(local.gram + noise / self.feature_var * np.eye(len(local.gram)))
        A = P @ self.standard_cross(local)
        G = A @ A.T
        curve = np.diag(G) / noise + 1.0 / self.weight_var
        pull = (X @ A.T - local.v @ (G - np.diag(np.diag(G)))) / noise
        odds = log_odds[column_counts(local.z) - local.z]
        own = ~np.isfinite(odds)  # features of one row stay, or cannot be had
        delta = np.where(own, 0.0, odds) + 0.5 * pull**2 / curve - 0.5 * np.log(self.weight_var * curve)
        p = np.where(own, local.z, expit(delta))
        weights = p * 0.5 * np.log(2 * np.pi * np.e / curve)
        return float(np.sum(entr(p) + entr(1.0 - p) + weights))

    # ---- what is kept of a draw, and new rows

    def codebook(self, data: GaussianData, local: WeightedRows) -> dict[str, Array]:
        """Also `weights`, those that are on, row by row. Each feature's largest value by its noise is made positive."""
        book = super().codebook(data, local)
        features = book["features"]
        peak = np.abs(features / np.sqrt(self.noise_var)).argmax(axis=1)
        sign = np.where(features[np.arange(len(features)), peak] < 0, -1.0, 1.0)
        v = local.v[:, local.z.any(axis=0)] * sign
        return book | {
            "features": features * sign[:, None],
            "gram_inv": book["gram_inv"] * np.outer(sign, sign),
            "weights": v[v != 0].astype(np.float32),
            "scales": self._expected_scales(v),
        }

    def _expected_scales(self, codes: Array) -> Array:
        """The scale whose inverse (squared, for normal weights) is the expected one."""
        if self.ard is None:
            return np.ones(codes.shape[1])
        shape, rate = self._scale_law(codes)
        return np.sqrt(rate / shape) if self.law.rate == 0 else rate / shape

    def definite(self, rng: np.random.Generator, codebook: dict[str, Array]) -> dict[str, Array]:
        """Features drawn: their posterior covers what is not known of them when several draws are averaged."""
        features = codebook["features"]
        root = np.linalg.cholesky(codebook["gram_inv"]) if len(features) else np.zeros((0, 0))
        return codebook | {
            "features": features + np.sqrt(self.noise_var) * (root @ rng.standard_normal(features.shape)),
            "gram_inv": np.zeros_like(codebook["gram_inv"]),
        }

    def encode(self, X: Array, codebook: dict[str, Array], log_odds: Array, new_rate: float) -> Encoded:
        return encode_weighted(self, X, codebook["features"], codebook["scales"], log_odds, new_rate)

    def sample_codes(self, rng: np.random.Generator, encoded: Encoded, owner: Array) -> Array:
        """One of the draws of each of the rows `owner`."""
        assert encoded.draws is not None
        return encoded.draws[owner, rng.integers(encoded.draws.shape[1], size=len(owner))]

    def sample_rows(self, rng: np.random.Generator, codes: Array, codebook: dict[str, Array], n_unknown: Any) -> Array:
        counts = np.broadcast_to(np.asarray(n_unknown, dtype=np.int64), len(codes))
        return super().sample_rows(rng, codes, codebook, self.unknown_power(rng, counts))

    def unknown_power(self, rng: np.random.Generator, counts: Array) -> Array:
        """Sums of so many squared weights of features that no row has yet."""
        n = int(counts.sum())
        weights = self.draw_weights(rng, n) * self.draw_scales(rng, np.zeros((0, n)))
        return np.bincount(np.repeat(np.arange(len(counts)), counts), weights**2, len(counts))


def _with_room(V: Array, A: Array, scales: Array, room: int) -> tuple[Array, Array, Array, Array]:
    """Copies with `room` columns, the number of non-zeros in each, and their scales."""
    K, room = V.shape[1], max(room, 1)
    wide, features = np.zeros((len(V), room)), np.zeros((room, A.shape[1]))
    counts, wide_scales = np.zeros(room, np.int64), np.ones(room)
    wide[:, :K], features[:K], counts[:K], wide_scales[:K] = V, A, (V != 0).sum(axis=0), scales
    return wide, features, counts, wide_scales
