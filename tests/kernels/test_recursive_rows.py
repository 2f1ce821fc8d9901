"""Rows of the recursive IBP: goldens of the published updates, the kernel against its twin with whole covariances, and
what must hold of every row."""

import numpy as np
import pytest
from problems import mutant, plain
from reference.bits import recursive_rows as twin
from reference.bits import row_births as births_twin
from scipy.optimize import approx_fprime

from thali.kernels.bits import recursive_rows as kernel
from thali.kernels.bits import row_births
from thali.kernels.bits.recursive_slots import Law, Plan, Slots, Totals
from thali.priors import recursion

# G05, G06: a row of two dims and three features with covariances of their own
ROW, Q, NOISE = np.array([1.3, -0.4]), np.array([0.6, 0.3, 0.15]), 0.7
MU0 = np.array([[1.0, 0.2], [-0.3, 0.8], [0.1, -0.5]])
SIGMA0 = np.array([[[0.9, 0.2], [0.2, 0.5]], [[0.7, -0.1], [-0.1, 0.6]], [[1.1, 0.0], [0.0, 1.3]]])


def fitted(n_sweeps):
    b, mu, Sigma = Q.copy(), MU0.copy(), SIGMA0.copy()
    odds, bounds = np.log(Q / (1 - Q)), []
    for s in range(n_sweeps):
        twin.sweep(ROW, b, odds, mu, Sigma, MU0, SIGMA0, NOISE, twin.in_order(s % 2 == 1, 3))
        bounds.append(twin.row_elbo(ROW, b, odds, mu, Sigma, MU0, SIGMA0, NOISE)[0])
    return b, mu, Sigma, bounds


def test_golden_sweep():
    b, mu, Sigma, bounds = fitted(1)
    np.testing.assert_allclose(b, [0.61430984821, 0.04324859904, 0.041622315573], atol=1e-9)
    np.testing.assert_allclose(
        mu,
        [[1.0918453907, 0.039279013211], [-0.25480850283, 0.75174509496], [0.13316892945, -0.49688892384]],
        atol=1e-9,
    )
    np.testing.assert_allclose(Sigma[0], [[0.49513365989, 0.07860449412], [0.07860449412, 0.33792467165]], atol=1e-9)
    assert bounds[0] == pytest.approx(-3.0295400346, abs=1e-9)


def test_golden_fixed_point():
    b, mu, Sigma, bounds = fitted(200)
    np.testing.assert_allclose(b, [0.73903915766, 0.061288887846, 0.042844515134], atol=1e-8)
    np.testing.assert_allclose(mu[0], [1.1036084321, 0.01297643632], atol=1e-8)
    np.testing.assert_allclose(Sigma[1], [[0.65883675786, -0.0895282984], [-0.0895282984, 0.56930845946]], atol=1e-8)
    assert bounds[-1] == pytest.approx(-2.9946443085, abs=1e-8)
    start = twin.row_elbo(ROW, Q, np.log(Q / (1 - Q)), MU0, SIGMA0, MU0, SIGMA0, NOISE)[0]
    assert start == pytest.approx(-3.6925592653, abs=1e-8)
    assert (np.diff([start, *bounds]) >= -1e-12).all()  # no update lowers the bound


def slots(room, n_dims, width=1):
    return Slots(
        np.zeros((room, n_dims)), np.zeros((room, width)), np.zeros(room), np.zeros(room), np.zeros(room),
        np.zeros(room, np.int64), np.zeros((room, room)), np.zeros(room, bool),
    )  # fmt: skip


def totals():
    return Totals(*(np.zeros(1) for _ in range(6)))


PLAN = Plan(20, 1e-4, 1.0, 1e-3, 50, True, 0.0)
PAPER = Plan(3, 0.0, 1.0, 1e-3, 50, False, 1.0)
LAW = Law(1.5, 1.0, row_births.COMONOTONE, 0.25, 1.0)


def stream(filter_rows, X, law=LAW, plan=PLAN, room=24, width=1):
    """Everything after the rows, and what was told."""
    s, t, notes = slots(room, X.shape[1], width), totals(), np.zeros((200, 4))
    at, K, told = 0, 0, []
    while at < len(X):
        at, K, n = filter_rows(X, at, K, s, t, law, plan, notes)
        told += notes[:n].tolist()
        assert n or at == len(X), "It is out of room."
    return [part[:K, :K] if part is s.together else part[:K] for part in s] + list(t) + [np.array(told)]


