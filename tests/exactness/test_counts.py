"""Samplers of counts: sweeps keep the joint distribution, chains reach the posterior of tiny data."""

import numpy as np
import pytest
from mutants import mutant
from scipy.special import roots_genlaguerre
from scipy.stats import nbinom

from thali import IBP, BetaBernoulli, BetaProcess, Gamma, Gibbs, PoissonGamma, SliceSampler
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows, MarginalRows, OwnStart, StartRows
from thali.observations.poisson import sweeps
from thali.observations.poisson.rows import CountRows
from thali.rng import make_generator
from thali.testing import geweke, z_limit
from thali.testing.enumerate import all_classes, all_matrices
from thali.testing.zscores import z_scores

FIXED = {"weight_shape": 0.8, "weight_rate": 0.5, "feature_shape": 0.7, "feature_rate": 0.9}
MISSING = np.array([[False, True], [False, False], [True, True], [False, False]])
CASES = {
    "infinite": (IBP(mass=1.2), Gibbs(moves=0.0)),
    "finite": (BetaBernoulli(mass=1.2, n_features=3), Gibbs(moves=0.0)),
    "slices": (IBP(mass=1.2), SliceSampler(moves=0.0)),
    "rounds": (BetaProcess(mass=1.2, concentration=2.0, rounds=2), Gibbs(moves=0.0)),
}


FAST = [("infinite", MISSING, 1000), ("finite", None, 1000), ("slices", MISSING, 1000)]
SLOW = [(case, missing, 60_000) for case in CASES for missing in (None, MISSING)]


