"""Uncollapsed Gibbs: its sweep keeps the exact posterior and the joint distribution; a chain reaches the posterior."""

import pytest
from mutants import mutant
from thinned import thinned
from tiny import MISSING, data, worst

from thali import IBP, BetaBernoulli, BetaProcess, Gamma, Gibbs, InverseGamma, LinearGaussian
from thali.core.model import Model
from thali.kernels.bits.replicates import conditional_replicates
from thali.testing import check_inference, z_limit
from thali.testing.enumerate import compare_with_exact, sweep_against_exact
from thali.testing.geweke import geweke, geweke_sweeps

PRIORS = {
    "one parameter": IBP(mass=1.2),
    "three parameters": IBP(mass=1.0, concentration=0.7, discount=0.4),
    "rounds": BetaProcess(mass=1.2, concentration=2.0, rounds=2),
    "finite": BetaBernoulli(mass=1.2, n_features=3),
}
OBSERVATION = LinearGaussian(noise_var=0.25, feature_var=1.0)


@pytest.mark.parametrize("missing", thinned([False, True], True), ids=["complete", "missing cells"])
@pytest.mark.parametrize("prior", thinned(PRIORS, "one parameter", "finite"))
def test_sweep_keeps_the_exact_posterior(prior, missing, rng):
    scores = sweep_against_exact(
        Model(PRIORS[prior], OBSERVATION), data(missing=missing), rng, sweep=conditional_replicates, capacity=64
    )
    assert worst(scores) <= z_limit(len(scores)), scores


@pytest.mark.parametrize("missing", [None, MISSING], ids=["complete", "missing cells"])
@pytest.mark.parametrize(
    ("prior", "n_replicates"),
    [pytest.param(p, n, marks=pytest.mark.slow if n > 1e5 else ()) for p in PRIORS for n in (40_000, 1_000_000)],
)
def test_sweep_keeps_the_joint_distribution(prior, n_replicates, missing, rng):
    options = {"n_replicates": n_replicates, "missing": missing, "capacity": 64}
    result = geweke_sweeps(PRIORS[prior], OBSERVATION, rng, sweep=conditional_replicates, **options)
    assert result.passed, result.worst


@pytest.mark.parametrize(
    ("name", "n_replicates"),
    [
        ("own columns not in the variance", 200_000),
        pytest.param("new features independent", 200_000, marks=pytest.mark.slow),
        pytest.param("uncollapsed scan in column order", 4_000_000, marks=pytest.mark.slow),
    ],
)
def test_wrong_sweeps_fail(name, n_replicates, rng):
    sweep = mutant(name)["replicates"].conditional_replicates
    options = {"n_replicates": n_replicates, "capacity": 64}
    result = geweke_sweeps(PRIORS["one parameter"], OBSERVATION, rng, sweep=sweep, **options)
    assert not result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["one parameter", "finite"])
def test_chain_reaches_the_exact_posterior(prior, rng):
    model = Model(PRIORS[prior], OBSERVATION)
    scores = compare_with_exact(model, Gibbs(start="spectral"), data(missing=True), rng, n_steps=500)
    assert worst(scores) <= z_limit(len(scores)), scores


def test_whole_step(rng):
    model = Model(
        IBP(mass=Gamma(3.0, 3.0)),
        LinearGaussian(noise_var=InverseGamma(4.0, 2.0), feature_var=InverseGamma(4.0, 4.0)),
    )
    result = geweke(model, Gibbs(), rng, n_replicates=3_000, missing=MISSING)
    assert result.passed, result.worst


@pytest.mark.slow
def test_contract(rng):
    check_inference(Gibbs(start="empty"), Model(PRIORS["one parameter"], OBSERVATION), data(), rng)
