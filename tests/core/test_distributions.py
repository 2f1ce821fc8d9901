"""Distributions: densities integrate to one, draws agree with them."""

import math

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid, quad
from scipy.stats import kstest, norm

from thali.core.distributions import Beta, Gamma, InverseGamma, LogNormal, NormalOffset, PerDim, PerFeature

P_VALUE = 1e-4
N = 4000

POSITIVE = [
    Gamma(1.0, 1.0),
    Gamma(0.7, 3.0),
    Gamma(9.0, 0.02),
    InverseGamma(1.0, 0.1),
    InverseGamma(4.0, 50.0),
    LogNormal(0.0, 9.0),
    LogNormal(-2.0, 0.3),
]
names = repr


def on_log_scale(log_prob):
    """Density of t = log x."""
    return lambda t: math.exp(log_prob(math.exp(t)) + t)


def cdf_of(density, low, high, n=40001):
    """The distribution function by the trapezoid rule, and its total."""
    t = np.linspace(low, high, n)
    F = cumulative_trapezoid([density(a) for a in t], t, initial=0.0)
    return (lambda x: np.interp(x, t, F / F[-1])), F[-1]


@pytest.mark.parametrize("spec", POSITIVE, ids=names)
def test_density_on_the_positive_numbers(spec, rng):
    cdf, total = cdf_of(on_log_scale(spec.log_prob), -40.0, 40.0)
    assert abs(total - 1) < 1e-6
    draws = np.log([spec.sample(rng) for _ in range(N)])
    assert kstest(draws, cdf).pvalue > P_VALUE


def test_the_test_sees_a_wrong_draw(rng):
    cdf, _ = cdf_of(on_log_scale(Gamma(2.0, 1.0).log_prob), -40.0, 40.0)
    assert kstest(np.log([Gamma(2.2, 1.0).sample(rng) for _ in range(N)]), cdf).pvalue < P_VALUE


@pytest.mark.parametrize("spec", [Beta(1, 1), Beta(2.5, 0.8), Beta(0.5, 0.5)], ids=names)
def test_density_on_the_unit_interval(spec, rng):
    def on_logit_scale(t):
        x = 1 / (1 + math.exp(-t))
        return math.exp(spec.log_prob(x)) * x * (1 - x) if x < 1 else 0.0

    cdf, total = cdf_of(on_logit_scale, -36.0, 36.0)
    assert abs(total - 1) < 1e-6
    draws = np.array([spec.sample(rng) for _ in range(N)])
    assert kstest(np.log(draws) - np.log1p(-draws), cdf).pvalue > P_VALUE


def test_beta_draws_stay_inside(rng):
    draws = [Beta(1e-3, 1e-3).sample(rng) for _ in range(200)]
    assert all(0 < x < 1 and math.isfinite(Beta(1e-3, 1e-3).log_prob(x)) for x in draws)


@pytest.mark.parametrize("kind", [Gamma, InverseGamma])
def test_relative_priors_scale_with_the_data(kind, rng):
    """x = unit y with y from the unscaled prior: densities transform by 1/unit, and it is absolute from then on."""
    base, unit = kind(2.0, 3.0), 7.0
    scaled = kind(2.0, 3.0, relative=True).scaled(unit)
    assert not scaled.relative
    for x in (0.3, 2.0, 40.0):
        assert math.isclose(scaled.log_prob(x), base.log_prob(x / unit) - math.log(unit))
    assert math.isclose(scaled.centre, unit * base.centre)
    assert base.scaled(unit) == base
    assert scaled.scaled(unit) == scaled


def test_log_normal_is_already_free_of_scale():
    assert LogNormal(1.0, 2.0).scaled(5.0) == LogNormal(1.0, 2.0)


@pytest.mark.parametrize("spec", [*POSITIVE, Beta(2.0, 3.0)], ids=names)
def test_centre_is_inside_the_bulk(spec, rng):
    draws = np.array([spec.sample(rng) for _ in range(N)])
    assert 0.02 < (draws < spec.centre).mean() < 0.98


# ---- one value per dim

LEVEL = Gamma(1.5, 0.8)
PER_DIM = PerDim(shape=2.5, level=LEVEL)


def level_density(level, x, a=PER_DIM.shape):
    """p(level) prod_d InverseGamma(x_d; a, a level)."""
    return math.exp(LEVEL.log_prob(level) + sum(InverseGamma(a, a * level).log_prob(v) for v in x))


@pytest.mark.parametrize("x", [[0.4], [1.0, 2.5], [0.2, 0.3, 9.0, 1.0]], ids=str)
def test_per_dim_density_is_the_integral_over_the_level(x):
    integral = quad(lambda t: level_density(math.exp(t), x) * math.exp(t), -25, 10, limit=200, epsabs=0)[0]
    assert math.isclose(PER_DIM.log_prob(np.array(x)), math.log(integral), rel_tol=1e-7)


