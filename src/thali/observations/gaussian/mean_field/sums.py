"""The factor of the features of a Gaussian model X = offset + V A + noise, the sums over rows that it depends on, and
what rows need of it."""

from typing import Any, NamedTuple

import numpy as np

from thali.core.distributions import NormalOffset
from thali.core.protocols.engines.mean_field import Family
from thali.core.registry import stored
from thali.kernels.bits.mean_field_rows import lacking_grams
from thali.numerics.threads import in_spans
from thali.observations.gaussian.row_data import RowData

Array = np.ndarray

_LEAST_WORK = 3_000_000  # multiplications of a thread: with fewer it takes longer to wake it


@stored("GaussianFeatures")
class GaussianFeatures(NamedTuple):
    """q(A_d) = N(mean_d, noise_var_d cov_d); a learned offset, less its prior's centre, is the last row."""

    family: Family
    observation: Any  # concrete; its offset is the posterior mean
    mean: Array  # (n_columns, n_dims)
    cov: Array  # (1 or n_dims, n_columns, n_columns), in units of the noise
    counts: Array  # (n_features,) of the rows that q was fitted to

    @property
    def n_features(self) -> int:
        return len(self.counts)

    @property
    def noise(self) -> Array:
        """Noise variance of each dim."""
        return np.broadcast_to(np.asarray(self.observation.noise_var, dtype=float), self.mean.shape[1])


@stored("GaussianSums")
class GaussianSums(NamedTuple):
    """Sums over rows. V has a last column of ones, so that totals of codes and of cells and row counts are in them."""

    counts: Array  # (n_features,) expected numbers of rows
    gram: Array  # (n_features + 1, n_features + 1) E[V'V]
    cross: Array  # (n_features + 1, n_dims) E[V]'X over observed cells
    lacking: Array  # (n_dims, as gram) E[V'V] of the rows that lack a dim; (1, 1, 1) of zeros if none does
    square: Array  # (n_dims,)
    entropy: float  # E[log p(weights of rows) - log q(rows)]

    def of_dims(self, n_columns: int) -> Array:
        """E[V'V] over the rows that observe a dim, without the ones if there are `n_columns`: (1 or n_dims, ...)."""
        return (self.gram[None] - self.lacking)[:, :n_columns, :n_columns]

    @property
    def n_observed(self) -> Array:
        """Observed cells of each dim."""
        return np.broadcast_to(self.gram[-1, -1] - self.lacking[:, -1, -1], len(self.square))


def gaussian_sums(
    data: RowData,
    counts: Array,
    gram: Array,
    cross: Array,
    codes: Array,
    squares: Array,
    entropy: float,
    n_threads: int | None = None,
) -> GaussianSums:
    """From E[V'V] and E[V]'X of the features, E[V] and E[V^2] (n_rows, n_features)."""
    K = len(counts)
    totals = counts if codes is squares else codes.sum(axis=0, dtype=float)
    full = np.empty((K + 1, K + 1))
    full[:K, :K], full[K, :K], full[:K, K], full[K, K] = gram, totals, totals, data.n_rows
    lacking = np.zeros((1, 1, 1))
    if data.any_missing:
        lacking = np.empty((data.n_dims, K + 1, K + 1))
        starts, rows = data.lacking

        def work(dims: slice) -> None:
            lacking_grams(codes, squares, starts[dims.start : dims.stop + 1], rows, lacking[dims])

        in_spans(work, data.n_dims, 1, max(_LEAST_WORK * data.n_dims // (len(rows) * (K + 1) ** 2), 1), n_threads)
    return GaussianSums(counts, full, np.vstack([cross, data.total]), lacking, data.square, entropy)


def prior_precision(spec: Any, concrete: Any, n_features: int) -> Array:
    """Of each column's features, in units of the noise; a learned offset is the last."""
    ridge = np.full(n_features, concrete.units[0] / float(concrete.feature_var))
    return np.append(ridge, 1.0 / spec.offset.spread) if isinstance(spec.offset, NormalOffset) else ridge


class Evidence(NamedTuple):
    """What a row's update needs of q: its bits have log density b'v - v' forms v / 2 + const, b = features x."""

    features: Array  # (n_features, n_dims) mean / noise variance
    forms: Array  # (n_columns, n_columns) E[A A'] / noise variance, summed over all dims; an offset's column is last
    of_dims: Array  # (n_dims, n_columns, n_columns) the same of each dim, for rows that lack some; none if no row does


def evidence(q: GaussianFeatures, *, any_missing: bool) -> Evidence:
    scaled = q.mean / q.noise
    n_dims = q.mean.shape[1]
    # eq: own.expected-forms
    forms = scaled @ q.mean.T + (n_dims if len(q.cov) == 1 else 1) * q.cov.sum(axis=0)
    of_dims = np.einsum("kd,ld->dkl", scaled, q.mean) + q.cov if any_missing else forms[:0, None]
    return Evidence(*map(np.ascontiguousarray, (scaled[: q.n_features], forms, of_dims)))


def error_parts(q: GaussianFeatures, statistics: GaussianSums) -> tuple[Array, Array]:
    """E|x_d - V A_d|^2 over the observed cells of each dim: (at the mean of A, what its covariance adds / noise)."""
    n_columns = len(q.mean)
    gram = statistics.of_dims(n_columns)
    fitted = gram[0] @ q.mean if len(gram) == 1 else np.einsum("dkl,ld->kd", gram, q.mean)
    # eq: DV09.expected-error
    left = statistics.square + np.einsum("kd,kd->d", q.mean, fitted - 2.0 * statistics.cross[:n_columns])
    spread = np.einsum("dkl,dkl->d", *np.broadcast_arrays(gram, q.cov))
    return np.maximum(left, 0.0), np.broadcast_to(spread, q.mean.shape[1])
