"""Slice sampling leaves its target invariant, and gets there from elsewhere."""

import math

import numpy as np
import pytest
from scipy.stats import gamma, kstest, norm

from thali.numerics.slice_sampling import slice_sample, slice_sample_positive

P_VALUE = 1e-4
N = 5000


def bimodal(x):
    return np.logaddexp(math.log(0.3) + norm.logpdf(x, -2, 0.5), math.log(0.7) + norm.logpdf(x, 2, 1.0))


def bimodal_cdf(x):
    return 0.3 * norm.cdf(x, -2, 0.5) + 0.7 * norm.cdf(x, 2, 1.0)


def bimodal_draws(rng):
    left = rng.random(N) < 0.3
    return np.where(left, rng.normal(-2, 0.5, N), rng.normal(2, 1.0, N))


def log_normal_density(sd):
    return lambda x: -0.5 * (x / sd) ** 2


def log_gamma_density(shape, x):
    return (shape - 1) * math.log(x) - x


@pytest.mark.parametrize(
    ("log_density", "cdf", "start"),
    [
        (bimodal, bimodal_cdf, bimodal_draws),
        (log_normal_density(1e-3), norm(scale=1e-3).cdf, lambda rng: rng.normal(0, 1e-3, N)),
        (log_normal_density(1e3), norm(scale=1e3).cdf, lambda rng: rng.normal(0, 1e3, N)),  # wider than it steps out
    ],
    ids=["bimodal", "narrow", "wide"],
)
def test_one_step_from_the_target_stays_in_it(log_density, cdf, start, rng):
    """Independent exact draws, one transition each: still independent, still exact. No autocorrelation to correct."""
    before = start(rng)
    after = np.array([slice_sample(log_density, x, rng) for x in before])
    assert kstest(after, cdf).pvalue > P_VALUE
    assert (before != after).mean() > 0.99


@pytest.mark.parametrize("shape", [0.4, 3.0, 200.0])
def test_one_step_on_the_positive_numbers(shape, rng):
    before = rng.gamma(shape, size=N)
    after = [slice_sample_positive(lambda x: log_gamma_density(shape, x), x, rng) for x in before]
    assert kstest(after, gamma(shape).cdf).pvalue > P_VALUE


def test_forgetting_the_jacobian_is_seen(rng):
    before = np.log(rng.gamma(1.0, size=N))
    after = [math.exp(slice_sample(lambda t: log_gamma_density(1.0, math.exp(t)), t, rng)) for t in before]
    assert kstest(after, gamma(1.0).cdf).pvalue < P_VALUE


@pytest.mark.parametrize("start", [1e-6, 1e4])
def test_chain_from_far_away_reaches_the_target(start, rng):
    x, chain = start, []
    for _ in range(20 * 1000):
        x = slice_sample_positive(lambda v: log_gamma_density(3.0, v), x, rng)
        chain.append(x)
    centred = np.array(chain[1000:]) - np.mean(chain[1000:])
    lag = 20
    assert abs(centred[lag:] @ centred[:-lag]) / (centred @ centred) < 4 / math.sqrt(
        len(centred)
    )  # thinned: independent
    assert kstest(chain[1000::lag], gamma(3.0).cdf).pvalue > P_VALUE


def test_bounds_of_the_support_are_kept(rng):
    def uniform(x):
        return 0.0 if 0 < x < 1 else -math.inf

    draws, x = [], 0.5
    for _ in range(N):
        x = slice_sample(uniform, x, rng)
        draws.append(x)
    assert 0 < min(draws) < max(draws) < 1


def test_a_point_mass_stays_where_it_is(rng):
    assert slice_sample(lambda x: 0.0 if x == 3.0 else -math.inf, 3.0, rng) == 3.0
