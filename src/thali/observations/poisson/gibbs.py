"""Sampling of a Poisson-gamma model: the allocation of counts to features is kept beside the codes.

Given it, features and weights are conjugate and can be integrated out; a sweep draws the features, then every row with
its allocation summed out, then the allocation.
"""

import math
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import gammaln, xlogy

from thali.core.binary import Array
from thali.core.protocols.observation import Family
from thali.core.registry import stored
from thali.errors import InvalidDataError, InvalidParameterError
from thali.kernels.counts.poisson_rows import allocate
from thali.kernels.counts.poisson_sweeps import poisson_slice_sweep, poisson_sweep
from thali.observations.poisson.data import CountData

_ROUNDS = 30  # of a start
_STARTING = 12  # features of a start, if the prior does not say how many there are
_MOST = 2_000  # features: more of them take minutes a sweep
_TERMS = 2**22  # of an exact marginal


@stored("CountRows")
class CountRows(NamedTuple):
    """Row variables, and what was allocated."""

    z: Array  # (n_rows, n_features) uint8
    v: Array  # z * w
    allocated: Array  # (n_features, n_dims) counts that each feature made
    log_parts: float  # sum of part log v - log part! over the parts of all counts


class PoissonGibbs:
    """`FeatureRows` without predictions, and `ConditionalRows`."""

    feature_shape: float
    weight_shape: float
    weight_rate: Any
    leak: float
    learned: dict[str, Any]
    require_concrete: Any
    features_rate: Any
    replace: Any
    updated: Any
    draw_features: Any
    draw_codes: Any
    check_data: Any

    def prepare(self, X: Any) -> CountData:
        return CountData.of(X)

    def as_matrix(self, data: CountData) -> tuple[Array, bool]:
        return data.dense(), False

    # ---- where to begin

    def start_codes(self, rng: np.random.Generator, data: CountData, n_features: int | None) -> Array:
        """Codes of a Bayesian matrix factorisation (mean field without bits), whose weak ones are zero."""
        K = min(_STARTING, len(data)) if n_features is None else n_features
        model = self.replace(leak=1.0)
        q = model.init_features(data, K, Family())
        local = model.init_rows(data, rng.random((len(data), K)) ** 2)
        for i in range(_ROUNDS):
            local, sums = model.update_rows(data, q, local, np.zeros(K), int(i > 0))
            q = model.update_features(q, sums, learn=i > _ROUNDS // 3)
        codes = model.expected_codes(local)
        made = local.w_shape - self.weight_shape
        return np.where(made > 0.5, codes, 0.0)

    def start(self, data: CountData, codes: Array, matrix: Array | None = None) -> tuple[Self, CountRows]:
        """Signs of codes do not count. A row with counts has some feature: the one most rows have, if none is given."""
        if self.leak == 1.0:
            raise InvalidParameterError("PoissonGamma(leak=1) has no bits to sample. Leave leak out, or use MeanField.")
        codes = np.abs(np.asarray(codes, dtype=float))
        bare = (codes.sum(axis=1) == 0) & (np.diff(data.start) > 0)
        if bare.any():
            codes = codes if codes.shape[1] else np.zeros((len(data), 1))
            usual = codes[codes > 0].mean() if codes.any() else 1.0
            codes[bare, np.argmax((codes > 0).sum(axis=0))] = usual
        current = self
        if "weight_rate" in self.learned:
            w = codes[codes > 0]
            current = self.replace(weight_rate=float(self.weight_shape * max(w.size, 1) / max(w.sum(), 1e-9)))
        return current, self.place(data, codes, matrix)

    def place(self, data: CountData, codes: Array, X: Any) -> CountRows:
        """Counts are allocated as by the most probable features given the codes."""
        V = np.ascontiguousarray(codes, dtype=float)
        A = np.ones((data.n_dims, V.shape[1]))
        exposure = self.exposure(data, V)
        for _ in range(_ROUNDS // 3):
            allocated = np.zeros_like(A)
            if allocate(data.start, data.dims, data.counts, A, V, allocated) == -math.inf:
                raise InvalidDataError("codes must give a feature to every row that has counts. Got a row without one.")
            parts = allocated * A
            A = np.maximum((self.feature_shape + parts) / (self.features_rate(data.n_dims) + exposure.T), 1e-12)
        return CountRows((V > 0).astype(np.uint8), V, np.ascontiguousarray(parts.T), _log_parts(data, V, A))

    def simulate_local(
        self, rng: np.random.Generator, Z: Array, n_dims: int, missing: Array | None = None
    ) -> tuple[Array, CountRows]:
        """(X, local) from the model: parts of counts are Poisson, and X is their sum, zero at missing cells."""
        V, A = self.draw_codes(rng, Z), self.draw_features(rng, Z.shape[1], n_dims)
        parts = rng.poisson(V[:, :, None] * A)
        if missing is not None:
            parts = parts * ~missing[:, None]
        X = parts.sum(axis=1).astype(float)
        log_parts = float(np.sum(xlogy(parts, V[:, :, None]) - gammaln(parts + 1.0)))
        return X, CountRows(np.asarray(Z, dtype=np.uint8), V, parts.sum(axis=0).astype(float), log_parts)

    def exposure(self, data: CountData, V: Array) -> Array:
        """Sum over rows of the codes, (n_features, 1), or of those that see each dim where cells are missing."""
        total = V.sum(axis=0)[:, None]
        return total - data.at_missing(V) if data.any_missing else total

    def completed(self, data: CountData, local: CountRows) -> Array:
        """Zero at missing cells: chains do not keep them."""
        return np.nan_to_num(data.dense())

    def check_rows(self, data: CountData, local: CountRows) -> None:
        """Weights where the bits are on, and all counts allocated, each to features that its row has."""
        if not isinstance(local, CountRows) or not isinstance(local.log_parts, float):
            raise ValueError("its row variables are those of another model")
        shapes = {"v": (local.v, local.z.shape), "allocated": (local.allocated, (local.z.shape[1], data.n_dims))}
        for name, (values, shape) in shapes.items():
            wanted = values.shape == shape and values.dtype == np.float64
            if not wanted or not np.isfinite(values).all() or (values < 0).any():
                raise ValueError(f"{name} does not fit its bits")
        counts = data.sparse()
        possible = np.asarray((counts.T @ local.z.astype(float)).T)  # of counts in rows that have the feature
        slack = 1e-6 * (1.0 + possible)
        whole = np.allclose(local.allocated.sum(axis=0), counts.sum(axis=0), rtol=1e-6, atol=1e-6)
        has_some = local.z.any(axis=1) | (np.diff(data.start) == 0)
        if not np.array_equal(local.z, local.v > 0) or not has_some.all() or not math.isfinite(local.log_parts):
            raise ValueError("its weights are not those of its bits")
        if not whole or (local.allocated > possible + slack).any() or local.z.shape[1] > _MOST:
            raise ValueError("its allocation is not one of these counts")

    # ---- codes

    def codes_of(self, local: CountRows) -> Array:
        return local.v

    def codes(self, Z: Array, codebook: dict[str, Array]) -> Array:
        codes = np.zeros(Z.shape)
        codes[Z != 0] = codebook["weights"]
        return codes

    def log_codes(self, codes: Array) -> float:
        """log p(W | Z)."""
        w = codes[codes > 0]
        a, b = self.weight_shape, self.weight_rate
        return float(w.size * (a * math.log(b) - gammaln(a)) + (a - 1) * np.log(w).sum() - b * w.sum())

    # ---- densities

    def features_law(self, data: CountData, local: CountRows) -> tuple[Array, Array]:
        """Shape and rate of the features given the allocation."""
        # eq: own.counts-features
        shape = self.feature_shape + local.allocated
        return shape, self.features_rate(data.n_dims) + self.exposure(data, local.v)

    def log_evidence(self, data: CountData, local: CountRows) -> float:
        """log p(X, its allocation, W | Z), features integrated out."""
        shape, rate = self.features_law(data, local)
        a, b = self.feature_shape, self.features_rate(data.n_dims)
        # eq: own.counts-evidence
        features = gammaln(shape) - gammaln(a) + a * math.log(b) - shape * np.log(rate)
        return float(self.log_codes(local.v) + local.log_parts + features.sum())

    def log_marginal(self, X: Any, codes: Array) -> float:
        """log p(X | codes), features integrated out, by all ways to allocate the counts: for tiny data only."""
        data = self.prepare(self.check_data(X))
        X, V = data.dense(), np.asarray(codes, dtype=float)
        most = int(np.nansum(X, axis=0).max(initial=0.0))
        if (most + 1.0) ** V.shape[1] > _TERMS:
            raise InvalidDataError(
                f"log_marginal sums over all allocations: too many for {most} counts a dim and {V.shape[1]} features."
            )
        a, b = self.feature_shape, self.features_rate(data.n_dims)
        powers = np.indices((most + 1,) * V.shape[1]).reshape(V.shape[1], (most + 1) ** V.shape[1])
        total = -data.log_factorials
        for x in X.T:
            seen = ~np.isnan(x)
            # eq: own.counts-marginal
            moments = gammaln(a + powers) - gammaln(a) - (a + powers) * np.log(b + V[seen].sum(axis=0))[:, None]
            with np.errstate(divide="ignore"):
                weights = np.log(_expanded(V[seen], x[seen], most)).ravel()
            total += float(np.logaddexp.reduce(weights + moments.sum(axis=0) + V.shape[1] * a * math.log(b)))
        return total

    # ---- sweeps

    def resample(self, rng: np.random.Generator, current: Self, data: CountData, local: CountRows) -> Self:
        if "weight_rate" not in self.learned:
            return current
        prior = self.learned["weight_rate"]
        # eq: own.counts-rate-conditional
        shape = prior.shape + self.weight_shape * np.count_nonzero(local.z)
        return current.updated(weight_rate=float(rng.standard_gamma(shape) / (prior.rate + local.v.sum())))

    def drawn_features(self, rng: np.random.Generator, data: CountData, local: CountRows) -> Array:
        shape, rate = self.features_law(data, local)
        return np.maximum(rng.standard_gamma(shape) / rate, 1e-300)

    def conditional_sweep(
        self, rng: np.random.Generator, data: CountData, local: CountRows, log_odds: Array, new_rate: float
    ) -> CountRows:
        K, row, log_parts = local.v.shape[1], 0, 0.0
        arrays = local.v, self.drawn_features(rng, data, local), np.zeros((K, data.n_dims))
        law = float(self.weight_shape), float(self.weight_rate), float(self.feature_shape)
        while row < len(data):
            room = K if np.isfinite(log_odds[0]) else K + 8 + K // 4
            if room > _MOST:
                raise InvalidParameterError(f"Got more than {_MOST} features. Lower the mass, or raise weight_shape.")
            V, A, allocated, members = _with_room(*arrays, room)
            K, row, part = poisson_sweep(
                *data.arrays, V, K, A, members, allocated, np.asarray(log_odds, dtype=float), float(new_rate),
                *law, self.features_rate(data.n_dims), row, rng,
            )  # fmt: skip
            log_parts += part
            arrays = V[:, :K], A[:K], allocated[:K]
        keep = np.ones(K, bool) if np.isfinite(log_odds[0]) else (arrays[0] > 0).any(axis=0)
        V = np.ascontiguousarray(arrays[0][:, keep])
        return CountRows((V > 0).astype(np.uint8), V, np.ascontiguousarray(arrays[2][keep]), log_parts)

    def weighted_sweep(
        self,
        rng: np.random.Generator,
        data: CountData,
        local: CountRows,
        used: Array,
        unused: Array,
        level: float = 0.0,
    ) -> CountRows:
        fresh = self.draw_features(rng, len(unused), data.n_dims)
        A = np.vstack([self.drawn_features(rng, data, local), fresh])
        V = np.hstack([local.v, np.zeros((len(data), len(unused)))])
        allocated = np.zeros_like(A)
        log_parts = poisson_slice_sweep(
            *data.arrays, V, A, np.concatenate([used, unused]), level, allocated, float(self.weight_shape),
            float(self.weight_rate), rng,
        )  # fmt: skip
        keep = V.any(axis=0)
        V = np.ascontiguousarray(V[:, keep])
        return CountRows((V > 0).astype(np.uint8), V, np.ascontiguousarray(allocated[keep]), log_parts)


def _with_room(V: Array, A: Array, allocated: Array, room: int) -> tuple[Array, Array, Array, Array]:
    """Copies with room for so many features, and the number of rows that have each."""
    K, n_dims = A.shape
    wide, features, made = np.zeros((len(V), room)), np.zeros((room, n_dims)), np.zeros((room, n_dims))
    wide[:, :K], features[:K], made[:K] = V, A, allocated
    return wide, features, made, (wide > 0).sum(axis=0)


def _log_parts(data: CountData, V: Array, A: Array) -> float:
    """Sum of part log v - log part! for parts in proportion to v A, A (n_dims, n_features)."""
    total = 0.0
    for n in range(len(data)):
        some = slice(data.start[n], data.start[n + 1])
        own = V[n] * A[data.dims[some]]
        parts = data.counts[some, None] * own / own.sum(axis=1, keepdims=True)
        total += float(np.sum(xlogy(parts, V[n]) - gammaln(parts + 1.0)))
    return total


def _expanded(V: Array, x: Array, most: int) -> Array:
    """Coefficients of prod_n (sum_k v_nk A_k)^x_n, an axis for the power of each A_k."""
    terms = np.zeros((most + 1,) * V.shape[1])
    terms[(0,) * V.shape[1]] = 1.0
    for v, count in zip(V, x.astype(int), strict=True):
        for _ in range(count):
            new = np.zeros_like(terms)
            for k, value in enumerate(v):
                new += value * np.roll(terms, 1, axis=k)  # the highest power is never left behind
            terms = new
    return terms
