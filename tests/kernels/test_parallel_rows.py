"""The update of a block of independent rows against its twin; sums of a chunk of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import bits, few, mutant, plain, seeds
from reference.bits import parallel_rows as twin

from thali.kernels.bits import parallel_rows as kernel

NOISE, FEATURE = 0.3, 1.1


class Problem:
    """Arguments of `update_block`: about half of the rows, columns with an owner among the others free."""

    def __init__(self, seed, kind, n_rows, K, n_dims, missing=0.0, new_rate=0.7):
        rng = np.random.default_rng(seed)
        self.Z = bits(rng, kind, n_rows, K)
        A = rng.standard_normal((K, n_dims))
        X = self.Z @ A + rng.standard_normal((n_rows, n_dims))
        holes = rng.random(X.shape) < missing
        self.starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
        self.dims = np.nonzero(holes)[1].astype(np.int64)
        self.offset, self.scale = rng.standard_normal(n_dims), 0.5 + rng.random(n_dims)
        self.X = np.where(holes, 0.0, X * self.scale + self.offset)
        self.filled = np.zeros(len(self.dims))
        half = rng.random(n_rows) < 0.5
        outside, inside = self.Z[~half].sum(axis=0), self.Z[half].sum(axis=0)
        free = rng.permutation(np.flatnonzero(outside))
        self.columns = np.concatenate([free, np.flatnonzero((outside == 0) & (inside > 1))])
        self.own = np.flatnonzero((outside == 0) & (inside == 1))
        self.rows = np.flatnonzero(half)
        self.odds = rng.standard_normal(len(free))
        self.A, self.new_rate, self.key = A[self.columns], new_rate, rng.integers(2**64, dtype=np.uint64)

    def run(self, update, most=1000):
        """(Z, missing cells, numbers of own columns, their features, and how many these are)."""
        Z, filled, n_new = self.Z.copy(), self.filled.copy(), np.zeros(kernel.BLOCK, np.int64)
        room, born = kernel.block_room(*self.A.shape), np.empty((1, self.X.shape[1]))
        born, n_born = update(
            self.X, self.offset, self.scale, 1 / self.scale, self.starts, self.dims, filled, Z, self.rows, self.columns,
            len(self.odds), self.own, self.A, self.A.T.copy(), self.A @ self.A.T, self.odds, self.new_rate, NOISE,
            FEATURE, self.key, most, room, n_new, born,
        )  # fmt: skip
        return Z, filled, n_new, born[:n_born], np.array(n_born)


def same(mine, theirs):
    return all(a.shape == b.shape and np.allclose(a, b, atol=1e-8) for a, b in zip(mine, theirs, strict=True))


@few
@given(
    seeds, st.sampled_from(["random", "zero", "own", "twins"]), st.integers(1, 12), st.integers(0, 5),
    st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.7]),
)  # fmt: skip
def test_update_equals_its_twin(seed, kind, n_rows, K, n_dims, missing, new_rate):
    problem = Problem(seed, kind, n_rows, K, n_dims, missing, new_rate)
    assert same(problem.run(kernel.update_block), problem.run(twin.update_block))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("delta[r] = step * odds[k] +", "delta[r] = odds[k] +"),
        ("g[j, r] -= step * gram[k, j]", "g[j, r] += step * gram[k, j]"),
        ("s[r] += square[k, r] - 2.0 * step * g[k, r]", "s[r] += square[k, r]"),
        ("s[r] -= total * total", "s[r] -= total"),
        ("Z[n, own[k]] = 0", "Z[n, own[k]] = 1"),
        ("start_stream(key, n)", "start_stream(key, 0)"),
        ("mean += born[j, d]", "mean += 0.0"),
    ],
)
def test_a_mistake_is_seen(old, new):
    problems = [Problem(seed, kind, 10, 4, 3, 0.2) for seed in range(5) for kind in ("random", "own")]
    right = [problem.run(twin.update_block) for problem in problems]
    with np.errstate(over="ignore"):
        for update, is_right in ((plain(kernel.update_block), True), (mutant(kernel.update_block, old, new), False)):
            assert (
                all(same(problem.run(update), known) for problem, known in zip(problems, right, strict=True))
                is is_right
            )


def test_it_gives_up_when_there_is_no_end_to_new_columns():
    problem = Problem(0, "random", 30, 2, 3, new_rate=5.0)
    *_, n_new, _, n_born = problem.run(kernel.update_block, most=6)
    assert n_born > 6
    assert n_new.sum() == n_born


def test_flips_are_decided_as_by_their_twin(rng):
    delta, u = rng.uniform(-45.0, 45.0, size=20_000), rng.random(20_000)
    u[::2] = 1 / (1 + np.exp(-delta[::2])) * (1 + rng.choice([-1e-9, 1e-9], size=10_000))  # close calls
    for d, v in zip(delta, np.minimum(u, 1 - 1e-16), strict=True):
        assert plain(kernel.flips)(d, v) == twin.flips(d, v)


def test_sums_of_a_chunk_equal_their_twin():
    problem = Problem(5, "random", 700, 6, 4, 0.2)
    columns, filled = np.array([0, 2, 5]), np.arange(len(problem.dims)) * 1.0

    def sums(work):
        kept, gram, cross = np.zeros(700 * 3, np.uint8), np.full((3, 3), np.nan), np.full((3, 4), np.nan)
        work(problem.X, problem.starts, problem.dims, filled, problem.Z, columns, 100, 650, kept, gram, cross)
        return kept, gram, cross

    known = sums(twin.sum_chunk)
    assert same(sums(kernel.sum_chunk), known)
    assert not same(sums(mutant(kernel.sum_chunk, "range(first, last, BLOCK)", "range(0, last, BLOCK)")), known)
