"""The sampler against the exact posterior on tiny data: P(K) and E[ZZ'] within computed Monte Carlo error."""

import numpy as np
import pytest
from mutants import mutant
from thinned import thinned
from tiny import data, worst

from thali import IBP, BetaBernoulli, CollapsedGibbs, LinearGaussian
from thali.core.model import Model
from thali.testing import compare_with_exact, enumerate_posterior, sweep_against_exact, z_limit

PRIORS = {
    "one parameter": IBP(mass=1.2),
    "two parameters": IBP(mass=1.2, concentration=2.5),
    "three parameters": IBP(mass=1.0, concentration=0.7, discount=0.4),
    "finite": BetaBernoulli(mass=1.5, n_features=3),
}
NOISE = {"one noise level": 0.25, "noise per dim": np.array([0.2, 0.4])}


def test_exact_posterior_of_the_reference():
    """Figures of the mathematical reference (N = 3, D = 2, mass 1.2, noise sd 0.5): evidence and P(K)."""
    exact = enumerate_posterior(Model(IBP(mass=1.2), LinearGaussian(noise_var=0.25, feature_var=1.0)), data(3, 2))
    assert exact.log_evidence == pytest.approx(-10.6723, abs=5e-5)
    assert exact.p_k(6)[1:] == pytest.approx([0.03673, 0.25856, 0.35125, 0.22146, 0.09259], abs=5e-6)


@pytest.mark.parametrize("missing", thinned([False, True], True), ids=["complete", "missing cells"])
@pytest.mark.parametrize("prior", thinned(PRIORS, "one parameter", "finite"))
def test_sweep_keeps_the_exact_posterior(prior, missing, rng):
    model = Model(PRIORS[prior], LinearGaussian(noise_var=0.25, feature_var=1.0))
    scores = sweep_against_exact(model, data(3, 2, missing=missing), rng)
    assert worst(scores) <= z_limit(len(scores)), scores


@pytest.mark.slow  # a mutant takes half a minute to compile
@pytest.mark.parametrize(
    "name",
    ["drop singletons first", "append-order scan", "missing D/2", "no factorial in new columns"],
)
def test_wrong_sweeps_do_not(name, rng):
    model = Model(PRIORS["one parameter"], LinearGaussian(noise_var=0.25, feature_var=1.0))
    sweep = mutant(name)["replicates"].sweep_replicates
    scores = sweep_against_exact(model, data(3, 2), rng, sweep=sweep, capacity=64)
    assert worst(scores) > z_limit(len(scores)), scores


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imputation without feature variance", "missing cells used as data"])
def test_wrong_imputations_do_not(name, rng):
    """One more sweep shows a wrong imputation through the bits that it leads to, so two sweeps are made."""
    model = Model(PRIORS["one parameter"], LinearGaussian(noise_var=0.25, feature_var=1.0))
    one = mutant(name)["replicates"].sweep_replicates

    def twice(*args):
        return one(*args) + one(*args)

    scores = sweep_against_exact(model, data(3, 2, missing=True), rng, sweep=twice)
    assert worst(scores) > z_limit(len(scores)), scores


def chain_scores(prior, noise, missing, rng, n_steps):
    model = Model(prior, LinearGaussian(noise_var=noise, feature_var=1.0))
    return compare_with_exact(
        model,
        CollapsedGibbs(start="spectral", moves=1.0),
        data(3, 2, missing=missing),
        rng,
        n_chains=30,
        n_steps=n_steps,
    )


@pytest.mark.parametrize(
    ("prior", "noise", "missing"),
    thinned(
        [
            ("one parameter", "one noise level", False),
            ("two parameters", "noise per dim", False),
            ("three parameters", "one noise level", True),
            ("finite", "noise per dim", True),
        ],
        ("three parameters", "one noise level", True),
    ),
)
def test_chain_reaches_the_exact_posterior(prior, noise, missing, rng):
    scores = chain_scores(PRIORS[prior], NOISE[noise], missing, rng, 250)
    assert worst(scores) <= z_limit(len(scores)), scores


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing cells"])
@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("prior", PRIORS)
def test_chain_reaches_the_exact_posterior_long(prior, noise, missing, rng):
    scores = chain_scores(PRIORS[prior], NOISE[noise], missing, rng, 1200)
    assert worst(scores) <= z_limit(len(scores)), scores


class OffByOne(IBP):
    """The m / (N - 1) that is printed in places. Over many sweeps it makes K explode, so one sweep is made."""

    def log_odds(self, n_rows):
        others = np.arange(n_rows, dtype=float)
        with np.errstate(divide="ignore"):
            return np.log(others) - np.log(n_rows - 1 - others)


def test_off_by_one_count_fails(rng):
    model = Model(OffByOne(mass=1.2), LinearGaussian(noise_var=0.25, feature_var=1.0))
    scores = sweep_against_exact(model, data(3, 2), rng)
    assert worst(scores) > z_limit(len(scores)), scores


@pytest.mark.slow
def test_four_rows_and_offset(rng):
    """A second data set, with a fixed offset."""
    X = data(4, 3) + np.array([3.0, -2.0, 0.5])
    observation = LinearGaussian(noise_var=0.5, feature_var=0.8, offset=np.array([3.0, -2.0, 0.5]))
    model = Model(BetaBernoulli(mass=1.0, n_features=2), observation)
    scores = compare_with_exact(model, CollapsedGibbs(start="spectral", moves=1.0), X, rng, n_chains=30, n_steps=400)
    assert worst(scores) <= z_limit(len(scores)), scores