def rows(seed, n, n_dims=4, missing=0.0):
    rng = np.random.default_rng(seed)
    X = (rng.random((n, 3)) < 0.4) @ rng.standard_normal((3, n_dims)) + 0.5 * rng.standard_normal((n, n_dims))
    return np.where(rng.random(X.shape) < missing, np.nan, X)


CASES = {
    "comonotone": {},
    "anchored": {"law": LAW._replace(births=row_births.ANCHORED)},
    "independent": {"law": LAW._replace(births=row_births.INDEPENDENT)},
    "poisson": {"law": LAW._replace(births=row_births.POISSON, concentration=2.0)},
    "forgetting": {"plan": PLAN._replace(keep=0.9, fade=0.02)},
    "missing": {"width": 4, "missing": 0.3},
    "paper": {"plan": PAPER},
}


@pytest.mark.parametrize("case", CASES)
def test_kernel_equals_its_twin(case):
    settings = dict(CASES[case])
    X = rows(3, 40, missing=settings.pop("missing", 0.0))
    mine, its = stream(kernel.filter_rows, X, **settings), stream(twin.filter_rows, X, **settings)
    assert len(mine[2]) >= 1
    for a, b in zip(mine, its, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)


MUTANTS = [
    ("filter_recorded", "gain = p / (ridge + p) if", "gain = p if", "comonotone"),
    ("filter_recorded", "n_seen * start + pull * total", "n_seen * start + 0.5 * total / law.noise", "comonotone"),
    ("filter_recorded", "total > law.noise * n_seen", "total < law.noise * n_seen", "anchored"),
    ("settle_row", "existence(law, exists, count, p, q[k], before)", "p", "anchored"),
    ("lose_weight", "(keep * (ridge + rows)) / (ridge + keep * rows)", "1.0", "forgetting"),
    (
        "filter_recorded",
        "weight[k, i] = ridge + slots.rows[k, seen[i]]",
        "weight[k, i] = ridge + slots.rows[k, i]",
        "missing",
    ),
    ("filter_recorded", "share[k] = b[k] / (b[k] + plan.ossify * count) if", "share[k] = 1.0 if", "paper"),
]


@pytest.mark.parametrize(("name", "old", "new", "case"), MUTANTS)
def test_a_wrong_kernel_differs_from_the_twin(name, old, new, case, monkeypatch):
    settings = dict(CASES[case])
    X = rows(3, 25, missing=settings.pop("missing", 0.0))
    monkeypatch.setattr(kernel, "filter_recorded", plain(kernel.filter_recorded))
    monkeypatch.setattr(kernel, name, mutant(getattr(kernel, name), old, new))
    wrong, right = stream(plain(kernel.filter_rows), X, **settings), stream(twin.filter_rows, X, **settings)
    same = all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-7, atol=1e-8) for a, b in zip(wrong, right, strict=True)
    )
    assert not same


def test_golden_average_by_counts():
    """G09: a feature of 3.2 rows, b = 0.8."""
    share = 0.8 / (0.8 + 3.2)
    # variances 0.4 before and 0.1 after the update, in units of the noise: weights 2.5 and 10
    mean, old, weight = np.zeros((1, 2)), np.array([[0.5, 2.5]]), np.array([[2.5]])
    b, square, spread = np.array([7.5]), np.zeros(1), np.zeros(1)
    star = np.array([1.0, 2.0])
    own = old[0] + (star - old[0]) / (7.5 / 10.0)  # what the feature alone would have of the row
    for parts in (kernel, twin):
        r = 7.5 / 7.5 * own - 0.0 * mean[0]
        mean[:] = 0.0
        parts.scan_means(False, 1, 2, mean, old, weight, np.array([share]), r, b, square, spread)
        np.testing.assert_allclose(mean[0], [0.6, 2.4], atol=1e-12)
        assert spread[0] / 2 == pytest.approx(0.34, abs=1e-12)


# ---- parts of a row


def row_of(seed, K=4, n_dims=5, width=1):
    rng = np.random.default_rng(seed)
    mean = rng.standard_normal((K, n_dims))
    weight = 0.3 + 5 * rng.random((K, width))
    b, odds = rng.random(K), rng.standard_normal(K)
    x = rng.standard_normal(n_dims)
    spread = n_dims / weight[:, 0] if width == 1 else (1 / weight).sum(axis=1)
    return dict(
        mean=mean.copy(), old=mean.copy(), weight=weight, share=np.ones(K), r=x - b @ mean, b=b, log_odds=odds,
        square=(mean**2).sum(axis=1), spread=spread,
    )  # fmt: skip


