"""Exact posteriors on tiny data, by enumeration of all binary matrices (finite priors) or classes (infinite ones)."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from thali.core.binary import n_non_empty
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows, MarginalRows
from thali.errors import InvalidParameterError
from thali.inference.calibration.noise_floor import calibrate
from thali.kernels.bits.replicates import sweep_replicates
from thali.testing.zscores import z_scores

Array = np.ndarray


class ExactPosterior(NamedTuple):
    """Every matrix with its posterior probability. `log_evidence` leaves out matrices with more columns than listed."""

    matrices: list[Array]
    probability: Array
    log_evidence: float

    def p_k(self, length: int) -> Array:
        """P(number of features in use = 0, 1, ..., length - 1)."""
        used = [n_non_empty(Z) for Z in self.matrices]
        return np.bincount(used, self.probability, minlength=length)[:length]

    def shared(self) -> Array:
        """E[ZZ']: expected number of features that two rows share."""
        return sum(p * (Z.astype(float) @ Z.T) for p, Z in zip(self.probability, self.matrices, strict=True))

    def draw(self, rng: np.random.Generator, size: int) -> list[Array]:
        return [self.matrices[i] for i in rng.choice(len(self.matrices), size=size, p=self.probability)]


def all_matrices(n_rows: int, n_features: int) -> Iterator[Array]:
    """Every labelled binary matrix."""
    for bits in itertools.product((0, 1), repeat=n_rows * n_features):
        yield np.array(bits, dtype=np.uint8).reshape(n_rows, n_features)


def all_classes(n_rows: int, max_features: int) -> Iterator[Array]:
    """One matrix of each class (multiset of non-empty columns) with at most max_features columns."""
    histories = [h for h in itertools.product((0, 1), repeat=n_rows) if any(h)]
    for n_features in range(max_features + 1):
        for columns in itertools.combinations_with_replacement(histories, n_features):
            yield np.array(columns, dtype=np.uint8).reshape(n_features, n_rows).T.copy()


def enumerate_posterior(model: Model, X: Array, *, max_features: int = 8) -> ExactPosterior:
    """The posterior of Z given X for a concrete model. A finite prior is enumerated whole.

    For an infinite prior choose max_features so large that more columns have negligible probability.
    """
    n_features = getattr(model.prior, "n_features", None)
    matrices = list(all_classes(len(X), max_features) if n_features is None else all_matrices(len(X), n_features))
    log_joint = np.array(
        [model.prior.log_prob(Z) + model.observation.engine(MarginalRows).log_marginal(X, Z) for Z in matrices]
    )
    top = float(log_joint.max())
    weight = np.exp(log_joint - top)
    total = float(weight.sum())
    return ExactPosterior(matrices, weight / total, top + math.log(total))


class Comparison(NamedTuple):
    """A sampler's P(K = 0, 1, ...) and E[ZZ'] beside the exact ones, and their Monte Carlo errors."""

    names: list[str]
    estimates: Array  # (n_chains, n_statistics)
    expected: Array
    kept: Array  # a K that the chains hardly visit, or hardly leave, has no normal error: False

    @property
    def error(self) -> Array:
        return self.estimates.std(axis=0, ddof=1) / math.sqrt(len(self.estimates))

    @property
    def scores(self) -> dict[str, float]:
        """z-scores by name, of the statistics that are kept."""
        z = z_scores(self.estimates, self.expected)
        return {name: float(score) for name, score, keep in zip(self.names, z, self.kept, strict=True) if keep}


def exact_statistics(exact: ExactPosterior, n_rows: int, max_features: int) -> Array:
    """P(K = 0), ..., P(K = max_features) and the lower triangle of E[ZZ']."""
    return np.concatenate([exact.p_k(max_features + 1), exact.shared()[np.tril_indices(n_rows)]])


def compare_with_exact(
    model: Model, inference: Any, X: Array, rng: np.random.Generator, **settings: int
) -> dict[str, float]:
    """z-scores of P(K = 0, 1, ...) and E[ZZ'] of a sampler against enumeration; settings as of `against_exact`."""
    return against_exact(model, inference, X, rng, **settings).scores


def against_exact(
    model: Model,
    inference: Any,
    X: Array,
    rng: np.random.Generator,
    *,
    n_chains: int = 40,
    n_steps: int = 1000,
    n_warmup: int = 50,
    max_features: int = 8,
) -> Comparison:
    """A sampler beside enumeration.

    The chains are independent, so their spread is the Monte Carlo error whatever the autocorrelation. Both sides are
    given that K <= max_features, so the cut is exact.
    """
    exact = enumerate_posterior(model, X, max_features=max_features)
    length = max_features + 1
    adapted = calibrate(model, X)
    n_rows = len(X)
    pairs = np.tril_indices(n_rows)
    estimates = np.zeros((n_chains, length + len(pairs[0])))
    for chain, stream in enumerate(rng.spawn(n_chains)):
        data = adapted.observation.engine(ChainRows).prepare(X)
        state = inference.init(stream, adapted, data, n_rows)
        n_listed = 0
        for step in range(n_warmup + n_steps):
            state, info = inference.step(stream, state, adapted, data)
            if step >= n_warmup and info.n_features < length:  # both sides given that K is in the list
                dense = state.local.z.astype(float)
                n_listed += 1
                estimates[chain, info.n_features] += 1.0
                estimates[chain, length:] += (dense @ dense.T)[pairs]
        estimates[chain] /= n_listed
    expected = exact_statistics(exact, n_rows, max_features)
    names = [f"P(K={k})" for k in range(length)] + [f"shared({i},{j})" for i, j in zip(*pairs, strict=True)]
    often = np.minimum(expected[:length], 1.0 - expected[:length]) * n_chains * n_steps >= 40
    return Comparison(names, estimates, expected, np.concatenate([often, np.ones(len(pairs[0]), dtype=bool)]))


def sweep_against_exact(
    model: Model,
    X: Array,
    rng: np.random.Generator,
    *,
    n_replicates: int = 200_000,
    max_features: int = 8,
    capacity: int = 24,
    group: int = 1,
    sweep: Callable[..., int] = sweep_replicates,
) -> dict[str, float]:
    """z-scores of P(K) and E[ZZ'] after one compiled sweep that starts from exact posterior draws.

    The draws are independent and their columns stand in a fixed order, so that even a scan order that depends on the
    bits shows. `model` is concrete with one noise level and no offset.
    """
    exact = enumerate_posterior(model, X, max_features=max_features)
    n_rows = len(X)
    Z, _ = one_sweep(exact, model, X, rng, n_replicates, capacity, group, sweep)
    used = Z.any(axis=1).sum(axis=1)
    length = max_features + 1
    p_k = exact.p_k(length)
    pairs = np.tril_indices(n_rows)
    estimates = np.hstack([used[:, None] == np.arange(length), (Z @ Z.transpose(0, 2, 1))[:, *pairs]]).astype(float)
    scores = z_scores(estimates, np.concatenate([p_k, exact.shared()[pairs]]))
    names = [f"P(K={k})" for k in range(length)] + [f"shared({i},{j})" for i, j in zip(*pairs, strict=True)]
    # near the largest K of the list the sweep leaves it in one direction only; rare K have no normal error
    keep = [p * n_replicates >= 40 for p in p_k[:-1]] + [False] + [True] * len(pairs[0])
    return {name: float(z) for name, z, ok in zip(names, scores, keep, strict=True) if ok}


def one_sweep(
    exact: ExactPosterior,
    model: Model,
    X: Array,
    rng: np.random.Generator,
    n_replicates: int,
    capacity: int,
    group: int,
    sweep: Callable[..., int],
) -> tuple[Array, Array]:
    """(Z after one sweep, Z before) of independent replicates that start from exact posterior draws."""
    observation, n_rows = model.observation, len(X)
    picked = np.sort(rng.choice(len(exact.matrices), size=n_replicates, p=exact.probability))
    Z = np.zeros((n_replicates, n_rows, capacity), dtype=np.uint8)
    K = np.zeros(n_replicates, dtype=np.int64)
    filled = np.repeat(np.where(np.isnan(X), 0.0, X)[None], n_replicates, axis=0)
    for index, first in zip(*np.unique(picked, return_index=True), strict=True):
        matrix = exact.matrices[index]
        last = first + int(np.searchsorted(picked[first:], index, side="right"))
        K[first:last] = matrix.shape[1]
        Z[first:last, :, : matrix.shape[1]] = matrix
        filled[first:last] = _fill(filled[first:last], X, matrix, observation, rng)
    before = Z.copy()
    missing = np.isnan(X)
    start = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64)
    dims = np.nonzero(missing)[1].astype(np.int64)
    table, rate = model.prior.log_odds(n_rows), model.prior.new_rate(n_rows)
    noise, feature = float(observation.noise_var), float(observation.feature_var)
    if sweep(filled, start, dims, Z, K, table, rate, noise, feature, group, rng):
        raise InvalidParameterError(f"capacity = {capacity} was too small. Double it.")
    return Z, before


def _fill(copies: Array, X: Array, Z: Array, observation: Any, rng: np.random.Generator) -> Array:
    """Missing cells drawn from their exact conditional given Z and the observed cells, features integrated out."""
    dense = Z.astype(float)
    cov = observation.noise_var * np.eye(len(X)) + observation.feature_var * dense @ dense.T
    for d in range(X.shape[1]):
        hole = np.isnan(X[:, d])
        if hole.any():
            gain = np.linalg.solve(cov[np.ix_(~hole, ~hole)], cov[np.ix_(~hole, hole)]).T
            spread = np.linalg.cholesky(cov[np.ix_(hole, hole)] - gain @ cov[np.ix_(~hole, hole)])
            noise = rng.standard_normal((len(copies), int(hole.sum()))) @ spread.T
            copies[:, hole, d] = gain @ X[~hole, d] + noise
    return copies
