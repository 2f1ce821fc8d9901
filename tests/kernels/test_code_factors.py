"""Variational factors of a bit and its weight: twins, numerical optima, golden values, mutants."""

import math

import numpy as np
import pytest
from code_laws import LAPLACE, LAWS, curves, moderate
from hypothesis import given
from hypothesis import strategies as st
from problems import many, mutant, plain
from reference.weights import code_factors as factors_twin
from reference.weights import mean_field_codes as twin
from reference.weights import slabs as slabs_twin
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import digamma, expit

from thali.kernels.weights import code_factors as factors
from thali.kernels.weights import mean_field_codes as kernel
from thali.kernels.weights import slabs


@many
@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e4), st.sampled_from(sorted(LAWS)))
def test_a_slab_in_one_call_equals_its_parts(b, c, law):
    whole = slabs.slab_factor(b, c, *LAWS[law])
    assert whole == pytest.approx((slabs.log_slab(b, c, *LAWS[law]), *slabs.slab_moments(b, c, *LAWS[law][:2])), 1e-9)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("b", "c"), [(0.4, 0.9), (-6.0, 2.0), (25.0, 3.0), (0.2, 400.0), (-300.0, 40.0)])
def test_joint_divergence_equals_its_twin(law, b, c):
    mine = factors.joint_divergence(b, c, *LAWS[law])
    assert mine == pytest.approx(factors_twin.joint_divergence(b, c, *LAWS[law]), rel=1e-6, abs=1e-9)


@many
@given(moderate, curves, st.floats(1e-3, 1e2))
def test_location_and_spread_equal_their_twins(b, c, spread):
    location = factors.best_location(b, c, spread)
    if c * spread > 1e-3 and abs(b) < 20:  # elsewhere the printed form cancels
        assert location == pytest.approx(factors_twin.best_location(b, c, spread), rel=1e-7, abs=1e-9)
    t = abs(location) / spread
    assert abs(b) - 1 + math.exp(-t) == pytest.approx(c * abs(location), rel=1e-9, abs=1e-12)
    assert factors.best_spread(c, location) == pytest.approx(factors_twin.best_spread(c, location), rel=1e-9)


@pytest.mark.parametrize("c", [1e-200, 1e-30, 1e-9])
def test_a_bit_that_is_all_but_off_leaves_the_weight_its_prior(c):
    mean, spread = factors.independent_weight(1e-14, c, 0.7, 0.4, 2.0, 0.0)
    assert mean == pytest.approx(0.0, abs=1e-12)
    assert spread == pytest.approx(0.5, rel=1e-8)


def test_bits_equal_their_twins():
    for odds in (-800.0, -3.0, -1e-9, 0.0, 1e-9, 2.0, 800.0):
        for sharpness in (1.0, math.inf):
            assert factors.best_bit(odds, sharpness) == pytest.approx(factors_twin.best_bit(odds, sharpness))
    for p in (0.0, 1e-300, 0.3, 1.0 - 1e-16, 1.0):
        assert factors.bit_entropy(p) == pytest.approx(factors_twin.bit_entropy(p), abs=1e-15)


@pytest.mark.parametrize("law", LAWS)
def test_weight_divergence_equals_quadrature(law):
    rate, precision, log_norm = LAWS[law]
    for mean, spread in ((0.8, 0.3), (-0.2, 1.1), (0.0, 0.5)):

        def log_q(w, mean=mean, spread=spread):
            if rate > 0:
                return -abs(w - mean) / spread - math.log(2 * spread)
            return -0.5 * (w - mean) ** 2 / spread - 0.5 * math.log(2 * math.pi * spread)

        def integrand(w, log_q=log_q):
            log_p = -rate * abs(w) - 0.5 * precision * w * w - log_norm
            return math.exp(log_q(w)) * (log_q(w) - log_p)

        wanted = quad(integrand, -40, 40, points=sorted({0.0, mean}), limit=400)[0]
        for module in (factors, factors_twin):
            assert module.weight_divergence(mean, spread, rate, precision, log_norm) == pytest.approx(wanted, abs=1e-7)
        assert factors.square_of(mean, spread, rate) == pytest.approx(factors_twin.square_of(mean, spread, rate))


def joint_objective(p, pull, curve, b, c, log_odds, law):
    """What the bound says of one factor: prior and entropy of the bit, likelihood, divergence of the weight."""
    divergence, first, second = factors.joint_divergence(pull, curve, *law)
    return factors.bit_entropy(p) + p * (log_odds + b * first - 0.5 * c * second - divergence)


def independent_objective(p, mean, spread, b, c, log_odds, law):
    fit = b * mean - 0.5 * c * factors.square_of(mean, spread, law[0])
    return factors.bit_entropy(p) + p * (log_odds + fit) - factors.weight_divergence(mean, spread, *law)


