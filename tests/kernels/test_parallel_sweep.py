"""The sweep that threads share, against its twin; the same bits on any number of threads."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import plain_mutant
from problems import bits, few, seeds
from reference.bits import parallel_sweep as twin

from thali.core.binary import non_empty
from thali.kernels.bits import parallel_sweep as kernel
from thali.kernels.bits.parallel_rows import BLOCK


class Problem:
    """Arguments of `sweep_rows`."""

    def __init__(self, seed, kind, n_rows, K, n_dims, *, missing=0.0, new_rate=0.7, spare=40):
        rng = np.random.default_rng(seed)
        Z = bits(rng, kind, n_rows, K)
        self.Z = non_empty(Z) if new_rate else Z
        K = self.Z.shape[1]
        self.room = K + (spare if new_rate else 0)
        self.A = np.full((self.room, n_dims), np.nan)
        self.A[:K] = rng.standard_normal((K, n_dims))
        X = self.Z @ self.A[:K] + np.sqrt(0.3) * rng.standard_normal((n_rows, n_dims))
        holes = rng.random(X.shape) < missing
        starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
        self.filled = np.zeros(holes.sum())
        offset, scale = rng.standard_normal(n_dims), 0.5 + rng.random(n_dims)
        self.data = np.where(holes, 0.0, X * scale + offset), offset, scale, starts, np.nonzero(holes)[1]
        self.counts = self.Z.sum(axis=0, dtype=np.int64)
        self.odds, self.new_rate = rng.standard_normal(self.room), new_rate
        self.keys = rng.integers(2**64, size=2, dtype=np.uint64)

    def run(self, sweep, n_threads=1):
        """(Z, missing cells, z'z, z'X, what the threads shared at the end)."""
        n_rows, n_dims = self.data[0].shape
        K, room = len(self.counts), self.room
        n_parts, n_chunks = -(-n_rows // (2 * BLOCK)), -(-n_rows // kernel.CHUNK)
        filled, A = self.filled.copy(), self.A.copy()
        shared = np.zeros(kernel.N_SHARED, np.int64)
        shared[kernel.N_COLUMNS] = K
        kept, grams = np.zeros(n_rows * room, np.uint8), np.full((n_chunks, room, room), np.nan)
        crosses = np.full((n_chunks, room, n_dims), np.nan)
        arguments = (
            *self.data, filled, self.Z, self.counts, A, self.odds, self.new_rate, 0.3, 1.1, self.keys, shared,
            np.full((n_rows, room), 7, np.uint8), np.full((n_parts, room), 9), np.full((2, room), 9),
            np.empty((room, n_dims)), np.empty(room, np.int64), kept, grams, crosses,
        )  # fmt: skip
        others = [threading.Thread(target=sweep, args=(*arguments, False)) for _ in range(n_threads - 1)]
        for thread in others:
            thread.start()
        sweep(*arguments, True)
        for thread in others:
            thread.join()
        J = shared[kernel.N_KEPT]
        sums = grams[:, :J, :J].sum(axis=0), crosses[:, :J].sum(axis=0)
        return kept[: n_rows * J].reshape(n_rows, J), filled, *sums, shared[[kernel.PHASE, kernel.N_KEPT]]


def same(mine, theirs):
    return all(a.shape == b.shape and np.allclose(a, b, atol=1e-8) for a, b in zip(mine, theirs, strict=True))


@few
@given(
    seeds, st.sampled_from(["random", "zero", "own", "twins"]), st.integers(1, 12), st.integers(0, 5),
    st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.7]),
)  # fmt: skip
def test_sweep_equals_its_twin(seed, kind, n_rows, K, n_dims, missing, new_rate):
    problem = Problem(seed, kind, n_rows, K, n_dims, missing=missing, new_rate=new_rate)
    assert same(problem.run(kernel.sweep_rows), problem.run(twin.sweep_rows))


def test_sweep_of_many_parts_equals_its_twin():
    problem = Problem(1, "random", 2 * kernel.CHUNK + 3, 4, 3, missing=0.1, new_rate=0.003)
    assert same(problem.run(kernel.sweep_rows), problem.run(twin.sweep_rows))


@pytest.mark.parametrize("new_rate", [0.0, 0.004])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_same_bits_on_any_number_of_threads(missing, new_rate):
    problem = Problem(3, "random", 5001, 8, 5, missing=missing, new_rate=new_rate)
    alone = problem.run(kernel.sweep_rows)
    assert new_rate == 0 or alone[0].shape[1] > 10, "columns were born"
    for n_threads in (2, 3, 6):
        for _ in range(5):
            shared_out = problem.run(kernel.sweep_rows, n_threads)
            assert all(np.array_equal(a, b) for a, b in zip(shared_out, alone, strict=True))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_it_says_when_there_is_no_room(n_threads):
    problem = Problem(3, "random", 3000, 4, 5, new_rate=0.05, spare=6)
    *_, (phase, _) = problem.run(kernel.sweep_rows, n_threads)
    assert phase == kernel.FULL
    assert problem.run(twin.sweep_rows)[-1][0] == kernel.FULL


def test_who_comes_late_finds_nothing_to_do():
    problem = Problem(0, "random", 600, 4, 5)
    sweep = kernel.sweep_rows

    def twice(*arguments):
        sweep(*arguments)
        sweep(*arguments[:-1], False)

    assert same(problem.run(twice), problem.run(sweep))


def test_columns_are_added_in_the_order_of_their_rows():
    """Whichever thread came first."""
    shared = np.zeros(kernel.N_SHARED, np.int64)
    shared[kernel.N_COLUMNS], shared[kernel.N_BORN] = 1, 4
    Z, A, owners = np.zeros((9, 6), np.uint8), np.zeros((6, 2)), np.full((2, 6), 9)
    born, born_rows = np.arange(10.0).reshape(5, 2), np.array([7, 7, 2, 5, 0])
    kernel._add_columns(1, shared, Z, A, owners, born, born_rows)
    assert np.array_equal(np.argwhere(Z), [[2, 1], [5, 2], [7, 3], [7, 4]])
    assert np.array_equal(A, [[0, 0], [4, 5], [6, 7], [0, 1], [2, 3], [0, 0]])
    assert np.array_equal(owners, [[9, 0, 0, 0, 0, 9], [9, 1, 1, 1, 1, 9]])
    assert (shared[kernel.N_COLUMNS], shared[kernel.N_BORN]) == (5, 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("np.flatnonzero(alone & (inside > 1))", "np.flatnonzero(alone & (inside > 0))"),
        ("owners[1, k] = counts[k] - owners[0, k]", "owners[1, k] = counts[k]"),
        ("_add_parts(part_owners, K, owners[half])", "_add_parts(part_owners, K, owners[1 - half])"),
        ("owners[half, K + i] = 1", "owners[half, K + i] = 0"),
        ("half_odds = odds[free]", "half_odds = odds[: free.size]"),
        ("shuffle(free, keys[0], n_rows + half)", "shuffle(free, keys[0], n_rows)"),
        ("^ np.uint64(half)", "^ np.uint64(1)"),
        ("Z[n, k] = 0", "pass"),
    ],
)
def test_a_mistake_is_seen(old, new):
    problems = [Problem(seed, "random", 2 * BLOCK + 9, 6, 3, missing=0.1, new_rate=0.02) for seed in range(2)]
    problems += [Problem(seed, "random", 4, 3, 2, new_rate=0.3) for seed in range(8)]
    right = [problem.run(twin.sweep_rows) for problem in problems]
    assert any(len(known[0][0]) > 6 for known in right), "columns were born"
    with np.errstate(over="ignore"):
        for change, is_right in ((old, True), (new, False)):
            sweep = plain_mutant(kernel, old, change)["sweep_rows"]
            found = [same(problem.run(sweep), known) for problem, known in zip(problems, right, strict=True)]
            assert all(found) is is_right
