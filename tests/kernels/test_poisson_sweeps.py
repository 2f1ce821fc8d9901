"""Gibbs sweeps over rows of counts against their twins: the same draws from the same stream."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import few, mutant, plain, seeds
from reference.counts import poisson_sweeps as twin

from thali.kernels.counts import poisson_sweeps as kernel
from thali.observations.poisson.data import CountData


class Problem:
    def __init__(self, seed, n_rows, K, n_dims, missing=0.0):
        rng = np.random.default_rng(seed)
        V = (rng.random((n_rows, K)) < 0.6) * rng.gamma(1.0, 2.0, (n_rows, K))
        V[1:, K // 2 :] = 0.0  # features of the first row alone
        V[:, 0] = np.maximum(V[:, 0], 0.1)
        A = rng.gamma(0.7, 1.0, (K, n_dims)) + 1e-3
        X = rng.poisson(V @ A).astype(float)
        X[rng.random(X.shape) < missing] = np.nan
        self.data, self.V, self.A, self.seed = CountData.of(X), V, A, seed
        self.table = np.log(np.arange(n_rows) + 1e-300) - 0.5
        self.table[0] = -np.inf
        self.chances = rng.uniform(0.05, 0.9, (2, K)), rng.integers(2, size=n_rows), rng.uniform(0.05, 0.9, K)

    def sweep(self, work, finite=False, room=30):
        K, (N, n_dims) = self.V.shape[1], (len(self.data), self.data.n_dims)
        room = K if finite else room
        V, A, made = np.zeros((N, room)), np.ones((room, n_dims)), np.zeros((room, n_dims))
        V[:, :K], A[:K] = self.V, self.A
        table = np.where(np.isfinite(self.table), self.table, -1.0) if finite else self.table
        members = (V > 0).sum(axis=0)
        K, row, total = work(
            *self.data.arrays, V, K, A, members, made, table, 0.8, 0.6, 0.5, 0.7, 0.9, 0,
            np.random.default_rng(self.seed),
        )  # fmt: skip
        assert row == N
        assert np.array_equal(members[:K], (V[:, :K] > 0).sum(axis=0))
        np.testing.assert_array_equal(made[:K].sum(axis=0), self.data.sparse().sum(axis=0))
        return V[:, :K], A[:K], made[:K], total

    def slices(self, work):
        V, made = self.V.copy(), np.zeros_like(self.A)
        rng = np.random.default_rng(self.seed)
        level = 0.2 * (self.seed % 2)
        total = work(*self.data.arrays, V, self.A, *self.chances, level, made, 0.6, 0.5, rng)
        return V, made, total


def same(mine, theirs):
    return all(np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-8) for a, b in zip(mine, theirs, strict=True))


@few
@given(seeds, st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.sampled_from([0.0, 0.3]), st.booleans())
def test_sweep_equals_its_twin(seed, n_rows, K, n_dims, missing, finite):
    problem = Problem(seed, n_rows, K, n_dims, missing)
    assert same(problem.sweep(kernel.poisson_sweep, finite), problem.sweep(twin.poisson_sweep, finite))


@few
@given(seeds, st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.sampled_from([0.0, 0.3]))
def test_slice_sweep_equals_its_twin(seed, n_rows, K, n_dims, missing):
    problem = Problem(seed, n_rows, K, n_dims, missing)
    assert same(problem.slices(kernel.poisson_slice_sweep), problem.slices(twin.poisson_slice_sweep))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("poisson_sweep", "rates[j] = others[j] + new * own[j]", "rates[j] = others[j]"),
        ("poisson_sweep", "totals[chosen] = totals[K]", "pass"),
        ("poisson_sweep", "(w if is_seen[d] else 0.0)", "w"),
        ("poisson_slice_sweep", "if sizes[k] < level:", "if sizes[k] < 0.0:"),
        ("poisson_slice_sweep", "sizes, k, members[k], members)", "sizes, k, 1, members)"),
        ("poisson_slice_sweep", "chances[kinds[n], k]", "chances[0, k]"),
    ],
)
def test_a_mistake_is_seen(name, old, new):
    problems = [Problem(seed, 8, 4, 4, 0.3) for seed in range(30)]
    run = Problem.sweep if name == "poisson_sweep" else Problem.slices
    whole = getattr(kernel, name)
    right = [run(problem, getattr(twin, name)) for problem in problems]
    for work, is_right in ((plain(whole), True), (mutant(whole, old, new), False)):
        assert all(same(run(problem, work), known) for problem, known in zip(problems, right, strict=True)) is is_right


def test_it_asks_for_room(rng):
    problem = Problem(3, 5, 2, 3)
    V, A, made = problem.V.copy(), problem.A.copy(), np.zeros_like(problem.A)
    K, row, total = kernel.poisson_sweep(
        *problem.data.arrays, V, 2, A, (V > 0).sum(axis=0), made, problem.table, 0.8, 0.6, 0.5, 0.7, 0.9, 0, rng
    )
    assert (K, row, total) == (2, 0, 0.0)


def test_parts_equal_their_twins(rng):
    values, others, own = np.array([3.0, 1.0]), np.array([0.4, 2.0]), np.array([0.7, 0.2])
    for w in (0.0, 1.7):
        assert plain(kernel.log_rates)(values, others, own, w) == pytest.approx(twin.log_rates(values, others, own, w))
    birth = values, others, own, 1.3, 5, 0.6, 0.5, 0.7, 0.9
    assert kernel.birth_ratio(*birth) == pytest.approx(twin.birth_ratio(*birth))
    assert kernel.birth_ratio(values, np.zeros(2), *birth[2:]) == np.inf
    for case in ((0.4, 2.0), (0.0, 2.0)):
        for old in (0.0, 1.1):
            if old > 0 or case[0] > 0:
                arguments = values, np.array(case), own, 2.0, -0.3, 0.6, 0.5, old
                mine, theirs = np.random.default_rng(7), np.random.default_rng(7)
                assert kernel.draw_code(*arguments, mine) == pytest.approx(twin.draw_code(*arguments, theirs))
    V, A, cells = np.array([[1e9, 1e-9, 1e-9]]), rng.random((3, 4)), np.array([0, 2])
    rates, mine, theirs = np.zeros(2), np.zeros(2), np.zeros(2)
    kernel.row_rates(cells, V, 0, 3, A, -1, rates)
    kernel.without(cells, V, 0, 3, A, 0, rates, mine)  # nothing of the others is left in the sum
    twin.without(cells, V, 0, 3, A, 0, rates, theirs)
    np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    assert plain(kernel.seen_total)(A, A.sum(axis=1), np.array([1]), 2) == pytest.approx(A[2, [0, 2, 3]].sum())
    found = []
    for module in (kernel, twin):
        V, parts, made = np.array([[1.0, 0.0, 2.0]]), np.zeros(3), np.zeros((3, 4))
        given = cells, values, np.array([1]), V, 0, 3, A, A.sum(axis=1), 0.6, 0.5, parts, made
        found.append(module.allocate_row(*given, np.random.default_rng(1)))
        assert parts.sum() == made.sum() == 4
    assert found[0] == pytest.approx(found[1])