@pytest.mark.parametrize("law", LAWS)
def test_joint_is_the_optimum_and_better_than_independent(law, rng):
    for _ in range(20):
        b, c, odds = 3 * rng.standard_normal(), rng.exponential(2), rng.standard_normal()
        log_integral, _, _ = slabs.slab_factor(b, c, *LAWS[law])
        p, _ = factors.best_bit(odds + log_integral, 1.0)
        best = joint_objective(p, b, c, b, c, odds, LAWS[law])
        # the variational principle: the optimum over all q(z, w) is the log of the sum over z and w
        assert best == pytest.approx(np.logaddexp(0.0, odds + log_integral), rel=1e-9)
        for _ in range(5):
            other = rng.random(), b + 0.3 * rng.standard_normal(), c * math.exp(0.3 * rng.standard_normal())
            assert joint_objective(*other, b, c, odds, LAWS[law]) <= best + 1e-12
        q, mean, spread = 0.5, 0.3, 0.6
        for _ in range(30):
            mean, spread = factors.independent_weight(q * b, q * c, mean, spread, *LAWS[law][:2])
            q = expit(odds + b * mean - 0.5 * c * factors.square_of(mean, spread, LAWS[law][0]))
            assert independent_objective(q, mean, spread, b, c, odds, LAWS[law]) <= best + 1e-12


def worst_slope(independent_weight, law, rng):
    """Largest derivative of the bound by location or log spread, at what is said to be the optimum of both in turn."""
    worst = 0.0
    for _ in range(10):
        p, b, c = rng.random(), 3 * rng.standard_normal(), rng.exponential(2)
        mean, spread = 0.3, 0.6
        for _ in range(200):
            mean, spread = independent_weight(p * b, p * c, mean, spread, *law[:2])
        h = 1e-5
        for dm, ds in ((h, 0.0), (0.0, h)):
            up = independent_objective(p, mean + dm, spread * math.exp(ds), b, c, 0.0, law)
            down = independent_objective(p, mean - dm, spread * math.exp(-ds), b, c, 0.0, law)
            worst = max(worst, abs(up - down) / (2 * h))
    return worst


@pytest.mark.parametrize("law", LAWS)
def test_slopes_are_zero_at_the_independent_optimum(law, rng):
    assert worst_slope(factors.independent_weight, LAWS[law], rng) < 1e-6


def test_each_coordinate_is_the_numerical_optimum(rng):
    law = (1.0, 0.0, math.log(2))
    for _ in range(10):
        b, c, spread = 3 * rng.standard_normal(), 0.1 + rng.exponential(2), rng.exponential() + 0.05
        mean = factors.best_location(b, c, spread)

        def of_mean(m, b=b, c=c, spread=spread):
            return -independent_objective(1.0, m, spread, b, c, 0.0, law)

        assert minimize_scalar(of_mean, bracket=(-1.0, 1.0), tol=1e-12).x == pytest.approx(mean, rel=1e-6, abs=1e-6)

        def of_spread(log_spread, b=b, c=c, mean=mean):
            return -independent_objective(1.0, mean, math.exp(log_spread), b, c, 0.0, law)

        found = math.exp(minimize_scalar(of_spread, bracket=(-2.0, 0.5), tol=1e-12).x)
        assert found == pytest.approx(factors.best_spread(c, mean), rel=1e-5)


# ---- golden values


def golden_state():
    """G11 of the reference, with the location and the scale of G21."""
    n, d = np.arange(4)[:, None], np.arange(3)
    X = np.sin((n + 1) * (d + 1)) + 0.7 * np.cos(0.3 * (n + 1) + (d + 1))
    nu = expit(np.array([[0.3, -0.5], [1.0, 0.2], [-0.7, 0.9], [0.1, -1.2]]))
    phi, s2 = np.array([[0.5, -0.2, 0.1], [-0.3, 0.8, 0.4]]), np.array([0.2, 0.35])
    tau = np.array([[1.4, 2.2], [0.9, 3.1]])
    mu = np.array([[0.7, -0.4], [1.2, 0.3], [-0.8, 0.05], [0.2, -0.9]])
    eta = np.array([[0.5, 0.9], [0.3, 1.2], [0.7, 0.4], [0.6, 0.8]])
    return X, nu, phi, s2, tau, mu, eta


def test_golden_independent():
    X, nu, phi, s2, tau, mu, eta = golden_state()
    gram, law = phi @ phi.T + np.diag(3 * s2), (1.0, 0.0, math.log(2))
    b = phi[0] @ (X[0] - nu[0, 1] * mu[0, 1] * phi[1]) / 0.36
    c = gram[0, 0] / 0.36
    p, m, s = nu[0, 0], mu[0, 0], eta[0, 0]
    h = 1e-5
    slopes = []
    for dm, ds in ((h, 0.0), (0.0, h)):
        up, down = (independent_objective(p, m + i * dm, s + i * ds, b, c, 0.0, law) for i in (1, -1))
        slopes.append((up - down) / (2 * h))
    assert slopes == pytest.approx([-1.23211588071, -0.027939005489], rel=1e-7)
    assert factors.best_location(p * b, p * c, s) == pytest.approx(0.167971664802, rel=1e-9)
    assert factors.best_spread(p * c, m) == pytest.approx(0.49645127792, rel=1e-9)
    odds = digamma(tau[0, 0]) - digamma(tau[0, 1]) + b * m - 0.5 * c * factors.square_of(m, s, 1.0)
    assert odds == pytest.approx(-1.20152441104, rel=1e-9)


