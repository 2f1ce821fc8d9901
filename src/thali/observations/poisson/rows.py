"""The row variables that chains of a Poisson-gamma model keep: codes, and the allocation of counts to features.

Given the allocation, features and weights are conjugate and can be integrated out.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import gammaln, xlogy

from thali.core.observation import Engine
from thali.core.registry import stored
from thali.errors import InvalidDataError
from thali.kernels.counts.poisson_rows import allocate
from thali.observations.poisson.codebook import CountCodebook, of_gamma
from thali.observations.poisson.data import CountData

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.poisson_gamma import PoissonGamma

Array = np.ndarray
Generator = np.random.Generator

MOST = 2_000  # features: more of them take minutes a sweep

_ROUNDS = 10  # in which counts are allocated to the most probable features


@stored("CountRows")
class CountRows(NamedTuple):
    """Row variables, and what was allocated."""

    z: Array  # (n_rows, n_features) uint8
    v: Array  # z * w
    allocated: Array  # (n_features, n_dims) counts that each feature made
    log_parts: float  # sum of part log v - log part! over the parts of all counts


class PoissonChain(Engine):
    """ChainRows of a Poisson-gamma model."""

    model: "PoissonGamma"

    def prepare(self, X: Any) -> CountData:
        return CountData.of(X)

    def place(self, data: CountData, codes: Array, X: Any) -> CountRows:
        """Counts are allocated as by the most probable features given the codes."""
        V = np.ascontiguousarray(codes, dtype=float)
        A = np.ones((data.n_dims, V.shape[1]))
        exposed = exposure(data, V)
        for _ in range(_ROUNDS):
            allocated = np.zeros_like(A)
            if allocate(data.start, data.dims, data.counts, A, V, allocated) == -math.inf:
                raise InvalidDataError("codes must give a feature to every row that has counts. Got a row without one.")
            parts = allocated * A
            A = np.maximum(
                (self.model.feature_shape + parts) / (self.model.features_rate(data.n_dims) + exposed.T), 1e-12
            )
        return CountRows((V > 0).astype(np.uint8), V, np.ascontiguousarray(parts.T), _log_parts(data, V, A))

    def completed(self, data: CountData, local: CountRows) -> Array:
        """Zero at missing cells: chains do not keep them."""
        return np.nan_to_num(data.dense())

    def check(self, data: CountData, local: CountRows) -> None:
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
        if not whole or (local.allocated > possible + slack).any() or local.z.shape[1] > MOST:
            raise ValueError("its allocation is not one of these counts")

    def codes(self, local: CountRows) -> Array:
        return local.v

    def log_evidence(self, data: CountData, local: CountRows) -> float:
        """log p(X, its allocation, W | Z), features integrated out."""
        shape, rate = features_law(self.model, data, local)
        a, b = self.model.feature_shape, self.model.features_rate(data.n_dims)
        # eq: own.counts-evidence
        features = gammaln(shape) - gammaln(a) + a * math.log(b) - shape * np.log(rate)
        return float(log_codes(self.model, local.v) + local.log_parts + features.sum())

    def resample(self, rng: Generator, spec: "PoissonGamma", data: CountData, local: CountRows) -> "PoissonGamma":
        if "weight_rate" not in spec.learned:
            return self.model
        prior = spec.learned["weight_rate"]
        # eq: own.counts-rate-conditional
        shape = prior.shape + self.model.weight_shape * np.count_nonzero(local.z)
        return self.model.updated(weight_rate=float(rng.standard_gamma(shape) / (prior.rate + local.v.sum())))

    def codebook(self, data: CountData, local: CountRows) -> CountCodebook:
        used = local.z.any(axis=0)
        shape, rate = features_law(self.model, data, local)
        v = local.v[:, used]
        counts = local.z[:, used].sum(axis=0, dtype=np.int64)
        return of_gamma(shape[used], rate[used], counts, v[v > 0].astype(np.float32))


def exposure(data: CountData, V: Array) -> Array:
    """Sum over rows of the codes, (n_features, 1), or of those that see each dim where cells are missing."""
    total = V.sum(axis=0)[:, None]
    return total - data.at_missing(V) if data.any_missing else total


def log_codes(model: "PoissonGamma", codes: Array) -> float:
    """log p(W | Z)."""
    w = codes[codes > 0]
    a, b = model.weight_shape, model.weight_rate
    return float(w.size * (a * math.log(b) - gammaln(a)) + (a - 1) * np.log(w).sum() - b * w.sum())


def features_law(model: "PoissonGamma", data: CountData, local: CountRows) -> tuple[Array, Array]:
    """Shape and rate of the features given the allocation."""
    # eq: own.counts-features
    shape = model.feature_shape + local.allocated
    return shape, model.features_rate(data.n_dims) + exposure(data, local.v)


def drawn_features(rng: Generator, model: "PoissonGamma", data: CountData, local: CountRows) -> Array:
    """Features given the allocation."""
    shape, rate = features_law(model, data, local)
    return np.maximum(rng.standard_gamma(shape) / rate, 1e-300)


def _log_parts(data: CountData, V: Array, A: Array) -> float:
    """Sum of part log v - log part! for parts in proportion to v A, A (n_dims, n_features)."""
    total = 0.0
    for n in range(len(data)):
        some = slice(data.start[n], data.start[n + 1])
        own = V[n] * A[data.dims[some]]
        parts = data.counts[some, None] * own / own.sum(axis=1, keepdims=True)
        total += float(np.sum(xlogy(parts, V[n]) - gammaln(parts + 1.0)))
    return total
