"""The hard sweep against its twin, and its re-entry when it runs out of room."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from problems import bits, few, mutant, seeds
from reference.bits import point_rows as twin

from thali.kernels.bits import point_rows as kernel


def run(sweep, seed, kind, n_rows, K, n_dims, missing, penalty, limit=40, room=40):
    """A sweep, enlarging the arrays when asked; (K, changes, Z, A, gram, how often it had to be enlarged)."""
    rng = np.random.default_rng(seed)
    Z = bits(rng, kind, n_rows, K)
    A = rng.standard_normal((K, n_dims))
    X = Z @ A + 0.5 * rng.standard_normal((n_rows, n_dims))
    Z = bits(rng, "random", n_rows, K)
    holes = rng.random(X.shape) < missing
    holes[np.arange(n_rows), rng.integers(n_dims, size=n_rows)] = False
    X = np.where(holes, 0.0, X)
    starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
    dims = np.nonzero(holes)[1].astype(np.int64)
    order = rng.permutation(n_rows)
    square = (X**2).sum(axis=1)
    row, total, overflows, room = 0, 0, 0, max(room, K)
    while True:
        wide, features = np.zeros((n_rows, room), np.uint8), np.zeros((room, n_dims))
        wide[:, :K], features[:K] = Z, A
        products, gram = X @ features.T, features @ features.T
        K, row, changes = sweep(
            X, square, products, starts, dims, order, row, wide, K, features, gram, penalty, limit
        )  # fmt: skip
        assert not wide[:, K:].any()
        Z, A, total = wide[:, :K], features[:K], total + changes
        if row == n_rows:
            return K, total, Z, A, gram[:K, :K], overflows
        overflows, room = overflows + 1, K + 1


def same(mine, theirs):
    return mine[:2] == theirs[:2] and all(
        np.allclose(a, b, atol=1e-9) for a, b in zip(mine[2:], theirs[2:], strict=True)
    )


@few
@given(
    seeds, st.sampled_from(["random", "zero", "own", "twins"]), st.integers(1, 12), st.integers(1, 5),
    st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.sampled_from([0.3, 2.0, np.inf]), st.sampled_from([6, 40]),
)  # fmt: skip
@example(1, "own", 6, 5, 2, 0.3, 0.1, 40)
def test_sweep_equals_its_twin(seed, kind, n_rows, K, n_dims, missing, penalty, limit):
    problem = (seed, kind, n_rows, K, n_dims, missing, penalty, limit)
    mine = run(kernel.hard_sweep, *problem)
    assert same(mine, run(twin.hard_sweep, *problem))
    assert mine[0] <= max(limit, K)
    assert mine[0] == K or penalty < np.inf


def test_the_result_does_not_depend_on_the_room():
    problem = (5, "random", 12, 2, 3, 0.2, 0.4)
    wide, narrow = run(kernel.hard_sweep, *problem), run(kernel.hard_sweep, *problem, room=2)
    assert wide[5] == 0 < narrow[5]
    assert same(wide[:5], narrow[:5])
    assert same(narrow, run(twin.hard_sweep, *problem, room=2))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2.0 * (products[n, k]", "(products[n, k]"),
        ("+ Z[n, k] * own) > own", ") > own"),
        ("own -= A[k, d] * A[k, d]", "own -= 0.0"),
        ("left > penalty", "left > -penalty"),
        ("range(i + 1, order.size)", "range(i + 2, order.size)"),
        ("A[K, d] -= A[k, d]", "A[K, d] += A[k, d]"),
    ],
)
def test_a_mistake_is_seen(old, new):
    wrong = mutant(kernel.hard_sweep, old, new)
    problems = [(seed, "random", 12, 3, 3, 0.2, 0.5) for seed in range(8)]
    assert not all(same(run(wrong, *p), run(twin.hard_sweep, *p)) for p in problems)