def golden_normal(joint_pass):
    """G22 of the linear-Gaussian model of the beta-process reference: (M[0], mean[0], q(z)[1], E|X - M V|^2)."""

    def wave(c, n, m):
        return np.sin(c + 1.3 * np.arange(n)[:, None] + 0.7 * np.arange(m))

    X, z, mean, t = 2 * wave(0.1, 4, 6), 0.5 + 0.3 * wave(0.2, 2, 6), wave(0.8, 2, 6), 1.5
    first, second = z * mean, z * (mean**2 + 0.5)
    A = first @ first.T + np.diag((second - first**2).sum(axis=1))
    cov = np.linalg.inv(1e-6 * np.eye(2) + t * A)
    M = t * X @ first.T @ cov
    P = M.T @ M + 4 * cov
    local = [np.zeros((6, 2)) for _ in range(4)]
    v, square = first.T.copy(), np.zeros((6, 2))
    for n in range(6):
        g = t * (M.T @ X[:, n] - P @ v[n])
        law = 0.0, 1.0, 0.5 * math.log(2 * math.pi)
        joint_pass(g, t * P, np.full(2, math.log(0.4 / 0.6)), *law, 1.0, *[part[n] for part in local], v[n], square[n])
    A = v.T @ v + np.diag((square - v**2).sum(axis=0))
    return M[0], local[1][:, 0], local[0][:, 1], np.sum(X**2) - 2 * np.sum(X * (M @ v.T)) + np.sum(P * A)


GOLDEN_NORMAL = (
    [0.772415053014, -0.249325414122],
    [0.691026454054, 1.21426344109, 1.14984634934, 0.508799144945, -0.381871850643, -1.07532541533],
    [0.62118452343, 0.278441131347, 0.287681348272, 0.531825945869, 0.703476059274, 0.404052635431],
    27.0891731699,
)


def equals(mine, golden):
    return all(a == pytest.approx(b, rel=1e-9) for a, b in zip(mine, golden, strict=True))


def test_golden_normal():
    assert equals(golden_normal(kernel.joint_pass), GOLDEN_NORMAL)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("best_location", "size - 1.0 - slope * t + e", "size - 1.0 - slope * t"),  # |E w| for E|w|
        ("best_spread", "- 2.0 * c * h * h\n", "- c * h * h\n"),  # E w^2 = m^2 + h^2
        ("best_spread", "(h + m) * e", "h * e"),
    ],
)
def test_a_mistake_in_a_coordinate_is_seen(name, old, new, rng):
    wrong = mutant(getattr(factors, name), old, new)
    source = vars(factors) | {name: wrong}
    function = plain(factors.independent_weight)
    patched = type(function)(function.__code__, source)
    assert worst_slope(function, LAPLACE, rng) < 1e-6
    assert worst_slope(patched, LAPLACE, rng) > 1e-3


@pytest.mark.parametrize(
    ("old", "new"),
    [("p * (log_odds + fit)", "p * fit"), ("- factors.weight_divergence", "- p * factors.weight_divergence")],
)
def test_a_wrong_objective_is_seen(old, new):
    """An independent weight pays for its divergence whether the bit is on or off."""
    wrong = mutant(independent_objective, old, new)
    arguments = 0.4, 0.7, 0.5, 1.2, 0.9, -0.3, LAPLACE
    assert wrong(*arguments) != pytest.approx(independent_objective(*arguments), abs=1e-3)


def test_golden_normal_sees_a_mistake():
    wrong = mutant(kernel.joint_pass, "p * first, p * second", "p * first, p * (second + 1.0)")
    assert not equals(golden_normal(wrong), GOLDEN_NORMAL)


def test_twin_of_slab_factor():
    for law in LAWS.values():
        assert slabs.slab_factor(0.7, 1.3, *law) == pytest.approx(slabs_twin.slab_factor(0.7, 1.3, *law), rel=1e-7)


@pytest.mark.parametrize("law", LAWS)
def test_weights_and_draws_equal_their_twins(law, rng):
    bits = rng.random((6, 3)) < 0.6
    pull, curve = 3 * rng.standard_normal(bits.shape), rng.exponential(size=bits.shape)
    results = []
    for module in (kernel, twin):
        mean, square, codes = np.zeros((3, *bits.shape))
        module.weights_on(pull, curve, *LAWS[law][:2], mean, square)
        module.draw_joint(bits, pull, curve, *LAWS[law][:2], codes, np.random.default_rng(3))
        results.append(np.stack([mean, square, codes]))
    np.testing.assert_allclose(*results, 1e-6, 1e-9)
    assert np.array_equal(results[0][2] != 0, bits)
