"""The factors of a mean field of sparse factor analysis, the sums over owners of loadings, and the bound.

q(z, w) of an owner and a factor: q(w | z=1) = N(mean, var), and there is no w where z = 0. q(F_c) = N(mean_c, cov_c),
one covariance for all cells where none is missing. Precisions of loadings and of noise, and the levels of both, are
gamma variables. All are in the units of the dims; Y is counted from the centre of the offset. Where rows own the
loadings, a learned offset is a factor more, which every row has with the loading 1; where dims do, it is the dim's own.
"""

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy.special import digamma, gammaln

from thali.core.distributions import Gamma, NormalOffset, PerFeature
from thali.core.protocols.engines.mean_field import Family
from thali.core.registry import stored
from thali.kernels.capped_gamma import capped_gammas
from thali.observations.sparse.data import LoadingData

if TYPE_CHECKING:  # which builds on this folder
    from thali.observations.sparse_factors import SparseFactorAnalysis

Array = np.ndarray

_LOG_2PI = math.log(2 * math.pi)


class OwnerData(LoadingData):
    """Rows of Y that can be split, and the logarithm of the volume of their units."""

    def __init__(self, Y: Array, log_units: Array) -> None:
        super().__init__(Y)
        self.log_units = log_units

    @cached_property
    def sums(self) -> Array:
        return self.Y.sum(axis=1)

    @cached_property
    def powers(self) -> Array:
        return np.einsum("nc,nc->n", self.Y, self.Y)

    @cached_property
    def lacking(self) -> tuple[Array, Array]:
        """Missing cells by their number: rows[start[c]:start[c+1]] lack cell c."""
        start = np.concatenate([[0], np.cumsum(self.missing.sum(axis=0))]).astype(np.int64)
        return start, np.nonzero(self.missing.T)[1].astype(np.int64)

    def part(self, start: int, stop: int) -> Self:
        Y = self.Y[start:stop]
        Y = np.where(self.missing[start:stop], np.nan, Y) if self.any_missing else Y
        return type(self)(Y, self.log_units[start:stop])


@stored("LoadingFactors")
class LoadingFactors(NamedTuple):
    """Of the owners of loadings."""

    z_prob: Array  # (n_rows, n_features)
    mean: Array  # E[w | z=1]
    var: Array
    noise_shape: Array  # (n_rows,) of q(1 / noise variance), known beforehand; shape / rate where that is fixed
    noise_rate: Array
    offset_mean: Array  # (n_rows,) less the centre; zero unless owners have one that is learned
    offset_var: Array

    @property
    def codes(self) -> Array:
        return self.z_prob * self.mean

    @property
    def squares(self) -> Array:
        """E[z w^2]."""
        return self.z_prob * (self.mean**2 + self.var)


@stored("ScoreFactors")
class ScoreFactors(NamedTuple):
    """Of the values of factors, the precisions of their loadings and the levels."""

    family: Family
    observation: Any  # concrete; its offset is the posterior mean where rows own the loadings, else the centre
    mean: Array  # (n_columns, n_cells): the factors, and an offset of the cells if they have one
    cov: Array  # (1 or n_cells, n_columns, n_columns)
    counts: Array  # (n_features,) of the owners that q was fitted to
    precision_shape: Array  # (n_features,); shape / rate is the precision where it is fixed
    precision_rate: Array
    levels: Array  # (2, 2) shape and rate of those of the precisions and of the noise
    heat: float  # by which loadings find the noise to be larger

    @property
    def n_features(self) -> int:
        return len(self.counts)


@stored("LoadingSums")
class LoadingSums(NamedTuple):
    """Sums over owners; t = E[1 / noise variance], V has a last column of ones."""

    counts: Array  # (n_features,) expected numbers of owners
    squares: Array  # (n_features,) E[z w^2]
    entropy: Array  # (n_features,) of q(z, w)
    gram: Array  # (n_features + 1, n_features + 1) t E[V'V]
    cross: Array  # (n_features + 1, n_cells) t E[V]'(Y - offset)
    lacking: Array  # (n_cells, as gram) of the owners that lack a cell; (1, 1, 1) of zeros if none does
    square: float  # t E|Y - offset|^2
    n_rows: float
    terms: float  # of the bound, that are sums of terms of one owner each

    def of_cells(self, n_columns: int) -> Array:
        """t E[V'V] over the owners that see a cell, without the ones if there are `n_columns`: (1 or n_cells, ...)."""
        return (self.gram[None] - self.lacking)[:, :n_columns, :n_columns]


class Expected(NamedTuple):
    """Of a positive variable: E x and E log x."""

    mean: Any
    log: Any


def gamma_expected(shape: Any, rate: Any) -> Expected:
    return Expected(shape / rate, digamma(shape) - np.log(rate))


def gamma_entropy(shape: Any, rate: Any) -> Any:
    return shape - np.log(rate) + gammaln(shape) + (1.0 - shape) * digamma(shape)


def owned_offset_spread(model: "SparseFactorAnalysis") -> float:
    """The prior variance of an offset that belongs to the owners of loadings; 0 if they have none to learn."""
    return float(model.offset.spread) if isinstance(model.offset, NormalOffset) and model.owners == "dims" else 0.0


def cells_precision(model: "SparseFactorAnalysis", n_features: int) -> Array:
    """Prior precision of the values of all columns in a cell."""
    ridge = np.ones(n_features)
    if isinstance(model.offset, NormalOffset) and model.owners == "rows":
        ridge = np.append(ridge, 1.0 / model.offset.spread)
    return ridge


