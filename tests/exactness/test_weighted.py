"""Models with weights: sweeps keep the joint distribution, chains reach the posterior of tiny data."""

import itertools

import numpy as np
import pytest
from mutants import mutant
from scipy.stats import laplace, norm, qmc
from thinned import thinned
from tiny import MISSING, data

from thali import IBP, ICA, BetaBernoulli, BetaProcess, FactorAnalysis, Gamma, Gibbs, NormalOffset, PerDim, SliceSampler
from thali.core.distributions import InverseGamma, LogNormal
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.kernels.bits.replicates import scaled_replicates
from thali.kernels.weights.swaps import swap_features
from thali.testing import z_limit
from thali.testing.enumerate import all_classes, all_matrices
from thali.testing.geweke import geweke, geweke_sweeps
from thali.testing.zscores import z_scores

PRIORS = {
    "one parameter": IBP(mass=1.2),
    "three parameters": IBP(mass=1.0, concentration=0.7, discount=0.4),
    "rounds": BetaProcess(mass=1.2, concentration=2.0, rounds=2),
    "finite": BetaBernoulli(mass=1.2, n_features=3),
}
FIXED = {"noise_var": 0.25, "feature_var": 1.0, "offset": None, "noise_floor": 0.0}
MODELS = {"normal": FactorAnalysis(**FIXED, weight_var=1.3), "laplace": ICA(**FIXED)}


@pytest.mark.parametrize("missing", [None, MISSING], ids=["complete", "missing cells"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("prior", "n_replicates"),
    [pytest.param(p, n, marks=pytest.mark.slow if n > 1e5 else ()) for p in PRIORS for n in (20_000, 1_000_000)],
)
def test_sweep_keeps_the_joint_distribution(prior, n_replicates, model, missing, rng):
    options = {"n_replicates": n_replicates, "missing": missing, "capacity": 48}
    result = geweke_sweeps(PRIORS[prior], MODELS[model], rng, sweep=scaled_replicates, **options)
    assert result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "own weights not in the variance",
        "weights' prior left out",
        "births without the present state",
        "births without their proposal",
    ],
)
def test_wrong_sweeps_fail(name, rng):
    sweep = mutant(name)["replicates"].scaled_replicates
    result = geweke_sweeps(
        PRIORS["one parameter"], MODELS["normal"], rng, sweep=sweep, n_replicates=200_000, capacity=64
    )
    assert not result.passed, result.worst


def swap_scores(swap_features, model, rng, n_rows=40_000):
    """z-scores of second moments of codes and missing cells after swaps in rows that are independent given A."""
    A = np.array([[1.0, 0.5, -0.4], [0.8, 0.7, 0.1], [-0.3, 0.6, 0.9]])
    share = np.array([0.2, 0.6, 0.4])
    Z = rng.random((n_rows, 3)) < share
    V = Z * model.draw_weights(rng, Z.shape)
    X = V @ A + model.noise_var**0.5 * rng.standard_normal(Z.shape)
    starts, dims = np.arange(n_rows + 1), rng.integers(0, 3, n_rows)  # one missing cell a row
    # counts lie so far apart that each feature has its own odds, whatever rows change to it: rows are independent
    table = np.repeat(np.log(share / (1 - share)), n_rows)
    counts = n_rows * np.arange(3) + n_rows // 2
    pairs = np.array([[0, 1], [1, 0], [2, 1]])
    swap_features(X, starts, dims, V, A, counts, np.ones(3), pairs, table, model.noise_var, *model.law, rng)
    cell = X[np.arange(n_rows), dims]
    power = share * model.weight_var
    values, wanted = [], []
    for k in range(3):
        values += [V[:, k] != 0, V[:, k] ** 2, cell * V[:, k] - A[k, dims] * power[k]]
        wanted += [share[k], power[k], 0.0]
    values.append((cell - np.sum(V * A[:, dims].T, axis=1)) ** 2)
    wanted.append(model.noise_var)
    values = np.array(values, dtype=float)
    return (values.mean(axis=1) - wanted) / (values.std(axis=1) / np.sqrt(n_rows))


@pytest.mark.parametrize("model", MODELS)
def test_swaps_keep_the_joint_distribution(model, rng):
    z = swap_scores(swap_features, MODELS[model], rng)
    assert np.abs(z).max() <= z_limit(len(z)), z


@pytest.mark.parametrize("name", ["cells left as they were before a swap", "swaps without the prior"])
def test_wrong_swaps_fail(name, rng):
    z = swap_scores(mutant(name)["swaps"].swap_features, MODELS["normal"], rng)
    assert np.abs(z).max() > z_limit(len(z)), z


def weights_by_quantiles(model, shape, n_points, seed):
    """Weights from their prior, evenly spread over it."""
    uniform = qmc.Sobol(int(np.prod(shape)), seed=seed).random(n_points)
    law = norm(scale=model.weight_var**0.5) if isinstance(model, FactorAnalysis) else laplace
    scale = 1.0 if isinstance(model, FactorAnalysis) else (model.weight_var / 2) ** 0.5
    return scale * law.ppf(np.clip(uniform, 1e-12, 1 - 1e-12)).reshape(n_points, *shape)


