"""Variational factors of a bit and its weight: twins, numerical optima, golden values, mutants."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import few, many, mutant, plain, seeds
from reference.weights import code_factors as factors_twin
from reference.weights import mean_field_codes as twin
from reference.weights import slabs as slabs_twin
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import digamma, expit

from thali.kernels.weights import code_factors as factors
from thali.kernels.weights import mean_field_codes as kernel
from thali.kernels.weights import slabs

NORMAL = (0.0, 1.0 / 1.3, 0.5 * math.log(2 * math.pi * 1.3))
LAPLACE = (1.4, 0.0, math.log(2 / 1.4))
LAWS = {"normal": NORMAL, "laplace": LAPLACE, "both": (0.7, 0.4, slabs.log_slab(0.0, 0.0, 0.7, 0.4, 0.0))}
moderate = st.floats(-30, 30)
curves = st.floats(1e-6, 1e3)

# ---- one factor


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


# ---- a row


class Row:
    """Arguments of a pass."""

    def __init__(self, seed, K, law):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((K, 3))
        self.forms = A @ A.T + np.diag(0.3 * rng.random(K))
        self.product = A @ (2 * rng.standard_normal(3))
        self.odds, self.law = rng.standard_normal(K), LAWS[law]
        self.z, self.mean = rng.random(K), rng.standard_normal(K)
        self.pull, self.curve, self.spread = rng.standard_normal(K), 1 + rng.random(K), 0.2 + rng.random(K)

    def joint(self, module, sharpness=1.0, n_passes=1, moments=True):
        z, mean, pull, curve = (part.copy() for part in (self.z, self.mean, self.pull, self.curve))
        v, square = np.zeros_like(z), np.zeros_like(z)
        totals = [module.joint_moments(*self.law, z, pull, curve, v, square)] if moments else []
        g = self.product - self.forms @ v
        for _ in range(n_passes):
            arguments = g, self.forms, self.odds, *self.law, sharpness, z, mean, pull, curve, v, square
            totals.append(module.joint_pass(*arguments))
        return np.concatenate([z, mean, pull, curve, v, square, g, totals])

    def independent(self, module, sharpness=1.0, n_passes=1):
        z, mean, spread = (part.copy() for part in (self.z, self.mean, self.spread))
        z = (z > 0.5).astype(float) if sharpness > 1 else z
        v, square = np.zeros_like(z), np.zeros_like(z)
        totals = [module.independent_moments(*self.law, z, mean, spread, v, square)]
        g = self.product - self.forms @ v
        for _ in range(n_passes):
            arguments = g, self.forms, self.odds, *self.law, sharpness, z, mean, spread, v, square
            totals.append(module.independent_pass(*arguments))
        return np.concatenate([z, mean, spread, v, z * square, g, totals])

    def bound(self, total, z, v, square):
        """The row's part of the bound, up to a constant."""
        second = np.outer(v, v) - np.diag(v**2) + np.diag(square)
        return total + z @ self.odds + self.product @ v - 0.5 * np.sum(self.forms * second)


@few
@given(seeds, st.integers(0, 5), st.sampled_from(sorted(LAWS)), st.sampled_from([1.0, math.inf]), st.integers(0, 3))
def test_passes_equal_their_twins(seed, K, law, sharpness, n_passes):
    row = Row(seed, K, law)
    for run in (row.joint, row.independent)[: 1 if law == "both" else 2]:  # of an independent factor: one or the other
        np.testing.assert_allclose(run(kernel, sharpness, n_passes), run(twin, sharpness, n_passes), 1e-6, 1e-8)


class Part:
    """Arguments of `joint_rows` and `independent_rows`: some rows with missing cells, and an offset or none."""

    def __init__(self, seed, n_rows, K, law, missing, offset):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((K + offset, 4))
        self.of_dims = np.ascontiguousarray(np.einsum("kd,ld->dkl", A, A) + 0.2 * np.eye(K + offset))
        self.forms = self.of_dims.sum(axis=0)
        holes = rng.random((n_rows, 4)) < missing
        holes[:, 0] = False
        X = np.where(holes, 0.0, 2 * rng.standard_normal((n_rows, 4)))
        self.starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
        self.dims = np.nonzero(holes)[1].astype(np.int64)
        self.products, self.odds, self.law = X @ A[:K].T, rng.standard_normal(K), LAWS[law]
        self.local = [rng.random((n_rows, K)), *rng.standard_normal((2, n_rows, K)), 1 + rng.random((n_rows, K))]

    def run(self, rows, sharpness=1.0, n_passes=1):
        z, mean, pull, curve = (part.copy() for part in self.local)
        v, square = np.zeros_like(z), np.zeros_like(z)
        z = (z > 0.5).astype(float) if sharpness > 1 else z
        factors = (z, mean, pull, curve) if "joint" in rows.__name__ else (z, mean, curve)
        total = rows(
            self.products, self.starts, self.dims, self.forms, self.of_dims, self.odds, *self.law, sharpness,
            n_passes, *factors, v, square,
        )  # fmt: skip
        return np.concatenate([*(part.ravel() for part in factors), v.ravel(), (z * square).ravel(), [total]])