def expected_precisions(model: "SparseFactorAnalysis", q: ScoreFactors) -> Expected:
    """Of the loadings of each factor."""
    if isinstance(model.loading_var, PerFeature):
        return gamma_expected(q.precision_shape, q.precision_rate)
    return Expected(q.precision_shape / q.precision_rate, np.log(q.precision_shape / q.precision_rate))


def expected_noise(model: "SparseFactorAnalysis", local: LoadingFactors) -> tuple[Array, Array]:
    """(E tau, terms of the bound) of each owner, tau = 1 / noise variance.

    q(tau) has the shape a + n / 2, so that E log tau is the same in E log p and in E log q, and what is left of both is
    the logarithm of its normalising constant and rate E tau.
    """
    if not model.laws.learns_noise:
        t = local.noise_shape / local.noise_rate
        return t, np.log(t)
    floor = model.laws.noise_floor
    mean, log_mass = np.empty((2, len(local.noise_shape)))
    capped_gammas(local.noise_shape, local.noise_rate, 1.0 / floor if floor > 0 else math.inf, mean, log_mass)
    return mean, log_mass + local.noise_rate * mean


def expected_level(law: Any, factor: Array) -> Expected:
    """Of the level of a law `PerFeature` or `PerDim`."""
    if isinstance(law.level, Gamma):
        return gamma_expected(*factor)
    return Expected(float(law.level), math.log(law.level))


def level_means(model: "SparseFactorAnalysis", q: ScoreFactors) -> Array:
    """Of precisions and of noise; 1 for what is fixed."""
    means = np.ones(2)
    if model.laws.learns_loadings:
        means[0] = expected_level(model.loading_var, q.levels[0]).mean
    if model.laws.learns_noise:
        means[1] = expected_level(model.noise_var, q.levels[1]).mean
    return means


def level_factor(law: Any, n: float, total: float, old: Array) -> Array:
    """(shape, rate) of the level of n precisions with this expected sum; as it was, if it is no variable."""
    if not isinstance(law.level, Gamma):
        return old
    # eq: NSFA.mean-field-level
    return np.array([law.level.shape + law.shape * n, law.level.rate + law.shape * total])


def owner_terms(model: "SparseFactorAnalysis", data: OwnerData, local: LoadingFactors, log_noise: Array) -> float:
    """The terms of the bound that belong to one owner each, and do not depend on q of factors and levels."""
    total = -np.sum(0.5 * data.n_seen * _LOG_2PI + data.log_units)
    spread = owned_offset_spread(model)
    if spread > 0:
        squares = local.offset_mean**2 + local.offset_var
        total += 0.5 * np.sum(1.0 + np.log(local.offset_var / spread) - squares / spread)
    if model.laws.learns_noise:
        a = float(model.noise_var.shape)
        return float(total + data.n_rows * (a * math.log(a) - math.lgamma(a)) + np.sum(log_noise))
    return float(total + 0.5 * np.sum(data.n_seen * log_noise))


def bound(model: "SparseFactorAnalysis", q: ScoreFactors, sums: LoadingSums) -> float:
    """E_q[log p(X, loadings, factors, precisions, levels, noise, offset | Z) - log q], that of q(z) included."""
    n_columns, n_cells = q.mean.shape
    gram = sums.of_cells(n_columns)
    n_each = n_cells // len(q.cov)  # cells that share a covariance
    fitted = gram[0] @ q.mean if len(gram) == 1 else np.einsum("ckl,lc->kc", gram, q.mean)
    spread = np.einsum("ckl,ckl->", *np.broadcast_arrays(gram, q.cov)) * (n_each if len(gram) == 1 else 1)
    # eq: NSFA.mean-field-bound
    total = sums.terms + sums.entropy.sum()
    total -= 0.5 * (sums.square + np.sum(q.mean * (fitted - 2.0 * sums.cross[:n_columns])) + spread)
    ridge = cells_precision(model, q.n_features)
    own = np.einsum("ckk->k", q.cov) * n_each
    total -= 0.5 * ridge @ (np.sum(q.mean**2, axis=1) + own)
    total += 0.5 * (n_cells * (np.log(ridge).sum() + n_columns) + n_each * np.linalg.slogdet(q.cov)[1].sum())
    precision = expected_precisions(model, q)
    total += 0.5 * np.sum(sums.counts * (precision.log - _LOG_2PI) - precision.mean * sums.squares)
    if isinstance(model.loading_var, PerFeature):
        total += _log_precisions(model.loading_var, q.levels[0], len(sums.counts), precision)
        total += np.sum(gamma_entropy(q.precision_shape, q.precision_rate)) + _level_terms(
            model.loading_var, q.levels[0]
        )
    if model.laws.learns_noise:
        level = expected_level(model.noise_var, q.levels[1])
        total += model.noise_var.shape * (sums.n_rows * level.log - level.mean * sums.gram[-1, -1])
        total += _level_terms(model.noise_var, q.levels[1])
    return float(total)


def _log_precisions(law: PerFeature, factor: Array, n: int, precision: Expected) -> float:
    """E log p(precisions | level)."""
    a, level = float(law.shape), expected_level(law, factor)
    total = n * (a * (math.log(a) + level.log) - math.lgamma(a))
    return float(total + np.sum((a - 1.0) * precision.log - a * level.mean * precision.mean))


def _level_terms(law: Any, factor: Array) -> float:
    """E log p(level) - log q(level)."""
    if not isinstance(law.level, Gamma):
        return 0.0
    level, (shape, rate) = gamma_expected(*factor), (law.level.shape, law.level.rate)
    prior = shape * math.log(rate) - math.lgamma(shape) + (shape - 1.0) * level.log - rate * level.mean
    return float(prior + gamma_entropy(*factor))