def test_per_dim_density_of_one_dim_agrees_with_its_draws(rng):
    cdf, total = cdf_of(on_log_scale(lambda x: PER_DIM.log_prob(np.array([x]))), -40.0, 40.0)
    assert abs(total - 1) < 1e-6
    assert kstest(np.log([PER_DIM.sample(rng, 1)[0] for _ in range(N)]), cdf).pvalue > P_VALUE


def test_per_dim_draws_share_their_level(rng):
    """Jointly, not only each on its own: the ratio of two dims is that of two inverse gammas with one level."""
    draws = np.array([PER_DIM.sample(rng, 2) for _ in range(N)])
    independent = 1 / rng.gamma(PER_DIM.shape, size=(2, N))
    assert kstest(np.log(draws[:, 0] / draws[:, 1]), np.log(independent[0] / independent[1])).pvalue > P_VALUE


@pytest.mark.parametrize("x", [[0.4], [0.2, 0.3, 9.0, 1.0]], ids=str)
def test_level_given_the_variances(x, rng):
    cdf, _ = cdf_of(lambda t: level_density(math.exp(t), x) * math.exp(t), -25.0, 8.0)
    draws = np.log([PER_DIM.sample_level(rng, np.array(x)) for _ in range(N)])
    assert kstest(draws, cdf).pvalue > P_VALUE
    assert kstest(draws + 0.1, cdf).pvalue < P_VALUE  # ten per cent off would be seen


def test_a_level_that_is_a_number(rng):
    """Variances are independent then; a number is no share of anything."""
    fixed, x = PerDim(2.5, 0.8), np.array([0.4, 1.0, 2.5])
    law = InverseGamma(2.5, 2.5 * 0.8)
    assert math.isclose(fixed.log_prob(x), sum(law.log_prob(v) for v in x), rel_tol=1e-12)
    units = fixed.replace(unit=np.array([1.0, 4.0, 0.5]))
    change = sum(law.log_prob(v / u) - math.log(u) for v, u in zip(x, units.unit, strict=True))
    assert math.isclose(units.log_prob(x), change, rel_tol=1e-12)
    assert fixed.sample_level(rng, x) == 0.8
    assert fixed.scaled(4.0) is fixed.by_dim(x) is fixed
    cdf, _ = cdf_of(on_log_scale(law.log_prob), -40.0, 40.0)
    assert kstest(np.log(fixed.sample(rng, N)), cdf).pvalue > P_VALUE


@pytest.mark.parametrize("level", [0.8, LEVEL], ids=str)
def test_variances_of_features(level, rng):
    """Precisions are Gamma given the level, which is integrated out of their density."""
    law, precisions = PerFeature(2.5, level), np.array([0.5, 1.2, 3.0])

    def given(value):
        return sum(Gamma(2.5, 2.5 * value).log_prob(p) for p in precisions)

    wanted = given(0.8)
    if level is LEVEL:

        def joint(t):
            return math.exp(given(math.exp(t)) + LEVEL.log_prob(math.exp(t)) + t)

        wanted = math.log(quad(joint, -25, 10, limit=200, epsabs=0)[0])
        cdf, _ = cdf_of(joint, -25.0, 8.0)
        assert kstest(np.log([law.draw_level(rng, precisions) for _ in range(N)]), cdf).pvalue > P_VALUE
    assert math.isclose(law.log_density(precisions), wanted, rel_tol=1e-7)


def test_per_dim_scales_its_level():
    scaled = PerDim(2.0, level=Gamma(1.0, 1.0, relative=True)).scaled(4.0)
    assert scaled == PerDim(2.0, level=Gamma(1.0, 0.25))


# ---- the offset


def test_offset_density_and_draws(rng):
    spec = NormalOffset(centre=np.array([1.0, -2.0]), spread=4.0)
    noise_var = np.array([0.5, 2.0])
    sd = np.sqrt(4.0 * noise_var)
    x = np.array([0.3, 0.9])
    assert math.isclose(spec.log_prob(x, noise_var), norm.logpdf(x, spec.centre, sd).sum())
    assert math.isclose(spec.log_prob(x, 0.5), norm.logpdf(x, spec.centre, math.sqrt(2.0)).sum())
    draws = np.array([spec.sample(rng, 2, noise_var) for _ in range(N)])
    for d in range(2):
        assert kstest(draws[:, d], norm(spec.centre[d], sd[d]).cdf).pvalue > P_VALUE
    assert np.mean(NormalOffset(spread=1e-12).sample(rng, 3, 1.0)) == pytest.approx(0.0, abs=1e-4)
