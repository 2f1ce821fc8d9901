"""The slice sampler reaches the exact posterior and keeps the joint distribution; without its slice it does neither."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln
from thinned import thinned
from tiny import MISSING, data, worst

from thali import (
    IBP,
    Beta,
    FactorAnalysis,
    Gamma,
    InverseGamma,
    LatentFeatures,
    LinearGaussian,
    PoissonGamma,
    SliceSampler,
)
from thali.core.model import Model
from thali.core.protocols.engines.chains import SliceRows
from thali.observations.gaussian.conditional import ConditionalGaussian
from thali.priors import ibp
from thali.testing import check_inference, compare_with_exact, geweke, z_limit
from thali.testing.zscores import z_scores

PRIORS = {"one parameter": IBP(mass=1.2), "three parameters": IBP(mass=1.0, concentration=0.7, discount=0.4)}
OBSERVATION = LinearGaussian(noise_var=0.25, feature_var=1.0)
FLAT = LinearGaussian(noise_var=1.0, feature_var=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior", "missing"),
    [("one parameter", False), ("three parameters", True), ("one parameter", True), ("three parameters", False)],
)
def test_chain_reaches_the_exact_posterior(prior, missing, rng):
    inference = SliceSampler(start="spectral", moves=0.0)
    scores = compare_with_exact(Model(PRIORS[prior], OBSERVATION), inference, data(missing=missing), rng, n_steps=400)
    assert worst(scores) <= z_limit(len(scores)), scores


@pytest.mark.parametrize(
    ("prior", "n_replicates"),
    thinned([(p, n) for p in PRIORS for n in (4_000, 60_000)]),
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


@pytest.mark.parametrize("wrong", thinned([UnusedForgotten, PrintedWeights], UnusedForgotten))
def test_wrong_weights_fail(wrong, rng):
    result = geweke(Model(wrong(mass=1.2), FLAT), SliceSampler(moves=0.0), rng, n_replicates=4_000)
    assert not result.passed, result.worst


# ---- a discount: more unused features above the slice than any memory holds, unless the level has a lower end


def unused_above(prior, n_rows, levels):
    """The integral of the intensity of weights that no row has, in t = -log x."""
    c, d = prior.concentration, prior.discount
    rate = prior.mass * np.exp(gammaln(1 + c) - gammaln(1 - d) - gammaln(c + d))
    power = n_rows + c + d - 1

    def total(level):
        # in pieces: quadrature must not overlook where 1 - x falls
        ends = np.linspace(0.0, -np.log(level), 60)
        return sum(quad(lambda t: np.exp(d * t) * (-np.expm1(-t)) ** power, a, b)[0] for a, b in pairwise(ends))

    return rate * np.array([total(level) for level in levels])


@pytest.mark.parametrize(("d", "n_rows"), [(0.4, 5), (0.75, 3)])
def test_unused_weights_have_the_intensity_of_the_prior(d, n_rows, rng):
    """Numbers above levels are Poisson; without the discount, in the power or the rate, they are not."""
    prior, levels = IBP(mass=1.3, concentration=0.8, discount=d), np.array([0.002, 0.02, 0.1, 0.4])
    assert np.abs(unused_scores(prior, prior, levels, n_rows, rng)).max() <= z_limit(8)
    for wrong in (DiscountForgotten, RateForgotten):
        mine = wrong(mass=1.3, concentration=0.8, discount=d)
        assert np.abs(unused_scores(mine, prior, levels, n_rows, rng)).max() > z_limit(8)


def unused_scores(drawn, prior, levels, n_rows, rng):
    found = [drawn.draw_unused(rng, levels[0], n_rows) for _ in range(3_000)]
    counts = np.array([[(x > level).sum() for level in levels] for x in found], dtype=float)
    rate = unused_above(prior, n_rows, levels)
    return z_scores(np.hstack([counts, counts**2]), np.concatenate([rate, rate + rate**2]))


class DiscountForgotten(IBP):
    """The intensity of two parameters."""

    def draw_unused(self, rng, level, n_rows):
        return IBP(self.mass, self.concentration).draw_unused(rng, level, n_rows)


class RateForgotten(IBP):
    """The right power of x with the constant of two parameters."""

    @property
    def _unused_rate(self):
        return self.mass * self.concentration


@pytest.mark.parametrize("d", [0.0, 1e-9, 0.3, 0.5, 0.9, 0.999])
def test_few_unused_weights_are_above_the_least_level(d, rng):
    for mass in (1e-3, 1.0, 1e6):
        for c in (1e-3, 1.0, 1e6):
            prior = IBP(mass=mass, concentration=c, discount=d)
            for n_rows in (1, 100, 10**5):
                level = prior.least_level(n_rows)
                assert 0 <= level <= 1
                if level > 1e-300:
                    assert unused_above(prior, n_rows, [level])[0] <= 1.001 * 500
                    assert len(prior.draw_unused(rng, level, n_rows)) <= 500 + 8 * 500**0.5


def test_far_out_weights_have_the_same_law(rng, monkeypatch):
    """The other way to thin, for a prior with far too many features."""
    monkeypatch.setattr(ibp, "_THINNED", 0)
    prior, levels = IBP(mass=3.0, concentration=20.0, discount=0.3), np.array([0.05, 0.08, 0.12, 0.2])
    assert np.abs(unused_scores(prior, prior, levels, 10, rng)).max() <= z_limit(8)


class AllDrawn(ConditionalGaussian):
    def weighted_sweep(self, rng, data, local, used, unused, level=0.0):
        return super().weighted_sweep(rng, data, local, used, unused)


class NoneKept(LinearGaussian):
    """All bits are drawn, though unused features below the level are not there."""

    engines = LinearGaussian.engines | {SliceRows: AllDrawn}


@pytest.mark.parametrize(("d", "n_replicates"), [(0.7, 600), pytest.param(0.3, 6_000, marks=pytest.mark.slow)])
def test_features_below_the_least_level_keep_their_bits(d, n_replicates, rng, monkeypatch):
    monkeypatch.setattr(ibp, "_UNUSED", 3)
    prior = IBP(mass=1.0, concentration=0.7, discount=d)
    for observation, is_right in ((FLAT, True), (NoneKept(noise_var=1.0, feature_var=1.0), False)):
        model = Model(prior, observation)
        result = geweke(model, SliceSampler(moves=0.0), rng, n_replicates=n_replicates, missing=MISSING)
        assert result.passed is is_right, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("few", [2, 30])
def test_chain_with_a_large_discount_reaches_the_exact_posterior(few, rng, monkeypatch):
    monkeypatch.setattr(ibp, "_UNUSED", few)
    model = Model(IBP(mass=1.0, concentration=0.7, discount=0.7), OBSERVATION)
    scores = compare_with_exact(model, SliceSampler(start="spectral", moves=0.0), data(), rng, n_steps=400)
    assert worst(scores) <= z_limit(len(scores)), scores


@pytest.mark.slow
@pytest.mark.parametrize(
    "observation", [LinearGaussian(), FactorAnalysis(), PoissonGamma()], ids=lambda o: type(o).__name__
)
@pytest.mark.parametrize("discount", [0.5, 0.95, Beta(5.0, 1.0)], ids=str)
def test_a_fit_with_a_large_discount_ends(observation, discount):
    X = np.random.default_rng(0).poisson(2.0, (30, 6)).astype(float)
    inference = SliceSampler(n_warmup=30, n_draws=30)
    m = LatentFeatures(observation, IBP(discount=discount), inference, n_chains=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few draws have not converged
        m.fit(X)
    assert m.posterior_.n_draws == 30


@pytest.mark.slow
def test_contract(rng):
    check_inference(SliceSampler(start="empty"), Model(PRIORS["one parameter"], OBSERVATION), data(), rng)
