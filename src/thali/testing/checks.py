"""Contracts that every component must keep. Each check raises AssertionError with what was found."""

import copy
import itertools
import math
from typing import Any

import numpy as np
from scipy.special import pdtr

from thali.core.binary import history_counts, n_non_empty
from thali.core.model import Model, check_composition
from thali.core.observation import Observation
from thali.core.odds import RowOdds
from thali.core.protocols.engines.chains import AuxiliaryRows, ChainRows, CollapsedRows, ConditionalRows, MarginalRows
from thali.core.protocols.engines.predictions import Predictions
from thali.core.protocols.inference import Iterative
from thali.core.protocols.prior import Predictive, Prior
from thali.inference.calibration.noise_floor import calibrate
from thali.testing.enumerate import (
    Comparison,
    against_exact,
    all_classes,
    all_matrices,
    enumerate_posterior,
    exact_statistics,
)
from thali.testing.zscores import FALSE_ALARM, z_limit, z_scores

Array = np.ndarray


def check_prior(prior: Any, rng: np.random.Generator, *, n_rows: int = 3, n_draws: int = 20_000) -> None:
    """A concrete prior: simulate agrees with log_prob, and so does each capability; learned values are refused."""
    assert isinstance(prior, Prior), f"{type(prior).__name__} lacks methods of thali.core.protocols.prior"
    assert not prior.learned, "check_prior needs numbers for all hyperparameters"
    n_features = prior.n_features
    listed = list(all_classes(n_rows, 6) if n_features is None else all_matrices(n_rows, n_features))
    probability = np.exp([prior.log_prob(Z) for Z in listed])
    draws = [prior.simulate(rng, n_rows) for _ in range(n_draws)]
    assert all(Z.dtype == np.uint8 and Z.shape[0] == n_rows for Z in draws), "simulate must give uint8 (n_rows, K)"
    _check_total(probability, draws, n_features)
    _check_frequencies(listed, probability, draws, labelled=n_features is not None)
    if isinstance(prior, Predictive):
        _check_predictive(prior, n_rows)


def _check_total(probability: Array, draws: list[Array], n_features: int | None) -> None:
    total = float(probability.sum())
    if n_features is not None:
        assert abs(total - 1.0) < 1e-9, f"log_prob sums to {total} over all matrices"
        return
    beyond = sum(int(n_non_empty(Z) > 6) for Z in draws)
    expected = max(1.0 - total, 0.0) * len(draws)
    chance = min(float(pdtr(beyond, expected)), 1.0 - float(pdtr(beyond - 1, expected)) if beyond else 1.0)
    assert chance > FALSE_ALARM / 2, (
        f"log_prob sums to {total}, so {expected:.1f} of {len(draws)} draws should have more columns; {beyond} do"
    )


def _check_frequencies(listed: list[Array], probability: Array, draws: list[Array], *, labelled: bool) -> None:
    keys = {_key(Z, labelled): i for i, Z in enumerate(listed)}
    hits = np.zeros(len(listed))
    for Z in draws:
        index = keys.get(_key(Z, labelled))
        if index is not None:
            hits[index] += 1
    expected = probability * len(draws)
    common = expected >= 20
    z = (hits - expected)[common] / np.sqrt(expected * (1 - probability))[common]
    worst = int(np.argmax(np.abs(z)))
    message = f"simulate and log_prob disagree: z = {z[worst]:.1f} for\n{listed[int(np.flatnonzero(common)[worst])]}"
    assert np.abs(z).max() <= z_limit(len(z)), message


def _key(Z: Array, labelled: bool) -> Any:
    if labelled:
        return Z.tobytes()
    return tuple(sorted(tuple(column) for column in Z.T if column.any()))


def _check_predictive(prior: Any, n_rows: int) -> None:
    """The tables are ratios of log_prob, for every count m and for every number of new columns."""
    table = prior.log_odds(n_rows)
    assert table.shape == (n_rows,), f"log_odds must have n_rows = {n_rows} entries, got {table.shape}"
    infinite = table[0] == -math.inf
    n_features = 2 if infinite else prior.n_features
    for m in range(1 if infinite else 0, n_rows):
        Z = np.zeros((n_rows, n_features), dtype=np.uint8)
        Z[0, 1:] = 1  # the other columns are there all the time
        Z[1 : m + 1, 0] = 1
        off = _labelled(prior, Z, infinite)
        Z[0, 0] = 1
        got, wanted = table[m], _labelled(prior, Z, infinite) - off
        assert abs(got - wanted) < 1e-9 * (1 + abs(wanted)), f"log_odds[{m}] = {got}, log_prob says {wanted}"
    rate = prior.new_rate(n_rows)
    if not infinite:
        assert rate == 0.0, "a finite prior must have new_rate 0"
        return
    shared = np.ones((n_rows, 1), dtype=np.uint8)
    own = np.zeros((n_rows, 1), dtype=np.uint8)
    own[0] = 1
    for j in range(1, 4):
        ratio = prior.log_prob(np.hstack([shared, *[own] * j])) - prior.log_prob(shared)
        wanted = j * math.log(rate) - math.lgamma(j + 1)
        assert abs(ratio - wanted) < 1e-9 * (1 + abs(wanted)), (
            f"{j} new columns: log ratio {ratio}, Poisson says {wanted}"
        )


