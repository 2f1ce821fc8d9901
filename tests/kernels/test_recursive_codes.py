"""Rows of recursive factor analysis: goldens of the corrected updates, which the printed ones miss, and the kernel
against its twin with whole covariances."""

import numpy as np
import pytest
from problems import mutant
from reference.weights import recursive_codes as twin
from scipy.special import expit, logit
from test_recursive_rows import LAW, PLAN, rows, slots, totals

from thali.kernels.weights import recursive_codes as kernel

# G07, G08: features that overlap
ROW, Q, NOISE = np.array([2.0, 1.5]), np.array([0.8, 0.7, 0.3]), 0.2
MU0 = np.array([[1.5, 1.0], [1.2, 1.3], [-0.2, 0.6]])
SIGMA0 = [0.3 * np.eye(2)] * 3
SIGMA_W = np.diag([1.2, 0.8, 1.5])
ODDS = np.log(Q / (1 - Q))


def fitted(n_sweeps, sweep=twin.sweep):
    b, mu, Sigma, bounds = Q.copy(), MU0.copy(), list(SIGMA0), []
    for s in range(n_sweeps):
        phi, Phi = sweep(ROW, b, ODDS, mu, Sigma, MU0, SIGMA0, NOISE, SIGMA_W, twin.in_order(s % 2 == 1, 3))
        bounds.append(twin.row_elbo(ROW, b, ODDS, mu, Sigma, MU0, SIGMA0, phi, Phi, NOISE, SIGMA_W)[0])
    return b, mu, Sigma, phi, Phi, np.array(bounds)


def test_golden_sweep():
    b, mu, Sigma, phi, Phi, bounds = fitted(1)
    np.testing.assert_allclose(b, [0.99963539327, 0.95352156509, 0.12058611839], atol=1e-9)
    np.testing.assert_allclose(phi, [0.79886796904, 0.57710225099, 0.062395640692], atol=1e-9)
    np.testing.assert_allclose(Phi[0], [0.091187986333, -0.055304228396, -0.00067854349812], atol=1e-9)
    np.testing.assert_allclose(mu[0], [1.5290874663, 0.97309988562], atol=1e-9)
    np.testing.assert_allclose([S[0, 0] for S in Sigma], [0.14328918546, 0.18457478423, 0.27648168844], atol=1e-9)
    assert bounds[0] == pytest.approx(-5.2704456824, abs=1e-9)


def test_golden_fixed_point():
    b, mu, _, phi, Phi, bounds = fitted(600)
    np.testing.assert_allclose(b, [0.99990310088, 0.97492447152, 0.01784570383], atol=1e-8)
    np.testing.assert_allclose(phi, [0.81040158315, 0.43694464337, 0.0018619211582], atol=1e-8)
    np.testing.assert_allclose(Phi[2, 2], 1.3305832991, atol=1e-8)
    np.testing.assert_allclose(mu[1], [1.2915898725, 1.2462057023], atol=1e-8)
    assert bounds[-1] == pytest.approx(-4.9208482988, abs=1e-8)
    assert (np.diff(bounds) >= -1e-11).all()


def printed(o, b, odds, mu, Sigma, mu0, Sigma0, noise, Sigma_w, order):
    """The updates as printed: phi_k phi_l in place of E[w_k w_l] between features."""
    phi, Phi = twin.weights_of(o, b, mu, Sigma, noise, Sigma_w)
    E2 = np.outer(phi, phi) + np.diag(np.diag(Phi))
    for k in order:
        b[k] = twin.bit_of(k, o, b, odds, mu, Sigma, phi, E2, noise)
    for k in order:
        mu[k], Sigma[k] = twin.feature_of(k, o, b, mu, mu0, Sigma0, phi, E2, noise)
    return phi, Phi


def test_the_printed_updates_end_lower():
    b, *_, bounds = fitted(600, printed)
    assert bounds[-1] == pytest.approx(-5.1898835641, abs=1e-7)
    np.testing.assert_allclose(b, [0.9999995164, 0.42468738602, 0.01767645056], atol=1e-7)


def row_of(seed, K=3, n_dims=4, width=1):
    rng = np.random.default_rng(seed)
    mean, weight = rng.standard_normal((K, n_dims)), 0.3 + 3 * rng.random((K, width))
    x = rng.standard_normal(n_dims)
    M = mean @ mean.T + np.diag((0.4 / np.broadcast_to(weight, mean.shape)).sum(axis=1))
    return dict(
        x=x, mean=mean.copy(), old=mean.copy(), weight=weight, b=rng.random(K), log_odds=rng.standard_normal(K), M=M,
        p=mean @ x, phi=np.zeros(K), E2=np.zeros((K, K)),
    )  # fmt: skip


