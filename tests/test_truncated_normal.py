"""Draws between bounds have the law of a truncated normal, far out in a tail as well."""

import math

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import kstest, truncnorm

from thali.numerics.truncated_normal import draw_truncated_normal, truncated_normal_entropy

INF = math.inf
BOUNDS = [
    (-INF, INF), (0.0, INF), (-INF, 0.0), (-1.0, 2.0), (-5.0, -4.9), (8.0, 9.0), (29.9, INF), (-INF, -30.1),
    (35.0, 35.01), (-200.001, -200.0), (5e3, INF), (9.99e3, INF), (1.01e4, INF), (-2e4, -2e4 + 1e-4), (-40.0, INF),
]  # fmt: skip


def drawn(rng, low, high, mean=0.0, sd=1.0, size=20_000):
    whole = np.ones(size)
    return draw_truncated_normal(rng, mean * whole, sd * whole, low * whole, high * whole)


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


def test_extreme_uniforms_stay_between_the_bounds():
    class Ends:
        def random(self, shape):
            return np.resize([0.0, np.nextafter(1.0, 0.0)], shape)

    for low, high in BOUNDS:
        x = drawn(Ends(), low, high, size=2)
        assert np.isfinite(x).all()
        assert ((x >= low) & (x <= high)).all()


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