def _labelled(prior: Any, Z: Array, infinite: bool) -> float:
    """Log probability of the matrix with its columns told apart, up to a function of their number."""
    return prior.log_prob(Z) + (sum(math.lgamma(k + 1) for k in history_counts(Z)) if infinite else 0.0)


def check_observation(observation: Any, rng: np.random.Generator, *, n_dims: int = 2, n_draws: int = 20_000) -> None:
    """A concrete observation model: log_marginal, sweeps, codebook and encode agree with simulate and log_prob.

    The encoding is checked where features are integrated out of it (`CollapsedRows`).
    """
    assert isinstance(observation, Observation), f"{type(observation).__name__} is no Observation"
    assert not observation.learned, "check_observation needs numbers for all hyperparameters"
    Z = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], dtype=np.uint8)
    X = observation.simulate(rng, Z, n_dims=n_dims)
    assert X.shape == (len(Z), n_dims), f"simulate must give {(len(Z), n_dims)}, got {X.shape}"
    if observation.has(ChainRows):
        codes = observation.draw_codes(rng, Z)
        _check_marginal(observation, X, codes, rng, n_draws)
        if not observation.has(AuxiliaryRows):  # else it keeps more than codes, and is not Gaussian
            _check_evidence(observation, X, codes)
            _check_prediction(observation, X, codes, rng, n_draws)
        _check_purity(observation, X, codes, rng)
    if observation.has(CollapsedRows):
        _check_encoding(observation, X, Z)


def _check_marginal(observation: Any, X: Array, codes: Array, rng: np.random.Generator, n_draws: int) -> None:
    """p(X | codes) is the mean of p(X | Z, A) over features from their prior; with missing cells too."""
    holes = X.copy()
    holes[0, 0] = holes[2, -1] = np.nan
    for data in (X, holes):
        wanted = observation.engine(MarginalRows).log_marginal(data, codes)
        terms = [
            observation.log_prob(data, codes, observation.draw_features(rng, codes.shape[1], X.shape[1])) - wanted
            for _ in range(n_draws)
        ]
        z = float(z_scores(np.exp(terms)[:, None], np.array([1.0]))[0])
        assert abs(z) <= z_limit(1), f"log_marginal is not the mean of log_prob over features (z = {z:.1f})"


def _check_evidence(observation: Any, X: Array, codes: Array) -> None:
    """log_evidence is log_marginal and, where codes have weights, their log density."""
    rows, marginal = observation.engine(ChainRows), observation.engine(MarginalRows)
    data = rows.prepare(X)
    got = rows.log_evidence(data, rows.place(data, codes, X))
    wanted = marginal.log_marginal(X, codes) + marginal.log_codes(codes)
    assert abs(got - wanted) < 1e-8 * (1 + abs(wanted)), f"log_evidence {got}, log_marginal {wanted}"


def _check_purity(observation: Any, X: Array, codes: Array, rng: np.random.Generator) -> None:
    """Sweeps leave the data and the row variables that they are given as they were."""
    rows = observation.engine(ChainRows)
    data = rows.prepare(X)
    local = rows.place(data, codes, X)
    kept = [np.array(field, copy=True) for field in local]
    before = X.copy()
    table = np.log(np.arange(1, len(X) + 1) / 2.0)
    if observation.has(CollapsedRows):
        observation.engine(CollapsedRows).sweep(rng, data, local, RowOdds(table, 0.0))
    if observation.has(ConditionalRows):
        observation.engine(ConditionalRows).conditional_sweep(rng, data, local, RowOdds(table, 0.0))
    assert np.array_equal(X, before), "sweep changed the data"
    assert all(np.array_equal(a, b) for a, b in zip(kept, local, strict=True)), "sweep changed the state it was given"


def _check_encoding(observation: Any, X: Array, Z: Array) -> None:
    """encode(x) is the posterior of z for one more row, by ratios of log_marginal, with a cell missing too."""
    rows_of, marginal = observation.engine(ChainRows), observation.engine(MarginalRows)
    data = rows_of.prepare(X)
    codebook = rows_of.codebook(data, rows_of.place(data, Z, X))
    log_odds = np.array([0.3, -0.6])
    rows = np.vstack([X[0] + 0.5, X[-1]])
    if rows.shape[1] > 1:
        rows[1, 0] = np.nan
    presence, _, log_density, _ = observation.engine(Predictions).encode(rows, codebook, log_odds, 0.0)
    for row, got, density in zip(rows, presence, log_density, strict=True):
        weights = {}
        for bits in itertools.product((0, 1), repeat=2):
            joint = marginal.log_marginal(np.vstack([X, row]), np.vstack([Z, bits]).astype(np.uint8))
            prior = float(np.dot(bits, log_odds) - np.logaddexp(0, log_odds).sum())
            weights[bits] = joint - marginal.log_marginal(X, Z) + prior
        total = float(np.logaddexp.reduce(list(weights.values())))
        wanted = sum(math.exp(w - total) * np.array(bits) for bits, w in weights.items())
        assert np.allclose(got, wanted, atol=1e-8), f"encode: presence {got}, enumeration {wanted}"
        assert abs(density - total) < 1e-8 * (1 + abs(total)), f"encode: log density {density}, enumeration {total}"