def swept(parts, row, n, scan_bits=None):
    r = {name: value.copy() for name, value in row.items()}
    K, D = r["mean"].shape
    bounds, root = [], np.zeros((K, K))
    for s in range(n):
        log_det, trace, _ = parts.fit_codes(K, r["b"], r["M"], r["p"], 0.4, 1.3, r["phi"], r["E2"], root)
        (scan_bits or parts.scan_code_bits)(
            s % 2 == 1, K, r["b"], r["log_odds"], r["M"], r["p"], r["phi"], r["E2"], 0.4
        )  # fmt: skip
        parts.scan_code_means(
            s % 2 == 1, K, D, r["x"], r["mean"], r["old"], r["weight"], r["b"], r["phi"], r["E2"], r["M"], r["p"], 0.4
        )  # fmt: skip
        bounds.append(
            parts.code_row_bound(
                K, D, r["x"], r["mean"], r["old"], r["weight"], r["b"], r["log_odds"], r["phi"], r["E2"], r["M"],
                r["p"], 0.4, 1.3, log_det, trace,
            )[0]
        )  # fmt: skip
    return r, np.array(bounds)


@pytest.mark.parametrize("width", [1, 4])
def test_passes_over_a_row_equal_their_twins_and_never_lower_its_bound(width):
    row = row_of(0, width=width)
    (mine, bounds), (its, same) = swept(kernel, row, 40), swept(twin, row, 40)
    for name in mine:
        np.testing.assert_allclose(mine[name], its[name], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(bounds, same, rtol=1e-9)
    assert (np.diff(bounds) >= -1e-10).all()


def gradient(row, end):
    """Of the bound, by all factors but q(w), which is at its optimum at every point."""
    K, D = end["mean"].shape
    Sigma0 = [0.4 / w[0] * np.eye(D) for w in row["weight"]]

    def bound(theta):
        b, mu, v = expit(theta[:K]), theta[K : K + K * D].reshape(K, D), np.exp(theta[K + K * D :])
        Sigma = [value * np.eye(D) for value in v]
        phi, Phi = twin.weights_of(row["x"], b, mu, Sigma, 0.4, 1.3 * np.eye(K))
        return twin.row_elbo(
            row["x"], b, row["log_odds"], mu, Sigma, row["old"], Sigma0, phi, Phi, 0.4, 1.3 * np.eye(K)
        )[0]

    v = (np.diag(end["M"]) - (end["mean"] ** 2).sum(axis=1)) / D
    theta = np.concatenate([logit(end["b"]), end["mean"].ravel(), np.log(v)])
    return np.array([(bound(theta + e) - bound(theta - e)) / 2e-5 for e in 1e-5 * np.eye(len(theta))])


def test_the_gradient_of_the_row_bound_vanishes_at_the_fixed_point():
    row = row_of(1)
    assert np.abs(gradient(row, swept(kernel, row, 1500)[0])).max() < 1e-6
    wrong = mutant(kernel.scan_code_bits, "b[j] * E2[k, j] * M[k, j]", "b[j] * phi[k] * phi[j] * M[k, j]")
    assert np.abs(gradient(row, swept(kernel, row, 600, wrong)[0])).max() > 1e-4


def test_new_features_integrate_their_weight():
    for square in (0.5, 20.0, 400.0):
        assert kernel.log_new(square, 7, 0.4, 1.5, 1.3) == pytest.approx(twin.log_new(square, 7, 0.4, 1.5, 1.3))


def stream(filter_codes, X, plan=PLAN, width=1):
    s, t, notes = slots(24, X.shape[1], width), totals(), np.zeros((200, 4))
    at, K, told = 0, 0, []
    while at < len(X):
        at, K, n = filter_codes(X, at, K, s, t, LAW, 1.3, plan, notes)
        told += notes[:n].tolist()
        assert n or at == len(X), "It is out of room."
    return [part[:K, :K] if part is s.together else part[:K] for part in s] + list(t) + [np.array(told)]


CASES = {"whole": {}, "forgetting": {"plan": PLAN._replace(keep=0.9)}, "missing": {"width": 4, "missing": 0.3}}


@pytest.mark.parametrize("case", CASES)
def test_kernel_equals_its_twin(case):
    settings = dict(CASES[case])
    X = rows(3, 20, missing=settings.pop("missing", 0.0))
    mine, its = stream(kernel.filter_codes, X, **settings), stream(twin.filter_codes, X, **settings)
    assert len(mine[2]) >= 1
    for a, b in zip(mine, its, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("old", "new"),
    [("+= b[k] * E2[k, k]", "+= b[k]"), ("r[i] -= chance * phi[k] * mean[k, i]", "r[i] -= mean[k, i]")],
)
def test_a_wrong_kernel_differs_from_the_twin(old, new):
    X = rows(3, 12)
    wrong, right = stream(mutant(kernel.filter_codes, old, new), X), stream(twin.filter_codes, X)
    assert not all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-7) for a, b in zip(wrong, right, strict=True)
    )