@pytest.mark.parametrize(
    ("case", "missing", "n_replicates"), [*FAST, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_steps_keep_the_joint_distribution(case, missing, n_replicates, rng):
    prior, inference = CASES[case]
    model = Model(prior, PoissonGamma(**FIXED | {"weight_rate": Gamma(3.0, 4.0)}))
    result = geweke(model, inference, rng, n_replicates=n_replicates, missing=missing)
    assert result.passed, result.worst


@pytest.mark.parametrize(
    "name",
    [
        "weights without the allocation",
        pytest.param("bits without their proposal", marks=pytest.mark.slow),
        pytest.param("births without their number", marks=pytest.mark.slow),
        pytest.param("births without the dims that have none", marks=pytest.mark.slow),
        pytest.param("exposure of missing cells", marks=pytest.mark.slow),
    ],
)
def test_wrong_sweeps_fail(name, rng, monkeypatch):
    monkeypatch.setattr(sweeps, "poisson_sweep", mutant(f"counts: {name}")["poisson_sweeps"].poisson_sweep)
    prior, inference = CASES["infinite"]
    n_replicates = 2000 if name.startswith("weights") else 30_000
    result = geweke(Model(prior, PoissonGamma(**FIXED)), inference, rng, n_replicates=n_replicates, missing=MISSING)
    assert not result.passed, result.worst


def evidence(X, Z, model, n_points=24):
    """p(X | Z) of counts in one dim, by quadrature over the features: given them, a feature's part of a count is
    negative binomial where its bit is on."""
    if not Z.shape[1]:
        return float(not X.any())
    points, masses = roots_genlaguerre(n_points, model.feature_shape - 1)
    points, masses = points / model.feature_rate, masses / masses.sum()
    grid = np.array(np.meshgrid(*[points] * Z.shape[1], indexing="ij")).reshape(Z.shape[1], -1)
    total = np.ones(1)
    for _ in range(Z.shape[1]):
        total = np.outer(total, masses).ravel()
    for x, bits in zip(X[:, 0].astype(int), Z, strict=True):
        values = np.arange(x + 1)
        law = np.zeros((grid.shape[1], x + 1))  # of the sum of the parts so far
        law[:, 0] = 1.0
        for a in grid[bits > 0]:
            chance = model.weight_rate / (model.weight_rate + a)
            part = nbinom.pmf(values, model.weight_shape, chance[:, None])
            law = np.stack([np.sum(law[:, : i + 1] * part[:, i::-1][:, : i + 1], axis=1) for i in values], axis=1)
        total = total * law[:, x]
    return float(total.sum())


def exact(X, prior, model, most):
    """P(K) and E[ZZ'], both given that K <= most."""
    n_fixed = prior.n_features
    matrices = list(all_classes(len(X), most) if n_fixed is None else all_matrices(len(X), n_fixed))
    weight = np.array([np.exp(prior.log_prob(Z)) * evidence(X, Z, model) for Z in matrices])
    weight /= weight.sum()
    used = [int(Z.any(axis=0).sum()) for Z in matrices]
    shared = sum(p * (Z.astype(float) @ Z.T) for p, Z in zip(weight, matrices, strict=True))
    return np.concatenate([np.bincount(used, weight, minlength=most + 1), shared[np.tril_indices(len(X))]])


@pytest.mark.parametrize(
    "case", ["finite", pytest.param("infinite", marks=pytest.mark.slow), pytest.param("slices", marks=pytest.mark.slow)]
)
def test_chain_reaches_the_exact_posterior(case, rng):
    X, most = np.array([[4.0], [0.0], [2.0]]), 3
    prior = BetaBernoulli(mass=1.2, n_features=2) if case == "finite" else IBP(mass=0.7)
    model, inference = Model(prior, PoissonGamma(**FIXED)), CASES[case][1]
    data = model.observation.engine(ChainRows).prepare(X)
    n_chains, n_steps = 30, 500 if case == "finite" else 3000
    estimates = np.zeros((n_chains, most + 1 + 6))
    for chain, stream in enumerate(rng.spawn(n_chains)):
        state = inference.init(stream, model, data, len(X))
        n_listed = 0
        for step in range(n_steps + 50):
            state, info = inference.step(stream, state, model, data)
            if step >= 50 and info.n_features <= most:
                z = state.local.z.astype(float)
                estimates[chain, info.n_features] += 1
                estimates[chain, most + 1 :] += (z @ z.T)[np.tril_indices(3)]
                n_listed += 1
        estimates[chain] /= n_listed
    wanted = exact(X, prior, model.observation, most)
    z = z_scores(estimates, wanted)[wanted > 1e-3]
    assert np.abs(z).max() <= z_limit(len(z)), (z, wanted)


@pytest.mark.slow
def test_marginal_is_the_sum_over_allocations(rng):
    """log_marginal against the mean over features of the Poisson probability, also with a missing cell."""
    model = PoissonGamma(**FIXED)
    codes = np.array([[1.3, 0.0], [0.4, 2.0], [0.0, 0.7]])
    X = np.array([[2.0, 0.0], [1.0, np.nan], [0.0, 3.0]])
    terms = np.exp([model.log_prob(X, codes, model.draw_features(rng, 2, 2)) for _ in range(20_000)])
    z = z_scores(terms[:, None], np.array([np.exp(model.engine(MarginalRows).log_marginal(X, codes))]))
    assert abs(z[0]) <= z_limit(1)


def test_evidence_has_the_allocation_in_it(rng):
    """E over allocations of p(X, W) / p(X, allocation, W): the sum over all of them is log_marginal."""
    model = PoissonGamma(**FIXED)
    X, V = np.array([[2.0], [1.0]]), np.array([[1.3, 0.8], [0.4, 2.0]])
    data = model.engine(ChainRows).prepare(X)
    total = -np.inf
    for first in range(3):
        for second in range(2):
            parts = np.array([[first, 2 - first], [second, 1 - second]], dtype=float)
            log_parts = float(np.sum(parts * np.log(V) - np.where(parts == 2, np.log(2.0), 0.0)))
            local = CountRows((V > 0).astype(np.uint8), V, parts.sum(axis=0)[:, None], log_parts)
            total = np.logaddexp(total, model.engine(ChainRows).log_evidence(data, local))
    assert total == pytest.approx(
        model.engine(MarginalRows).log_marginal(X, V) + model.engine(MarginalRows).log_codes(V), rel=1e-12
    )


def test_start_gives_counts_a_feature():
    model = PoissonGamma()
    data = model.engine(ChainRows).prepare(np.array([[3.0, 0.0], [0.0, 0.0], [1.0, 2.0]]))
    _, local = model.engine(StartRows).begin(data, np.zeros((3, 0)))
    assert local.z.tolist() == [[1], [0], [1]]
    assert model.engine(StartRows).begin(model.engine(ChainRows).prepare(np.zeros((2, 3))), np.zeros((2, 0)))[
        1
    ].z.shape == (2, 0)
    codes = model.engine(OwnStart).start_codes(make_generator(0), data, 2, lambda: False)
    assert codes.shape == (3, 2)
    assert (model.engine(StartRows).begin(data, codes)[1].z.sum(axis=1) > 0).tolist() == [True, False, True]