def _check_prediction(observation: Any, X: Array, fitted: Array, rng: np.random.Generator, n_draws: int) -> None:
    """log_cells is the ratio of log_marginal with one more row; sample_rows has its (normal) mean and variance."""
    rows_of, marginal, engine = (observation.engine(kind) for kind in (ChainRows, MarginalRows, Predictions))
    data = rows_of.prepare(X)
    codebook = rows_of.codebook(data, rows_of.place(data, fitted, X))
    fitted = engine.codes((fitted != 0).astype(np.uint8), codebook)  # as the codebook has them
    codes = observation.draw_codes(rng, np.array([[1, 0], [1, 1]], dtype=np.uint8))
    rows = X[:2] + 0.3
    got = engine.log_cells(rows, codes, codebook).sum(axis=1)
    before = marginal.log_marginal(X, fitted)
    for row, one, density in zip(rows, codes, got, strict=True):
        wanted = marginal.log_marginal(np.vstack([X, row]), np.vstack([fitted, one])) - before
        assert abs(density - wanted) < 1e-6 * (1 + abs(wanted)), f"log_cells: {density}, log_marginal says {wanted}"
    many = engine.sample_rows(rng, np.repeat(codes[:1], n_draws, axis=0), codebook, 0)
    centre = observation.reconstruct(codes[:1], codebook.features)[0]
    peak = engine.log_cells(centre[None], codes[:1], codebook)[0]  # of a normal density: -log(2 pi var)/2
    moments = np.hstack([many, (many - centre) ** 2])
    z = z_scores(moments, np.concatenate([centre, np.exp(-2 * peak) / (2 * math.pi)]))
    assert np.abs(z).max() <= z_limit(z.size), f"sample_rows: mean or variance off by z = {np.abs(z).max():.1f}"
    assert engine.features_var(codebook).shape == codebook.features.shape


def check_inference(
    inference: Any, model: Model, X: Array, rng: np.random.Generator, *, n_steps: int = 500, max_features: int = 8
) -> None:
    """A sampler on a concrete model and tiny data: pure, reproducible, and right by enumeration.

    X must say something: a sampler that is blind to a part of it, or to all, would have to fail this very check.
    """
    assert isinstance(inference, Iterative), f"{type(inference).__name__} lacks methods of Iterative"
    check_composition(model.prior, model.observation, inference)
    adapted = calibrate(model, X)
    data = adapted.observation.engine(ChainRows).prepare(X)
    state = inference.init(rng, adapted, data, len(X))
    kept = [np.array(field, copy=True) for field in state.local]
    first, second = rng.spawn(2)
    again = copy.deepcopy(first)
    one, _ = inference.step(first, state, adapted, data)
    assert all(np.array_equal(a, b) for a, b in zip(kept, state.local, strict=True)), "step changed its input state"
    two, _ = inference.step(again, state, adapted, data)
    assert np.array_equal(one.local.z, two.local.z), "the same stream gave another result"
    comparison = against_exact(model, inference, X, second, n_steps=n_steps, max_features=max_features)
    scores = comparison.scores
    name = max(scores, key=lambda n: abs(scores[n]))
    assert abs(scores[name]) <= z_limit(len(scores)), f"{name} is off by z = {scores[name]:.1f} from enumeration"
    _check_informative(comparison, model, X, max_features)


def _check_informative(comparison: Comparison, model: Model, X: Array, max_features: int) -> None:
    """Samplers that are right but for other data than X must be told from a right one, with twice the error allowed."""
    for what, other in _lesser(X).items():
        exact = exact_statistics(enumerate_posterior(model, other, max_features=max_features), len(X), max_features)
        gap = np.abs(exact - comparison.expected)[comparison.kept]
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(gap > 1e-12, gap / comparison.error[comparison.kept], 0.0)
        assert z.max() > 2 * z_limit(len(z)), (
            f"X says too little: a sampler that {what} could not be told from a right one (z = {z.max():.1f}). "
            f"Give data of several times the noise in which every row and dim counts, or more steps."
        )


def _lesser(X: Array) -> dict[str, Array]:
    """What a sampler sees of X that is blind in one way or another."""
    row, dim = np.arange(len(X))[:, None], np.arange(X.shape[1])
    zeros = np.where(np.isnan(X), X, 0.0)
    seen = {"takes X for zeros": zeros}
    for i, which in enumerate(("even", "odd")):
        if len(X) > 1:
            seen[f"takes the {which} rows for zeros"] = np.where(row % 2 == i, zeros, X)
        if X.shape[1] > 1:
            seen[f"takes the {which} dims for zeros"] = np.where(dim % 2 == i, zeros, X)
    return seen
