"""Births by importance resampling: the sweep keeps the exact posterior and the joint distribution."""

import pytest
from mutants import mutant
from python_sweeps import replicates
from tiny import MISSING, data, worst

from thali import IBP, BetaBernoulli, BetaProcess, Gamma, Gibbs, InverseGamma, LinearGaussian
from thali.core.model import Model
from thali.core.odds import exchangeable_odds
from thali.core.protocols.engines.chains import ImportanceRows
from thali.observations.gaussian import conditional as _conditional
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
SLOW = [pytest.param(p, n, 30_000, marks=pytest.mark.slow) for p in PRIORS for n in (2, 8)]


def importance(prior, n_candidates):
    def sweep(rng, observation, data, local):
        odds = exchangeable_odds(prior, len(local.z))
        return observation.engine(ImportanceRows).importance_sweep(rng, data, local, odds, n_candidates)

    return replicates(sweep)


@pytest.mark.parametrize(("prior", "n_candidates", "n_replicates"), [("one parameter", 3, 4_000), *SLOW])
def test_sweep_keeps_the_exact_posterior(prior, n_candidates, n_replicates, rng):
    prior = PRIORS[prior]
    options = {"n_replicates": n_replicates, "capacity": 64, "sweep": importance(prior, n_candidates)}
    scores = sweep_against_exact(Model(prior, OBSERVATION), data(missing=True), rng, **options)
    assert worst(scores) <= z_limit(len(scores)), scores


@pytest.mark.parametrize(("prior", "n_candidates", "n_replicates"), [*((p, 4, 4_000) for p in PRIORS), *SLOW])
def test_sweep_keeps_the_joint_distribution(prior, n_candidates, n_replicates, rng):
    prior = PRIORS[prior]
    options = {"n_replicates": n_replicates, "capacity": 64, "sweep": importance(prior, n_candidates)}
    result = geweke_sweeps(prior, OBSERVATION, rng, missing=MISSING, **options)
    assert result.passed, result.worst


@pytest.mark.slow
def test_without_the_present_columns_it_fails(rng, monkeypatch):
    """The version of the papers: all candidates from the prior."""
    wrong = mutant("importance without the present columns")["importance_rows"].importance_sweep
    monkeypatch.setattr(_conditional, "importance_sweep", wrong)
    prior = PRIORS["one parameter"]
    options = {"n_replicates": 8_000, "capacity": 64, "sweep": importance(prior, 8)}
    result = geweke_sweeps(prior, OBSERVATION, rng, **options)
    assert not result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["one parameter", "finite"])
def test_chain_reaches_the_exact_posterior(prior, rng):
    model, inference = Model(PRIORS[prior], OBSERVATION), Gibbs(start="spectral", births="importance", candidates=8)
    scores = compare_with_exact(model, inference, data(missing=True), rng, n_chains=20, n_steps=500)
    assert worst(scores) <= z_limit(len(scores)), scores


def test_whole_step(rng):
    model = Model(
        IBP(mass=Gamma(3.0, 3.0)),
        LinearGaussian(noise_var=InverseGamma(4.0, 2.0), feature_var=InverseGamma(4.0, 4.0)),
    )
    result = geweke(model, Gibbs(births="importance"), rng, n_replicates=1_000, missing=MISSING)
    assert result.passed, result.worst


@pytest.mark.slow
def test_contract(rng):
    inference = Gibbs(start="empty", births="importance", candidates=5)
    check_inference(inference, Model(PRIORS["one parameter"], OBSERVATION), data(), rng)