def swept(parts, row, n, noise=0.4):
    """Passes over a row by these functions, and its bound after each."""
    r = {name: value.copy() for name, value in row.items()}
    K, D = r["mean"].shape
    bounds = []
    for s in range(n):
        parts.scan_bits(
            s % 2 == 1, K, D, r["mean"], r["r"], r["b"], r["log_odds"], r["square"], r["spread"], noise
        )  # fmt: skip
        parts.scan_means(
            s % 2 == 1, K, D, r["mean"], r["old"], r["weight"], r["share"], r["r"], r["b"], r["square"], r["spread"]
        )  # fmt: skip
        bounds.append(
            parts.row_bound(
                K, D, r["mean"], r["old"], r["weight"], r["share"], r["b"], r["r"], r["b"], r["log_odds"], r["square"],
                r["spread"], noise,
            )[0]
        )  # fmt: skip
    return r, np.array(bounds)


@pytest.mark.parametrize("width", [1, 5])
def test_passes_over_a_row_equal_their_twins_and_never_lower_its_bound(width):
    row = row_of(0, width=width)
    mine, bounds = swept(kernel, row, 60)
    its, same = swept(twin, row, 60)
    for name in mine:
        np.testing.assert_allclose(mine[name], its[name], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(bounds, same, rtol=1e-10)
    assert (np.diff(bounds) >= -1e-11).all()


def test_the_gradient_of_the_row_bound_vanishes_at_the_fixed_point():
    row = row_of(1)
    end, _ = swept(kernel, row, 500)
    K, D = end["mean"].shape
    x = end["r"] + end["b"] @ end["mean"]
    Sigma0 = [0.4 / w[0] * np.eye(D) for w in row["weight"]]

    def bound(theta):
        b, mu, v = theta[:K], theta[K : K + K * D].reshape(K, D), np.exp(theta[K + K * D :])
        Sigma = [value * np.eye(D) for value in v]
        return twin.row_elbo(x, b, row["log_odds"], mu, Sigma, row["old"], Sigma0, 0.4)[0]

    v = 0.4 * end["spread"] / D
    theta = np.concatenate([end["b"], end["mean"].ravel(), np.log(v)])
    steps = 1e-5 * np.eye(len(theta))
    gradient = np.array([(bound(theta + e) - bound(theta - e)) / 2e-5 for e in steps])
    assert np.abs(gradient).max() < 1e-6
    assert np.abs(approx_fprime(0.99 * theta, bound, 1e-6)).max() > 1e-3


def test_the_better_of_two_climbs_is_taken():
    row = row_of(2)
    K, D = row["mean"].shape
    x, q = row["r"] + row["b"] @ row["mean"], 1 / (1 + np.exp(-row["log_odds"]))
    ends = []
    for parts in (kernel, twin):
        b, r = np.zeros(K), np.zeros(D)
        parts.start_bits(
            x, K, D, row["mean"], r, b, q, row["log_odds"], row["square"], row["spread"], 0.4, 30, 1e-10,
            np.zeros(K), np.zeros(D),
        )  # fmt: skip
        ends.append((b, r))
    np.testing.assert_allclose(ends[0][0], ends[1][0], atol=1e-9)
    np.testing.assert_allclose(ends[0][1], x - ends[0][0] @ row["mean"], atol=1e-9)
    values = [parts.bits_bound(K, D, ends[0][1], ends[0][0], row["log_odds"], row["square"], row["spread"], 0.4)
              for parts in (kernel, twin)]  # fmt: skip
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def hidden():
    """A row of two features that point against each other: neither alone explains any of it."""
    mean = np.array([[3.0, 1.0, 0.0], [-3.0, 1.0, 0.5], [0.0, 0.3, 3.0]])
    return mean[0] + mean[1] + 0.05, mean, np.full(3, -1.0)


def searched(search, x, mean, odds, n_passes=50):
    K, D = mean.shape
    b, r, square, spread = np.zeros(K), x.copy(), (mean**2).sum(axis=1), np.full(K, 0.01)
    for s in range(n_passes):
        kernel.scan_bits(s % 2 == 1, K, D, mean, r, b, odds, square, spread, 0.25)
    single = b.copy()
    search(x, K, D, mean, r, b, odds, square, spread, 0.25, n_passes, 1e-10, np.zeros(K), np.zeros(D))
    return single, b, r


def test_features_that_point_against_each_other_are_found_together():
    x, mean, odds = hidden()
    single, b, r = searched(kernel.search_bits, x, mean, odds)
    assert single.max() < 0.5
    np.testing.assert_allclose(b, [1, 1, 0], atol=0.2)
    np.testing.assert_allclose(r, x - b @ mean, atol=1e-9)
    wrong = mutant(kernel.search_bits, "- same * dot / noise", "+ same * dot / noise")
    assert searched(wrong, x, mean, odds)[1].max() < 0.5


@pytest.mark.parametrize("seed", range(6))
def test_the_search_equals_its_twin_and_never_lowers_the_bound(seed):
    rng = np.random.default_rng(seed)
    K, D = 7, 3
    mean, odds = 2 * rng.standard_normal((K, D)), rng.standard_normal(K) - 1
    x = (rng.random(K) < 0.5) @ mean + 0.5 * rng.standard_normal(D)
    mine, its = searched(kernel.search_bits, x, mean, odds), searched(twin.search_bits, x, mean, odds)
    for a, b in zip(mine, its, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    square, spread = (mean**2).sum(axis=1), np.full(K, 0.01)
    values = [kernel.bits_bound(K, D, x - b @ mean, b, odds, square, spread, 0.25) for b in mine[:2]]
    assert values[1] >= values[0] - 1e-12


# ---- births


@pytest.mark.parametrize("kind", range(4))
def test_births_are_those_of_the_slow_reference(kind):
    rng = np.random.default_rng(kind)
    for K in (0, 1, 3, 12):
        for rate in (1e-9, 0.04, 0.7, 6.0):
            exists, n = rng.random(K), K + 4
            found = []
            for parts in (row_births, births_twin):
                births = np.zeros(n)
                parts.row_births(kind, exists, K, 4, rate, births, np.zeros(n), np.zeros(n, np.int64), np.zeros(n))
                found.append(births)
            np.testing.assert_allclose(*found, rtol=1e-6, atol=2e-9 if kind == 0 else 1e-12)
    wrong = mutant(row_births.row_births, "last - exists[order[k]]", "1.0 - exists[order[k]]")
    births = np.zeros(7)
    wrong(2, np.array([0.9, 0.5, 0.2]), 3, 4, 0.3, births, np.zeros(7), np.zeros(7, np.int64), np.zeros(7))
    right = recursion.birth_probs(recursion.Running(0, np.zeros(3), np.array([0.9, 0.5, 0.2])), 0.3, "comonotone", 7)
    assert not np.allclose(births, right)


def test_upper_tails():
    tails, its = np.zeros(30), np.zeros(30)
    n = row_births.upper_tails(3.0, tails)
    births_twin.upper_tails(3.0, its)
    np.testing.assert_allclose(tails[:n], its[:n], rtol=1e-9)


# ---- the zero-noise limit (G10, G11)

X5 = np.array([[2.0, 0.0], [2.6, 0.2], [0.1, 2.0], [2.2, 2.4], [1.7, -0.2]])


def test_without_noise_a_pass_is_the_recursion_of_running_means():
    """One pass over the features of each row; new ones where the residual has more than gamma^2 = 1."""
    noise, feature = 1e-3, 1e3
    # the first row has a new feature if |x|^2 > 2 noise (log(feature / noise) - log mass)
    mass = feature / noise * np.exp(-1.0 / (2 * noise))
    plan = PLAN._replace(n_inner=1, fade=0.0)
    mean, rows_with, *_ = stream(kernel.filter_rows, X5, LAW._replace(noise=noise, feature=feature, mass=mass), plan)
    np.testing.assert_allclose(mean, [[2.1, 0.1], [0.033333333333, 2.1]], atol=2e-3)  # G11
    np.testing.assert_allclose(rows_with[:, 0], [4, 2], atol=1e-2)
    Z = np.array([[1, 0], [1, 0], [0, 1], [1, 1], [1, 0]], dtype=float)
    least = np.linalg.lstsq(Z, X5, rcond=None)[0]
    np.testing.assert_allclose(least, [[2.1, 0.057142857143], [0.1, 2.1714285714]], atol=1e-9)  # G10 refits
    assert np.abs(mean - least).max() > 0.05


def test_plain_and_compiled_kernels_agree():
    X = rows(5, 12)
    for a, b in zip(stream(kernel.filter_rows, X), stream(plain(kernel.filter_rows), X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
