"""`rebuild`, `delete_column` and `append_column` against their twins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import bits, many, mutant, plain, seeds
from reference.bits import feature_gram as twin

from thali.kernels.bits import feature_gram as kernel
from thali.kernels.bits.collapsed_rows import BLOCK

ROOM = 3  # columns beyond those in use, to be left alone

kinds = st.sampled_from(["random", "zero", "own", "twins"])
ridges = st.sampled_from([1e-4, 1e-2, 1.0, 50.0])


def arrays(seed, kind, n_rows, K, n_dims, ridge):
    """The arguments of the column kernels by name, in step with each other; unused places hold rubbish."""
    rng = np.random.default_rng(seed)
    capacity = K + ROOM
    Z = np.zeros((n_rows, capacity), np.uint8)
    Z[:, :K] = bits(rng, kind, n_rows, K)
    dense = Z[:, :K].astype(float)
    X = rng.standard_normal((n_rows, n_dims))
    gram, cross, P, G = (rng.standard_normal((capacity, m)) for m in (capacity, n_dims, capacity, capacity))
    gram[:K, :K], cross[:K] = dense.T @ dense, dense.T @ X
    twin.rebuild(gram, cross, K, ridge, P, G)
    return {
        "Z": Z, "counts": Z.sum(axis=0, dtype=np.int64), "P": P, "G": G, "gram": gram, "cross": cross,
        "Y": rng.standard_normal((BLOCK, capacity)), "flips": rng.standard_normal((capacity, BLOCK)),
    }  # fmt: skip


def in_use(a, K):
    parts = {name: a[name][:K, :K] for name in ("P", "G", "gram")}
    parts |= {"Z": a["Z"], "counts": a["counts"], "cross": a["cross"][:K], "flips": a["flips"][:K], "Y": a["Y"][:, :K]}
    return parts


def assert_same(mine, theirs, ridge, inverses=1):
    """To rounding: each inverse taken one after another loses as many digits as its condition number has."""
    for name in mine:
        size = max(1.0, np.abs(theirs[name]).max(initial=0.0))
        digits = 1e-14 * (1 + 100 / ridge) ** inverses if name in ("P", "G") else 1e-14
        np.testing.assert_allclose(mine[name], theirs[name], rtol=digits, atol=digits * size, err_msg=name)


@many
@given(seeds, kinds, st.integers(1, 12), st.integers(0, 6), st.integers(1, 4), ridges)
def test_rebuild_equals_its_twin(seed, kind, n_rows, K, n_dims, ridge):
    a, b = (arrays(seed, kind, n_rows, K, n_dims, ridge) for _ in range(2))
    a["P"][:K, :K] = a["G"][:K, :K] = np.nan
    kernel.rebuild(a["gram"], a["cross"], K, ridge, a["P"], a["G"])
    assert_same(in_use(a, K), in_use(b, K), ridge)
    assert np.array_equal(a["P"][:K, :K], a["P"][:K, :K].T)
    assert np.array_equal(a["P"][K:], b["P"][K:])  # the rest is not touched
    plain(kernel.rebuild)(a["gram"], a["cross"], K, ridge, a["P"], a["G"])
    assert_same(in_use(a, K), in_use(b, K), ridge)


@many
@given(seeds, kinds, st.integers(1, 12), st.integers(1, 6), st.integers(1, 4), ridges, st.data())
def test_delete_column_equals_its_twin(seed, kind, n_rows, K, n_dims, ridge, data):
    k = data.draw(st.integers(0, K - 1))
    for function in (kernel.delete_column, plain(kernel.delete_column)):
        a, b = (arrays(seed, kind, n_rows, K, n_dims, ridge) for _ in range(2))
        owner = data.draw(st.integers(0, n_rows - 1))
        for arrays_ in (a, b):  # only this row has the column
            arrays_["Z"][:, k] = np.arange(n_rows) == owner
            arrays_["counts"][k] = 1
        function(owner, k, K, **a)
        twin.delete_column(owner, k, K, **b)
        assert_same(in_use(a, K - 1), in_use(b, K - 1), ridge, inverses=2)
        twin.rebuild(b["gram"], b["cross"], K - 1, ridge, b["P"], b["G"])  # sharper: the ridge is known
        assert_same(in_use(a, K - 1), in_use(b, K - 1), ridge)


@many
@given(seeds, kinds, st.integers(1, 12), st.integers(0, 6), st.integers(1, 4), ridges)
def test_append_column_equals_its_twin(seed, kind, n_rows, K, n_dims, ridge):
    for function in (kernel.append_column, plain(kernel.append_column)):
        a, b = (arrays(seed, kind, n_rows, K, n_dims, ridge) for _ in range(2))
        Z = a.pop("Z"), b.pop("Z")
        function(K, ridge, **a)
        twin.append_column(K, ridge, **b)
        assert_same(in_use(a | {"Z": Z[0]}, K + 1), in_use(b | {"Z": Z[1]}, K + 1), ridge)


def test_append_then_delete_changes_nothing():
    a, b = (arrays(1, "random", 9, 4, 3, 0.5) for _ in range(2))
    Z = a.pop("Z")
    kernel.append_column(4, 0.5, **a)
    kernel.delete_column(0, 4, 5, Z, **a)
    assert_same(in_use(a | {"Z": Z}, 4), in_use(b, 4), 0.5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("P[i, j] -= u * P[k, j]", "P[i, j] += u * P[k, j]"),
        ("gi = G[i, k] - u * G[k, k]", "gi = G[i, k]"),
        ("flips[k, t] = flips[last, t]", "pass"),
        ("counts[last] = 0", "pass"),
    ],
)
def test_a_wrong_deletion_is_seen(old, new):
    a, b = (arrays(1, "random", 9, 4, 3, 0.5) for _ in range(2))
    mutant(kernel.delete_column, old, new)(0, 1, 4, **a)
    twin.delete_column(0, 1, 4, **b)
    with pytest.raises(AssertionError):
        assert_same(in_use(a, 3), in_use(b, 3), 0.5)


@many
@given(seeds, st.integers(1, BLOCK), st.integers(0, 6), st.integers(1, 4))
def test_add_flips_equals_its_twin(seed, n_rows, K, n_dims):
    for function in (kernel.add_flips, plain(kernel.add_flips)):
        a, b = (arrays(seed, "random", n_rows, K, n_dims, 1.0) for _ in range(2))
        X = np.random.default_rng(seed).standard_normal((n_rows, n_dims))
        function(a["flips"], X, K, a["cross"])
        twin.add_flips(b["flips"], X, K, b["cross"])
        assert_same(in_use(a, K), in_use(b, K), 1.0)
