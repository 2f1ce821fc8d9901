"""The slice sampler reaches the exact posterior and keeps the joint distribution; without its slice it does neither."""

import pytest
from tiny import MISSING, data, worst

from thali import IBP, Gamma, InverseGamma, LinearGaussian, SliceSampler
from thali.model import Model
from thali.testing import check_inference, compare_with_exact, geweke, z_limit

PRIORS = {"one parameter": IBP(mass=1.2), "three parameters": IBP(mass=1.0, concentration=0.7, discount=0.4)}
OBSERVATION = LinearGaussian(noise_var=0.25, feature_var=1.0)
FLAT = LinearGaussian(noise_var=1.0, feature_var=1.0)


@pytest.mark.parametrize(
    ("prior", "missing"),
    [
        ("one parameter", False),
        pytest.param("three parameters", True, marks=pytest.mark.slow),
        pytest.param("one parameter", True, marks=pytest.mark.slow),
        pytest.param("three parameters", False, marks=pytest.mark.slow),
    ],
)
def test_chain_reaches_the_exact_posterior(prior, missing, rng):
    inference = SliceSampler(start="spectral", moves=0.0)
    scores = compare_with_exact(Model(PRIORS[prior], OBSERVATION), inference, data(missing=missing), rng, n_steps=400)
    assert worst(scores) <= z_limit(len(scores)), scores


@pytest.mark.parametrize(
    ("prior", "n_replicates"),
    [pytest.param(p, n, marks=pytest.mark.slow if n > 1e4 else ()) for p in PRIORS for n in (4_000, 60_000)],
)
def test_sweep_keeps_the_joint_distribution(prior, n_replicates, rng):
    inference = SliceSampler(moves=0.0)
    result = geweke(Model(PRIORS[prior], FLAT), inference, rng, n_replicates=n_replicates, missing=MISSING)
    assert result.passed, result.worst


def test_whole_step(rng):
    model = Model(
        IBP(mass=Gamma(3.0, 3.0)),
        LinearGaussian(noise_var=InverseGamma(4.0, 2.0), feature_var=InverseGamma(4.0, 4.0)),
    )
    result = geweke(model, SliceSampler(), rng, n_replicates=3_000, missing=MISSING)
    assert result.passed, result.worst


class UnusedForgotten(IBP):
    """Unused weights as if no row had been seen: (1 - x)^N left out."""

    def draw_unused(self, rng, level, n_rows):
        return super().draw_unused(rng, level, 0)


class PrintedWeights(IBP):
    """Weights in use from Beta(m + mass, N - m + 1)."""

    def draw_weights(self, rng, counts, n_rows):
        return rng.beta(counts + self.mass, n_rows - counts + 1.0)


@pytest.mark.parametrize("wrong", [UnusedForgotten, PrintedWeights])
def test_wrong_weights_fail(wrong, rng):
    result = geweke(Model(wrong(mass=1.2), FLAT), SliceSampler(moves=0.0), rng, n_replicates=4_000)
    assert not result.passed, result.worst


def test_contract(rng):
    check_inference(SliceSampler(start="empty"), Model(PRIORS["one parameter"], OBSERVATION), data(), rng)
