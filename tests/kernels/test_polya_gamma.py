"""Polya-Gamma variables: moments, Laplace transform and distribution, twins, and mistakes that are seen."""

import numpy as np
import pytest
from mutants import plain_mutant
from reference.weights import polya_gamma as twin
from scipy import stats
from scipy.integrate import cumulative_simpson

from thali.kernels.weights import polya_gamma as kernel
from thali.testing import z_limit
from thali.testing.zscores import z_scores

TILTS = [0.0, 1e-3, 0.7, -1.5, 3.0, 3.2, 8.0, 40.0]  # 3.125 is where another proposal takes over


def draws(z, n, rng, draw=kernel.draw_polya_gamma):
    return np.array([draw(z, rng) for _ in range(n)])


def misfits(z, x):
    """z-scores of mean, variance and Laplace transform of draws from PG(1, z)."""
    mean, var = kernel.polya_gamma_moments(z)
    t = np.array([0.3, 2.0, 10.0]) * (1.0 + z * z)
    laplace = np.cosh(z / 2) / np.cosh(np.sqrt(0.5 * (0.5 * z * z + t)))
    return z_scores(
        np.column_stack([x, (x - mean) ** 2, np.exp(-np.outer(x, t))]), np.concatenate([[mean, var], laplace])
    )


def distribution(z, n=20_001):
    """The distribution function of PG(1, z), by its density (Polson, Scott & Windle, section 2)."""
    x = np.linspace(1e-4, 4.0, n)
    odd = 2 * np.arange(60)[:, None] + 1
    signs = 1 - 2 * (np.arange(60)[:, None] % 2)
    density = np.sum(signs * odd * np.exp(-(odd**2) / (8 * x)), axis=0) / np.sqrt(2 * np.pi * x**3)
    density *= np.cosh(z / 2) * np.exp(-0.5 * z * z * x)
    whole = cumulative_simpson(density, x=x, initial=0.0)
    assert whole[-1] == pytest.approx(1.0, abs=1e-6)
    return lambda at: np.interp(at, x, whole)


def test_golden_moments():
    """Golden G12, the limit of no tilt, and the definition as a sum of gamma variables."""
    np.testing.assert_allclose(kernel.polya_gamma_moments(1.5), [0.211716317462, 0.0278088290632], rtol=1e-10)
    np.testing.assert_allclose(kernel.polya_gamma_moments(0.0), [1 / 4, 1 / 24], rtol=1e-14)
    for z in [*TILTS, 0.0199, 0.0201, 700.0]:
        np.testing.assert_allclose(kernel.polya_gamma_moments(z), twin.polya_gamma_moments(z), rtol=1e-8)


@pytest.mark.parametrize("z", TILTS)
def test_draws_equal_their_twin(z):
    for seed in range(40):
        mine, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
        found = kernel.draw_polya_gamma(z, mine), kernel.draw_polya_gamma_sum(3, z, mine), mine.random()
        wanted = twin.draw_polya_gamma(z, theirs), twin.draw_polya_gamma_sum(3, z, theirs), theirs.random()
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert kernel.chance_beyond(0.5 * abs(z)) == pytest.approx(twin.chance_beyond(0.5 * abs(z)), rel=1e-9)


@pytest.mark.parametrize("half", [0.2, 2.0, 100.0])
def test_proposals_before_the_break_equal_their_twin(half):
    for seed in range(40):
        mine, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
        found = kernel.draw_before(half, mine), mine.random()
        np.testing.assert_allclose(found, (twin.draw_before(half, theirs), theirs.random()), rtol=1e-9)


@pytest.mark.parametrize("z", TILTS)
def test_draws_have_their_law(z, rng):
    x = draws(z, 20_000, rng)
    assert np.abs(misfits(z, x)).max() <= z_limit(5 * len(TILTS))
    if abs(z) < 10:
        assert stats.kstest(x, distribution(z)).pvalue > 1e-4 / len(TILTS)


@pytest.mark.parametrize("z", [0.0, 1.5, 6.0])
def test_draws_are_like_those_of_another_package(z, rng):
    other = pytest.importorskip("polyagamma")
    x = other.random_polyagamma(1, z, size=20_000, random_state=np.random.default_rng(1))
    assert stats.ks_2samp(draws(z, 20_000, rng), x).pvalue > 1e-4


@pytest.mark.parametrize(
    ("old", "new", "z"),
    [
        ("speed = 2.0 / x", "speed = 0.5 / x", 0.0),
        ("rng.random() <= math.exp(-0.5 * half * half * x)", "True", 3.0),
        ("if rng.random() * (1.0 + half * x) > 1.0:", "if False:", 8.0),
        ("rate = 0.125 * math.pi * math.pi + 0.5 * half * half\n    beyond", "rate = 1.0\n    beyond", 1.5),
        ("math.exp(log_mass + half + far)", "0.0", 1.5),
    ],
)
def test_a_mistake_is_seen(old, new, z, rng):
    wrong = plain_mutant(kernel, old, new)["draw_polya_gamma"]
    assert np.abs(misfits(z, draws(z, 20_000, rng, wrong))).max() > 1.3 * z_limit(5 * len(TILTS))


class Scripted:
    """Random numbers as they are given."""

    def __init__(self, uniform, exponential):
        self.random, self.standard_exponential = iter(uniform).__next__, iter(exponential).__next__


@pytest.mark.parametrize("old", ["", "u = rng.random()", "(2.0 * i + 1.0) * math.exp"])
def test_a_proposal_is_rejected_by_the_series(old):
    """Which happens to one in a thousand, so that no sample would tell; without rejection, or with other terms, not."""
    draw = plain_mutant(kernel, old or "PG(n, z): exact", {"u = rng.random()": "u = 0.0"}.get(old, "math.exp"))
    found = draw["draw_polya_gamma"](0.0, Scripted([0.0, 0.9955, 0.0, 0.5], [0.0, 1.0]))
    first, second = 0.16, 0.16 + 2 / np.pi**2
    assert found == pytest.approx(first if old else second)
    wanted = twin.draw_polya_gamma(0.0, Scripted([0.0, 0.9955, 0.0, 0.5], [0.0, 1.0]))
    assert wanted == pytest.approx(second)


@pytest.mark.parametrize("z", [0.0, 2.0])
def test_a_sum_of_many_is_as_good_as_normal(z, rng):
    """A few below the number from which sums are normal, and a few above it: their laws are nearly the same."""
    low = np.array([kernel.draw_polya_gamma_sum(170, z, rng) for _ in range(4000)]) / 170
    high = np.array([kernel.draw_polya_gamma_sum(171, z, rng) for _ in range(4000)]) / 171
    mean, var = kernel.polya_gamma_moments(z)
    for n, x in ((170, low), (171, high)):
        assert np.abs(z_scores(np.column_stack([x, (x - mean) ** 2]), np.array([mean, var / n]))).max() <= z_limit(8)
    assert stats.ks_2samp(low, high).statistic < 0.05
    assert kernel.draw_polya_gamma_sum(0, z, rng) == 0.0


def test_any_tilt_gives_a_number(rng):
    for z in [0.0, 1e-300, 59.9, 60.1, 1e3, 1e8]:
        x = draws(z, 200, rng)
        assert (x > 0).all()
        assert np.isfinite(x).all()
        assert np.isfinite(kernel.polya_gamma_moments(z)).all()
