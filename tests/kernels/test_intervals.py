"""Draws between bounds have the law of a truncated normal, far out in a tail as well."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import many, plain, seeds
from reference import intervals as twin
from scipy.special import log_ndtr
from scipy.stats import kstest, truncnorm

from thali.kernels.intervals import draw_between
from thali.numerics.truncated_normal import truncated_normal_entropy

INF = math.inf
BOUNDS = [
    (-INF, INF), (0.0, INF), (-INF, 0.0), (-1.0, 2.0), (-5.0, -4.9), (8.0, 9.0), (29.9, INF), (-INF, -30.1),
    (35.0, 35.01), (-200.001, -200.0), (5e3, INF), (9.99e3, INF), (1.01e4, INF), (-2e4, -2e4 + 1e-4), (-40.0, INF),
    (-0.3, 0.2), (0.39, 1.38), (0.41, 0.5), (0.5, 4.0), (-2.0, 2.5),
]  # fmt: skip


BOUND = st.one_of(st.floats(-6, 6), st.sampled_from([-INF, INF, -40.0, 40.0]))


def drawn(rng, low, high, mean=0.0, sd=1.0, size=20_000):
    whole = np.ones(size)
    return draw_between(mean * whole, sd * whole, low * whole, high * whole, rng)


def share_below(x, low, high):
    """The distribution function, from logarithms of probabilities in the tail that is nearer."""
    if low > -high:
        return 1.0 - share_below(-x, -high, -low)
    top, bottom = log_ndtr(high), log_ndtr(low)
    return (np.exp(log_ndtr(x) - top) - np.exp(bottom - top)) / -np.expm1(bottom - top)


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_draws_have_their_law(low, high, rng):
    x = drawn(rng, low, high)
    assert ((x >= low) & (x <= high)).all()
    assert np.isfinite(x).all()
    assert kstest(x, lambda v: share_below(v, low, high)).pvalue > 1e-5


def test_draws_agree_with_scipy(rng):
    low, high, mean, sd = -0.5, 3.0, 1.2, 0.7
    law = truncnorm((low - mean) / sd, (high - mean) / sd, mean, sd)
    assert kstest(drawn(rng, low, high, mean, sd), law.cdf).pvalue > 1e-5


def test_a_tail_beyond_all_tables_is_exponential(rng):
    excess = (drawn(rng, 1e6, INF) - 1e6) * 1e6
    assert kstest(excess, "expon").pvalue > 1e-5


def test_the_wrong_side_would_be_seen(rng):
    x = drawn(rng, -INF, 1.0)
    assert kstest(x, lambda v: share_below(v, -1.0, INF)).pvalue < 1e-5


@given(seeds, st.lists(st.tuples(BOUND, BOUND, st.floats(-5, 5), st.floats(0.1, 3)), min_size=1, max_size=8))
@many
def test_the_kernel_equals_its_twin(seed, cells):
    first, second, mean, sd = np.array(cells).T
    lower, upper = np.minimum(first, second), np.maximum(first, second)
    keep = lower < upper
    parts = mean[keep], sd[keep], lower[keep], upper[keep]
    wanted = twin.draw_between(*parts, np.random.default_rng(seed))
    for function in (draw_between, plain(draw_between)):
        np.testing.assert_allclose(function(*parts, np.random.default_rng(seed)), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 2.0), (0.0, 1e3), (-1e3, -3.0), (0.3, 0.4), (-1e3, 1e3)])
def test_entropy_agrees_with_scipy(low, high):
    got = truncated_normal_entropy(*(np.array([v]) for v in (0.3, 2.0, 0.3 + 2 * low, 0.3 + 2 * high)))
    assert got[0] == pytest.approx(truncnorm(low, high, 0.3, 2.0).entropy(), rel=1e-9)


@pytest.mark.parametrize(("low", "high"), [(30.0, INF), (-INF, -30.0), (8.0, 9.0), (0.0, INF), (-INF, INF)])
def test_entropy_is_the_mean_of_the_log_density(low, high, rng):
    x = drawn(rng, low, high, size=100_000)
    log_density = -0.5 * x**2 - 0.5 * math.log(2 * math.pi) - log_mass(low, high)
    got = truncated_normal_entropy(*(np.array([v]) for v in (0.0, 1.0, low, high)))[0]
    assert abs(got + log_density.mean()) < 5 * log_density.std() / math.sqrt(len(x))


def log_mass(low, high):
    low, high = (-high, -low) if low > -high else (low, high)
    return log_ndtr(high) + math.log1p(-math.exp(log_ndtr(low) - log_ndtr(high)))
