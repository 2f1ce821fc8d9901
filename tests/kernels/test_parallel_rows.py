"""The update of independent rows against its twin; the same bits in one call and in several."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import bits, few, mutant, plain, seeds
from reference import parallel_rows as twin

from thali.kernels import parallel_rows as kernel

NOISE, FEATURE = 0.3, 1.1


class Problem:
    """Arguments of `update_rows`: about half of the rows, columns with an owner among the others free."""

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

    def run(self, update, n_parts=1, most=1000):
        """(Z, missing cells, numbers of own columns, their features)."""
        Z, filled, n_new = self.Z.copy(), self.filled.copy(), np.zeros(len(self.rows), np.int64)
        features, gram = np.ascontiguousarray(self.A.T), self.A @ self.A.T
        n_blocks = -(-len(self.rows) // kernel.BLOCK)
        edges = [kernel.BLOCK * (n_blocks * i // n_parts) for i in range(n_parts)] + [len(self.rows)]
        born = [
            update(
                self.X, self.offset, self.scale, self.starts, self.dims, filled, Z, self.rows[a:b], self.columns,
                len(self.odds), self.own, features, gram, self.odds, self.new_rate, NOISE, FEATURE, self.key, most,
                n_new[a:b],
            )
            for a, b in itertools.pairwise(edges)
        ]  # fmt: skip
        return Z, filled, n_new, np.vstack(born)


def same(mine, theirs):
    return all(a.shape == b.shape and np.allclose(a, b, atol=1e-8) for a, b in zip(mine, theirs, strict=True))


@few
@given(
    seeds, st.sampled_from(["random", "zero", "own", "twins"]), st.integers(1, 12), st.integers(0, 5),
    st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.7]),
)  # fmt: skip
def test_update_equals_its_twin(seed, kind, n_rows, K, n_dims, missing, new_rate):
    problem = Problem(seed, kind, n_rows, K, n_dims, missing, new_rate)
    assert same(problem.run(kernel.update_rows), problem.run(twin.update_rows))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("delta[k] = step * odds[k] +", "delta[k] = odds[k] +"),
        ("g[j] -= step * gram[k, j]", "g[j] += step * gram[k, j]"),
        ("s -= z[k] * (b[k] + g[k])", "s -= z[k] * b[k]"),
        ("start_stream(key, n, stream)", "start_stream(key, 0, stream)"),
        ("mean += born[j, d]", "mean += 0.0"),
    ],
)
def test_a_mistake_is_seen(old, new):
    problems = [Problem(seed, "random", 10, 4, 3, 0.2) for seed in range(5)]
    right = [problem.run(twin.update_rows) for problem in problems]
    with np.errstate(over="ignore"):
        for update, is_right in ((plain(kernel.update_rows), True), (mutant(kernel.update_rows, old, new), False)):
            assert (
                all(same(problem.run(update), known) for problem, known in zip(problems, right, strict=True))
                is is_right
            )


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_same_bits_in_parts(missing):
    problem = Problem(3, "random", 1500, 8, 5, missing, new_rate=0.05)
    whole = problem.run(kernel.update_rows)
    assert whole[3].size
    for n_parts in (2, 5):
        for mine, theirs in zip(problem.run(kernel.update_rows, n_parts), whole, strict=True):
            assert np.array_equal(mine, theirs)


def test_it_gives_up_when_there_is_no_end_to_new_columns():
    problem = Problem(0, "random", 30, 2, 3, new_rate=5.0)
    *_, n_new, born = problem.run(kernel.update_rows, most=6)
    assert n_new.sum() > 6
    assert not len(born)


def test_flips_are_decided_as_by_their_twin(rng):
    delta, u = rng.uniform(-45.0, 45.0, size=20_000), rng.random(20_000)
    u[::2] = 1 / (1 + np.exp(-delta[::2])) * (1 + rng.choice([-1e-9, 1e-9], size=10_000))  # close calls
    for d, v in zip(delta, np.minimum(u, 1 - 1e-16), strict=True):
        assert plain(kernel.flips)(d, v) == twin.flips(d, v)


def test_owners_are_counted(rng):
    Z, half = (rng.random((20, 4)) < 0.3).astype(np.uint8), rng.random(20) < 0.5
    mine, theirs = np.zeros((2, 4), np.int64), np.zeros((2, 4), np.int64)
    kernel.count_owners(Z, half, mine)
    twin.count_owners(Z, half, theirs)
    assert np.array_equal(mine, theirs)


def sums_of_chunks(work, problem, chunk, n_parts):
    n_chunks, K = -(-len(problem.X) // chunk), problem.Z.shape[1]
    grams, crosses = np.full((n_chunks, K, K), np.nan), np.full((n_chunks, K, problem.X.shape[1]), np.nan)
    filled = np.arange(len(problem.dims)) * 1.0
    for first, last in itertools.pairwise(n_chunks * i // n_parts for i in range(n_parts + 1)):
        work(
            problem.X, problem.starts, problem.dims, filled, problem.Z, chunk, first, grams[first:last],
            crosses[first:last],
        )  # fmt: skip
    return grams, crosses


def test_sums_of_chunks_equal_their_twin_and_have_the_same_bits_in_parts():
    problem = Problem(5, "random", 700, 6, 4, 0.2)
    mine = sums_of_chunks(kernel.chunk_sums, problem, 300, 1)
    assert same(mine, sums_of_chunks(twin.chunk_sums, problem, 300, 2))
    for part, whole in zip(sums_of_chunks(kernel.chunk_sums, problem, 300, 3), mine, strict=True):
        assert np.array_equal(part, whole)
    wrong = mutant(kernel.chunk_sums, "range((first + i) * chunk, end, BLOCK)", "range(i * chunk, end, BLOCK)")
    assert not same(sums_of_chunks(wrong, problem, 300, 3), mine)