def evidence(model, X, Z, n_points=2**14, seed=0):
    """p(X | Z): the mean over weights of the likelihood with the features integrated out."""
    V = Z * weights_by_quantiles(model, Z.shape, n_points, seed) if Z.size else np.zeros((1, *Z.shape))
    cov = model.noise_var * np.eye(len(X)) + model.feature_var * V @ V.transpose(0, 2, 1)
    log_density = np.zeros(len(V))
    for x in X.T:
        seen = ~np.isnan(x)
        part = cov[:, seen][:, :, seen]
        quadratic = np.einsum("n,rnm,m->r", x[seen], np.linalg.inv(part), x[seen])
        log_density += -0.5 * (seen.sum() * np.log(2 * np.pi) + np.linalg.slogdet(part)[1] + quadratic)
    return np.exp(log_density).mean()


def exact(model, prior, X, max_features):
    """P(K) and E[ZZ'], both given that K <= max_features."""
    n_fixed = prior.n_features
    listed = list(all_classes(len(X), max_features) if n_fixed is None else all_matrices(len(X), n_fixed))
    weight = np.array([np.exp(prior.log_prob(Z)) * evidence(model, X, Z) for Z in listed])
    weight /= weight.sum()
    p_k = np.zeros(max_features + 1)
    shared = np.zeros((len(X), len(X)))
    for w, Z in zip(weight, listed, strict=True):
        p_k[int(Z.any(axis=0).sum())] += w
        shared += w * (Z.astype(float) @ Z.T)
    return p_k, shared


def test_evidence_settles():
    """The error of the averages over weights is far below the Monte Carlo error of the chains that they judge."""
    X = data(2, missing=False)
    Z = np.array([[1, 1, 0], [1, 0, 1]])
    for model in MODELS.values():
        values = [evidence(model, X, Z, seed=seed) for seed in range(4)]
        assert np.std(values) < 2e-3 * np.mean(values)


CASES = [
    *itertools.product(["normal", "laplace"], ["one parameter", "finite"], ["Gibbs"]),
    *itertools.product(["normal", "laplace"], ["one parameter"], ["SliceSampler"]),
]


@pytest.mark.parametrize(("model", "prior", "inference"), thinned(CASES, ("normal", "one parameter", "Gibbs")))
def test_chain_reaches_the_posterior(model, prior, inference, rng):
    X, limit = data(2), 5
    X[0, 1] = np.nan
    inference = {"Gibbs": Gibbs, "SliceSampler": SliceSampler}[inference](start="spectral")
    prior = PRIORS[prior].replace(n_features=2) if prior == "finite" else PRIORS[prior]
    limit = 2 if hasattr(prior, "n_features") else limit
    p_k, shared = exact(MODELS[model], prior, X, limit)
    whole = Model(prior, MODELS[model].adapt(X))
    n_chains, n_steps = 20, 400
    estimates = np.zeros((n_chains, limit + 1 + 3))
    for chain, stream in enumerate(rng.spawn(n_chains)):
        work = whole.observation.engine(ChainRows).prepare(X)
        state = inference.init(stream, whole, work, len(X))
        listed = 0
        for step in range(50 + n_steps):
            state, info = inference.step(stream, state, whole, work)
            if step >= 50 and info.n_features <= limit:
                listed += 1
                estimates[chain, info.n_features] += 1
                z = state.local.z.astype(float)
                estimates[chain, limit + 1 :] += (z @ z.T)[np.tril_indices(2)]
        estimates[chain] /= listed
    wanted = np.concatenate([p_k, shared[np.tril_indices(2)]])
    keep = np.concatenate([p_k * n_chains * n_steps >= 40, np.ones(3, dtype=bool)])
    z = z_scores(estimates, wanted)[keep]
    assert np.abs(z).max() <= z_limit(len(z)), z


LEARNED = {
    "one level": {
        "noise_var": InverseGamma(4.0, 2.0), "feature_var": InverseGamma(4.0, 4.0), "offset": None, "noise_floor": 0.0,
    },
    "a level per dim": {
        "noise_var": PerDim(3.0, Gamma(3.0, 3.0)), "feature_var": LogNormal(0.0, 0.5),
        "offset": NormalOffset(0.0, 2.0), "noise_floor": 0.2, "scale": 1.0,
    },
}  # fmt: skip


STEPS = list(itertools.product([Gibbs, SliceSampler], LEARNED, [FactorAnalysis, ICA], [None, 2.5], [1_000, 20_000]))
QUICK = [
    (Gibbs, "a level per dim", FactorAnalysis, 2.5, 1_000),
    (Gibbs, "one level", ICA, None, 1_000),
    (SliceSampler, "one level", FactorAnalysis, None, 1_000),
    (SliceSampler, "a level per dim", ICA, 2.5, 1_000),
]


@pytest.mark.parametrize(("inference", "learned", "kind", "ard", "n_replicates"), thinned(STEPS, *QUICK))
def test_whole_step(inference, learned, kind, ard, n_replicates, rng):
    model = Model(IBP(mass=Gamma(3.0, 3.0)), kind(**LEARNED[learned], ard=ard))
    result = geweke(model, inference(), rng, n_replicates=n_replicates, missing=MISSING)
    assert result.passed, result.worst
