"""`flip_bit`, `scan_bits`, `scan_groups` and `draw_new` against their twins."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import bits, many, mutant, plain, seeds
from reference.bits import row_draws as twin
from scipy.stats import chisquare, poisson

from thali.kernels.bits import row_draws as kernel
from thali.priors import IBP, BetaBernoulli


def row(seed, n_rows, K, n_dims, ridge, lazy, finite):
    """Arguments of `scan_bits` for the first row of random data: taken out for real, or lazily by g, h, shrink, ee."""
    rng = np.random.default_rng(seed)
    Z = bits(rng, "random", n_rows, K).astype(float)
    X = 2 * rng.standard_normal((n_rows, n_dims))
    z, x, out = Z[0].copy(), X[0], slice(1, None)

    def forms(Z, X):
        P = np.linalg.inv(Z.T @ Z + ridge * np.eye(K))
        mu = P @ Z.T @ X
        return P, mu

    P, mu = forms(Z, X) if lazy else forms(Z[out], X[out])
    P_out, mu_out = forms(Z[out], X[out])
    g, h, shrink, ee = np.zeros(K), np.zeros(K), 1.0, 0.0
    if lazy:
        e = x - z @ mu
        shrink = 1 - z @ P @ z
        g = P @ z / shrink
        h, ee = mu @ e, e @ e
    e_out = x - z @ mu_out
    own_var = 2 / ridge
    missing = mu_out.T[: 0 if lazy else n_dims // 2]  # the first dims, of a row that is taken out for real
    e_out[: len(missing)] = 0.0
    seen = mu_out[:, len(missing) :]
    prior = BetaBernoulli(mass=1.0, n_features=max(K, 1)) if finite else IBP(mass=1.0)
    others = Z[out].sum(axis=0).astype(np.int64)
    log_odds = prior.log_odds(n_rows)
    if not finite:
        others = np.maximum(others, min(1, n_rows - 1))  # columns of this row alone are deleted before the scan
        log_odds[0] = -1.0 if n_rows == 1 else log_odds[0]
    return {
        "z": z, "order": np.zeros(K, np.int64), "K": K, "others": others, "log_odds": log_odds, "P": P, "G": mu @ mu.T,
        "mu": np.ascontiguousarray(missing), "n_cells": len(missing), "g": g, "h": h, "shrink": shrink, "ee": ee,
        "b": seen @ x[len(missing) :], "Pz": P_out @ z, "Gz": seen @ (z @ seen),
        "q": z @ P_out @ z + own_var, "s": e_out @ e_out, "n_dims": n_dims, "precision": 1.7,
        "work": np.zeros((6, 2 * K)),
    }  # fmt: skip


def scan(function, arguments, seed):
    q, s = function(**arguments, rng=np.random.default_rng(seed))
    return {"z": arguments["z"], "Pz": arguments["Pz"], "Gz": arguments["Gz"], "q": q, "s": s}


def grouped(function, group):
    """`scan_groups` with the arguments of `scan_bits`."""

    def scan(order, work, **arguments):
        return function(order=np.random.default_rng(7).permutation(len(order)), group=group, **arguments)

    return scan


def compare(function, *shape, seed=0, expected=twin.scan_bits):
    mine, theirs = scan(function, row(seed, *shape), seed), scan(expected, row(seed, *shape), seed)
    for name in mine:
        size = max(1.0, np.abs(theirs[name]).max(initial=0.0))
        np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-9, atol=1e-9 * size, err_msg=name)


@many
@given(
    seeds, st.integers(1, 12), st.integers(0, 7), st.integers(1, 5), st.sampled_from([1e-2, 1.0, 30.0]),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_scan_bits_equals_its_twin(seed, n_rows, K, n_dims, ridge, lazy, finite):
    for function in (kernel.scan_bits, plain(kernel.scan_bits)):
        compare(function, n_rows, K, n_dims, ridge, lazy, finite, seed=seed)


@many
@given(
    seeds, st.integers(1, 12), st.integers(0, 7), st.integers(1, 4), st.sampled_from([5.0, 0.5, 0.02]), st.booleans(),
    st.booleans(), st.integers(1, 4),
)  # fmt: skip
def test_scan_groups_equals_its_twin(seed, n_rows, K, n_dims, ridge, lazy, finite, group):
    expected = grouped(twin.scan_groups, group)
    for function in (kernel.scan_groups, plain(kernel.scan_groups)):
        compare(grouped(function, group), n_rows, K, n_dims, ridge, lazy, finite, seed=seed, expected=expected)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("half = 0.5 * n_dims", "half = 1.0 * n_dims"),
        ("(1.0 if o == i else 2.0)", "1.0"),
        ("- h[k] * g[j] + ee", "+ ee"),
        ("total += 1.0 / a if upper < 0.0 else np.inf", "total += 0.0"),
        ("odds += step * log_odds", "odds += log_odds"),
    ],
)
def test_a_wrong_scan_of_groups_is_seen(old, new):
    wrong, expected = grouped(mutant(kernel.scan_groups, old, new), 3), grouped(twin.scan_groups, 3)
    with pytest.raises(AssertionError):  # noqa: PT012 (any of these rows may show it)
        for seed in range(30):
            compare(wrong, 8, 5, 3, 0.5, True, True, seed=seed, expected=expected)


FLIP = ("z", "K", "P", "G", "mu", "n_cells", "g", "h", "shrink", "ee", "Pz", "Gz")


def check_flip(function, seed, lazy):
    mine, theirs = (row(seed, 8, 5, 3, 0.5, lazy, True) for _ in range(2))
    for k in (0, 3, 0):
        function(k, *(mine[name] for name in FLIP))
        twin.flip_bit(k, *(theirs[name] for name in FLIP))
    for name in ("z", "Pz", "Gz"):
        assert np.allclose(mine[name], theirs[name], rtol=1e-9, atol=1e-9), name


@pytest.mark.parametrize("lazy", [False, True])
def test_flip_bit_equals_its_twin(lazy):
    for seed in range(20):
        check_flip(plain(kernel.flip_bit), seed, lazy)


@pytest.mark.parametrize(
    ("old", "new"),
    [("+ t * g[j]", ""), ("step * P[k, j] + t_P * g[j]", "step * P[k, j]"), ("Gz[j] -= t * mu[c, j]", "pass")],
)
def test_a_wrong_flip_is_seen(old, new):
    wrong = mutant(kernel.flip_bit, old, new)
    with pytest.raises(AssertionError):  # noqa: PT012
        for seed in range(20):
            check_flip(wrong, seed, True)
            check_flip(wrong, seed, False)


def test_scan_bits_of_no_observed_cells_follows_the_prior(rng):
    arguments = row(3, 10, 4, 2, 1.0, False, True) | {"n_dims": 0, "precision": 0.0}
    n = 4000
    on = np.zeros(4)
    for _ in range(n):
        kernel.scan_bits(**arguments, rng=rng)
        on += arguments["z"]
    expected = 1 / (1 + np.exp(-arguments["log_odds"][arguments["others"]]))
    error = np.sqrt(expected * (1 - expected) / n)  # every scan draws each bit afresh: independent
    assert (np.abs(on / n - expected) < 4.8 * error).all()  # 4 tests, false alarm 1e-5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("half = 0.5 * n_dims", "half = 1.0 * n_dims"),
        ("+ ee * g[k] * g[k]", ""),
        ("+ shrink * g[k] * g[k]", ""),
        ("(s * w - s_new * v) + step * odds[k]\n            if", "(s * w - s_new * v) + odds[k]\n            if"),
        ("next_of(order, i, K, u[2 * i])", "order[i]"),
        ("sure[k] = u_bit[k] * (1.0 + a)", "sure[k] = u_bit[k] * (1.0 + 4.0 * a)"),
    ],
)
def test_a_wrong_scan_is_seen(old, new):
    wrong = mutant(kernel.scan_bits, old, new)
    with pytest.raises(AssertionError):  # noqa: PT012 (any of these rows may show it)
        for seed in range(30):
            compare(wrong, 8, 5, 3, 0.5, True, True, seed=seed)


# ---- draw_new


@many
@given(
    st.floats(0, 20), st.floats(0, 200), st.integers(0, 8), st.sampled_from([1e-4, 1e-2, 1.0, 30.0]),
    st.sampled_from([0.0, 1e-6, 0.3, 5.0, 40.0]), st.floats(0, 1 - 1e-9),
)  # fmt: skip
def test_draw_new_equals_its_twin(q, s, n_dims, ridge, rate, u):
    for terms in (np.empty(64), np.empty(1)):  # the room for terms grows when it has to
        arguments = (q, s, n_dims, ridge, 1.3, rate, terms, u)
        assert kernel.draw_new(*arguments) == twin.draw_new(*arguments)
        assert plain(kernel.draw_new)(*arguments) == twin.draw_new(*arguments)


def test_draw_new_without_observed_cells_is_poisson(rng):
    drawn = [kernel.draw_new(1.0, 0.0, 0, 0.5, 1.0, 2.5, np.empty(64), u) for u in rng.random(4000)]
    counts = np.bincount(np.minimum(drawn, 7), minlength=8)
    expected = 4000 * np.append(poisson.pmf(np.arange(7), 2.5), poisson.sf(6, 2.5))
    assert chisquare(counts, expected).pvalue > 1e-4


def test_draw_new_of_an_outlier_is_quick():
    """Few terms matter, however far away the row is: the Poisson prior bounds them."""
    kernel.draw_new(0.0, 1.0, 4, 1.0, 1.0, 1.0, np.empty(64), 0.5)
    begin = time.perf_counter()
    drawn = kernel.draw_new(0.0, 1e5, 4, 1e3, 1.0, 1.0, np.empty(64), 0.5)
    assert time.perf_counter() - begin < 0.1  # a sum up to the likelihood's peak has 2.5e7 terms
    assert drawn == twin.draw_new(0.0, 1e5, 4, 1e3, 1.0, 1.0, None, 0.5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("s / v + n_terms * log_rate - log_factorial", "s / v + n_terms * log_rate - 2 * log_factorial"),
        ("-0.5 * n_dims * math.log(v)", "0.0"),
        ("n_terms / ridge", "n_terms"),
    ],
)
def test_a_wrong_draw_is_seen(old, new, rng):
    wrong = mutant(kernel.draw_new, old, new)
    arguments = [(1.0, 6.0, 3, 0.5, 1.3, 2.0, np.empty(64), u) for u in rng.random(50)]
    assert [wrong(*a) for a in arguments] != [twin.draw_new(*a) for a in arguments]
