"""Every variational bound lies below the exact evidence: each prior with each model, by summing over all Z."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy.special import betaln, comb, gammaln, logsumexp, roots_genlaguerre
from scipy.stats import laplace, nbinom, norm, qmc
from thinned import thinned

from thali import ICA, BetaBernoulli, BetaProcess, FactorAnalysis, LinearGaussian, PoissonGamma, StickBreakingIBP
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows
from thali.testing.enumerate import all_matrices

K = 2
PRIORS = {
    "finite": BetaBernoulli(mass=1.2, n_features=K),
    "sticks": StickBreakingIBP(mass=1.2, truncation=K),
    "sticks, exact": StickBreakingIBP(mass=1.2, truncation=K, log_complement="exact"),
    "beta process": BetaProcess(mass=1.2, concentration=2.0, truncation=K, rounds=3),
    "beta process, ordered": BetaProcess(1.2, 2.0, truncation=K, rounds=3, round_penalty="exact"),
}
MODELS = {
    "binary": LinearGaussian(noise_var=0.25, feature_var=1.0),
    "normal weights": FactorAnalysis(noise_var=0.25, feature_var=1.0, offset=None, noise_floor=0.0),
    "laplace weights": ICA(noise_var=0.25, feature_var=1.0, offset=None, noise_floor=0.0),
    "counts": PoissonGamma(weight_rate=0.4, weight_shape=0.8, feature_shape=1.2, leak=0.05),
}
JOINT, HARD = Family(), Family(bits="hard")
FAMILIES = {
    "binary": (JOINT, Family(features="independent"), HARD),
    "normal weights": (JOINT, Family(features="independent", codes="independent"), HARD),
    "laplace weights": (JOINT, Family(features="independent", codes="independent"), HARD),
    "counts": (JOINT, Family(codes="independent"), HARD),
}
TABLE = np.array([[1.2, -1.6], [1.8, np.nan]])
COUNTS = np.array([[0.0], [3.0], [1.0]])
QUADRATURE_ERROR = 5e-3  # of the mean over weights; half as many points change the result by less


def table_of(name):
    return COUNTS if name == "counts" else TABLE


# ---- the evidence


def log_prior(prior, Z):
    """Of labelled columns; those of a beta process lie in any rounds."""
    if not isinstance(prior, BetaProcess):
        return prior.log_prob(Z)
    terms = []
    for rounds in itertools.product(range(1, prior.rounds + 1), repeat=Z.shape[1]):
        same = np.bincount(rounds) if prior.round_penalty == "exact" else Z.shape[1]
        term = len(rounds) * math.log(prior.mass) - prior.mass * max(rounds) - np.sum(gammaln(np.add(same, 1)))
        columns = zip(Z.sum(axis=0, dtype=int), rounds, strict=True)
        terms.append(term + sum(log_column(prior.concentration, int(m), len(Z), d) for m, d in columns))
    return logsumexp(terms)


def log_column(a, m, n_rows, d):
    """log E[w^m (1 - w)^(n_rows - m)] for a weight of round d, a product of d beta variables, by its moments."""
    power = m + np.arange(n_rows - m + 1)
    moments = np.exp(math.log(a) + betaln(1 + power, a)) * (a / (a + power)) ** (d - 1)
    return math.log(np.sum(comb(n_rows - m, power - m) * (-1.0) ** (power - m) * moments))


def log_gaussian(model, codes):
    """log p(TABLE | codes) for codes (n_draws, n_rows, K): features integrated out."""
    cov = model.noise_var * np.eye(len(TABLE)) + model.feature_var * codes @ codes.transpose(0, 2, 1)
    total = np.zeros(len(codes))
    for x in TABLE.T:
        seen = ~np.isnan(x)
        part, e = cov[:, seen][:, :, seen], x[seen]
        total -= 0.5 * (np.linalg.slogdet(2 * np.pi * part)[1] + np.linalg.inv(part) @ e @ e)
    return total


def log_counts(model, Z, leak):
    """log p(COUNTS | Z) in one dim: quadrature over two features, whose parts of a count are negative binomial."""
    points, masses = roots_genlaguerre(60, model.feature_shape - 1)
    points, masses = points / model.features_rate(1), masses / masses.sum()
    values = np.arange(int(COUNTS.max()) + 1)
    part = {
        bit: nbinom.pmf(values, model.weight_shape, model.weight_rate / (model.weight_rate + s * points[:, None]))
        for bit, s in ((1, 1.0), (0, leak))
    }
    rows = np.ones((len(points), len(points)))
    for x, (first, second) in zip(COUNTS[:, 0].astype(int), Z, strict=True):
        rows *= sum(part[first][:, None, i] * part[second][None, :, x - i] for i in range(x + 1))
    with np.errstate(divide="ignore"):  # without a feature, or a leak, there are no counts
        return np.log(masses @ rows @ masses)


@cache
def log_likelihoods(name, leak, n_points=2**12):
    """log p(X | Z) for all Z."""
    model, X = MODELS[name], table_of(name)
    if name == "counts":
        return [log_counts(model, Z, leak) for Z in all_matrices(len(X), K)]
    if name == "binary":
        return [log_gaussian(model, Z[None].astype(float))[0] for Z in all_matrices(len(X), K)]
    law = norm(scale=model.weight_var**0.5) if model.law.rate == 0 else laplace(scale=1 / model.law.rate)
    uniform = np.clip(qmc.Sobol(len(X) * K, seed=0).random(n_points), 1e-12, 1 - 1e-12)
    W = law.ppf(uniform).reshape(n_points, len(X), K)
    return [logsumexp(log_gaussian(model, Z * W)) - math.log(n_points) for Z in all_matrices(len(X), K)]


def log_evidence(prior, name, family):
    """Of the truncated model; soft bits of counts have a leak."""
    leak = MODELS["counts"].leak if family != HARD else 0.0
    Zs = all_matrices(len(table_of(name)), K)
    return logsumexp([log_prior(PRIORS[prior], Z) + p for Z, p in zip(Zs, log_likelihoods(name, leak), strict=True)])


# ---- the bound


def best_bound(prior, name, family, rng, n_starts=3, n_steps=40):
    """Of coordinate ascent from random codes."""
    prior, X = PRIORS[prior], table_of(name)
    model = MODELS[name].adapt(MODELS[name].check_data(X))
    data, n_rows, best = model.engine(MeanFieldRows).row_data(model.check_data(X)), len(X), -math.inf
    for _ in range(n_starts):
        weights, q = prior.init_weights(n_rows), model.engine(MeanFieldRows).init_features(data, K, family)
        local = model.engine(MeanFieldRows).init_rows(
            data, rng.random((n_rows, K)) if family != HARD else np.ones((n_rows, K))
        )
        local, sums = model.engine(MeanFieldRows).update_rows(data, q, local, np.zeros(K), 0)
        for _ in range(n_steps):
            q = model.engine(MeanFieldRows).update_features(q, sums)
            weights = prior.update_weights(weights, sums.counts, n_rows)
            local, sums = model.engine(MeanFieldRows).update_rows(data, q, local, prior.expected_log_odds(weights), 1)
        best = max(
            best,
            prior.weights_bound(weights, sums.counts, n_rows) + model.engine(MeanFieldRows).features_bound(q, sums),
        )
    return best


@pytest.mark.parametrize(("name", "family"), [(name, family) for name, some in FAMILIES.items() for family in some])
@pytest.mark.parametrize("prior", thinned(PRIORS, "sticks", "beta process, ordered"))
def test_bound_is_below_the_evidence(prior, name, family, rng):
    gap = log_evidence(prior, name, family) - best_bound(prior, name, family, rng)
    assert gap >= -QUADRATURE_ERROR
    assert gap < 8.0, "a bound that says nothing"


def test_the_quadratures_have_settled():
    for name in ("normal weights", "laplace weights"):
        few, many = (np.array(log_likelihoods(name, 0.0, n)) for n in (2**11, 2**12))
        assert np.abs(few - many).max() < QUADRATURE_ERROR


@pytest.mark.parametrize("name", ["binary", "counts"])
@pytest.mark.parametrize("prior", thinned(PRIORS, "sticks"))
def test_a_bound_that_forgets_the_bits_prior_is_seen(prior, name, rng, monkeypatch):
    monkeypatch.setattr(type(PRIORS[prior]), "weights_bound", lambda *_: 0.0)
    assert log_evidence(prior, name, JOINT) < best_bound(prior, name, JOINT, rng)