@few
@given(
    seeds, st.integers(1, 5), st.integers(0, 3), st.sampled_from(["normal", "laplace"]),
    st.sampled_from([0.0, 0.4, 0.9]), st.sampled_from([0, 1]), st.sampled_from([1.0, math.inf]), st.integers(0, 2),
)  # fmt: skip
def test_rows_equal_their_twins(seed, n_rows, K, law, missing, offset, sharpness, n_passes):
    part = Part(seed, n_rows, K, law, missing, offset)
    for name in ("joint_rows", "independent_rows"):
        mine = part.run(getattr(kernel, name), sharpness, n_passes)
        np.testing.assert_allclose(mine, part.run(getattr(twin, name), sharpness, n_passes), 1e-6, 1e-8)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("own_forms(forms.reshape(-1), flat_dims, cells,", "own_forms(forms.reshape(-1), flat_dims, cells[:0],"),
        ("total - forms[k, K] if", "total if"),
        ("total -= forms", "total += forms"),
    ],
)
def test_a_mistake_in_the_forms_of_a_row_is_seen(old, new):
    wrong = vars(kernel) | {"begin_row": mutant(kernel.begin_row, old, new)}
    function = plain(kernel.joint_rows)
    patched = type(function)(function.__code__, wrong, function.__name__)
    part = Part(0, 6, 3, "normal", 0.4, 1)
    right = part.run(twin.joint_rows)
    np.testing.assert_allclose(part.run(function), right, 1e-6, 1e-8)
    assert not np.allclose(part.run(patched), right, 1e-6, 1e-8)


def lowest_step(row, kind, sharpness, joint_pass=None):
    """The least that the bound of a row rises in a pass."""
    values = []
    K = len(row.z)

    class Module:
        joint_moments, independent_moments = kernel.joint_moments, kernel.independent_moments
        independent_pass = kernel.independent_pass

    Module.joint_pass = kernel.joint_pass if joint_pass is None else joint_pass
    for n_passes in range(1, 8):
        if kind == "joint":
            out = row.joint(Module, sharpness, n_passes)
            z, v, square = out[:K], out[4 * K : 5 * K], out[5 * K : 6 * K]
        else:
            out = row.independent(Module, sharpness, n_passes)
            z, v, square = out[:K], out[3 * K : 4 * K], out[4 * K : 5 * K]
            square = z * (out[K : 2 * K] ** 2 + (2 * out[2 * K : 3 * K] ** 2 if row.law[0] > 0 else out[2 * K : 3 * K]))
        values.append(row.bound(out[-1], z, v, square))
    return np.diff(values).min()


@pytest.mark.parametrize("kind", ["joint", "independent"])
@pytest.mark.parametrize("sharpness", [1.0, math.inf])
@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_the_bound_of_a_row_never_falls(kind, sharpness, law):
    for seed in range(20):
        assert lowest_step(Row(seed, 4, law), kind, sharpness) >= -1e-10


@pytest.mark.parametrize("law", LAWS)
def test_joint_bounds_are_higher(law):
    better = 0
    for seed in range(20):
        row = Row(seed, 1, law)  # one feature: one optimum
        joint, independent = row.joint(kernel, n_passes=50), row.independent(kernel, n_passes=50)
        m, s = independent[1:3]
        square = independent[0] * factors.square_of(m, s, row.law[0])
        low = row.bound(independent[-1], independent[:1], independent[3:4], np.array([square]))
        high = row.bound(joint[-1], joint[:1], joint[4:5], joint[5:6])
        assert high >= low - 1e-9
        better += high > low + 1e-3
    assert better > 10


# ---- mistakes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("g[k] + c * v[k]", "g[k]"),
        ("g[j] -= step * forms[k, j]", "g[j] += step * forms[k, j]"),
        ("square[k] = p * first, p * second", "square[k] = p * first, p * first**2"),
        ("log_odds[k] + log_integral", "log_odds[k] + log_integral + log_norm"),
        ("- p * (b * first", "- (b * first"),
        ("max(forms[k, k], 0.0)", "forms[k, 0]"),
    ],
)
def test_a_mistake_in_the_joint_pass_is_seen(old, new):
    wrong = mutant(kernel.joint_pass, old, new)
    rows = [Row(seed, 4, law) for seed in range(4) for law in LAWS]

    class Wrong:
        joint_moments, joint_pass = kernel.joint_moments, wrong

    assert not all(np.allclose(row.joint(Wrong), row.joint(twin), 1e-6, 1e-8) for row in rows)


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
