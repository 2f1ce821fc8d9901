"""The slice sampler's sweep against its twin."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from problems import bits, few, mutant, seeds
from reference.bits import weighted_rows as twin

from thali.kernels.bits import weighted_rows as kernel


def run(sweep, seed, kind, n_rows, K, n_unused, n_dims, missing):
    """(Z, X, a random number at the end) after a sweep."""
    rng = np.random.default_rng(seed)
    Z = np.hstack([bits(rng, kind, n_rows, K), np.zeros((n_rows, n_unused), np.uint8)])
    A = rng.standard_normal((K + n_unused, n_dims))
    X = Z @ A + rng.standard_normal((n_rows, n_dims))
    holes = rng.random(X.shape) < missing
    starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
    dims = np.nonzero(holes)[1].astype(np.int64)
    chances, kinds = rng.random((2, K + n_unused)), rng.integers(2, size=n_rows)
    sweep(X, starts, dims, Z, A, chances, kinds, rng.random(K + n_unused), 0.2 * (seed % 2), 0.4, rng)
    return Z, X, rng.random()


def same(mine, theirs):
    return np.array_equal(mine[0], theirs[0]) and np.allclose(mine[1], theirs[1]) and mine[2] == theirs[2]


@few
@given(
    seeds, st.sampled_from(["random", "zero", "own", "twins"]), st.integers(1, 8), st.integers(0, 4), st.integers(0, 4),
    st.integers(1, 3), st.sampled_from([0.0, 0.3]),
)  # fmt: skip
@example(1, "own", 5, 4, 2, 2, 0.3)
@example(2, "random", 3, 0, 0, 2, 0.5)
def test_sweep_equals_its_twin(seed, kind, n_rows, K, n_unused, n_dims, missing):
    problem = (seed, kind, n_rows, K, n_unused, n_dims, missing)
    assert same(run(kernel.weighted_sweep, *problem), run(twin.weighted_sweep, *problem))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("counts[k] - Z[n, k], counts)", "counts[k], counts)"),
        ("slice_odds(chances[kinds[n], k], sizes, k, counts[k] - Z[n, k], counts)", "0.0"),
        ("chances[kinds[n], k]", "chances[0, k]"),
        ("square[k] = seen_square(gram[k, k], A, k, cells)", "square[k] = gram[k, k]"),
        ("if sizes[k] < level:", "if sizes[k] < 0.0:"),
    ],
)
def test_a_mistake_is_seen(old, new):
    wrong = mutant(kernel.weighted_sweep, old, new)
    problems = [(seed, "own", 6, 4, 2, 2, 0.2) for seed in range(40)]
    assert not all(same(run(wrong, *problem), run(twin.weighted_sweep, *problem)) for problem in problems)
