"""Kernels that draw the groups of rows against their twins, and with mistakes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import few, mutant, plain, seeds
from reference.groups import group_draws as twin
from scipy.sparse import csr_array

from thali.kernels.groups import group_draws as kernel


def problem(seed, n_rows, K, M, by_row):
    rng = np.random.default_rng(seed)
    weights = rng.random((n_rows, M)) * (rng.random((n_rows, M)) < 0.7)
    weights[np.arange(n_rows), rng.integers(M, size=n_rows)] += 0.1
    table = csr_array(weights / weights.sum(axis=1, keepdims=True))
    Z = rng.integers(2, size=(n_rows, K)).astype(np.uint8)
    groups = np.array([[rng.choice(np.flatnonzero(row)) for _ in range(1 if by_row else K)] for row in weights])
    groups = groups.reshape(n_rows, -1).astype(np.int64)
    each = np.broadcast_to(groups, (n_rows, K))
    held = np.array([np.bincount(each[:, k], Z[:, k], minlength=M) for k in range(K)]).reshape(K, M)
    seen = np.array([np.bincount(column, minlength=M) for column in groups.T], dtype=float).reshape(-1, M)
    starts, targets = table.indptr.astype(np.int64), table.indices.astype(np.int64)
    return rng, Z, groups, seen, held, rng.uniform(0.05, 0.95, K), starts, targets, table.data


def run_rows(draw, seed, n_rows, K, M):
    rng, Z, groups, seen, held, p, starts, targets, probs = problem(seed, n_rows, K, M, True)
    nodes, c1 = rng.uniform(0.1, 0.9, 5), 0.7
    steps = [np.log1p(-c1 * nodes / (c1 + j)) for n in seen[0] for j in range(int(n))]
    log_none = np.sum(steps, axis=0)
    own, rows = groups[:, 0].copy(), seen[0].copy()
    draw(Z, own, rows, held, p, c1, starts, targets, np.log(probs), 2.5, log_none, nodes, np.full(5, 0.2), rng)
    return own, rows, held, log_none, rng.random()


def run_features(draw, seed, n_rows, K, M):
    rng, Z, groups, seen, held, p, starts, targets, probs = problem(seed, n_rows, K, M, False)
    draw(Z, groups, seen, held, p, 0.7, starts, targets, probs, rng)
    return groups, seen, held, rng.random()


def same(mine, theirs):
    return all(np.shape(a) == np.shape(b) and np.allclose(a, b) for a, b in zip(mine, theirs, strict=True))


PROBLEMS = st.tuples(seeds, st.integers(1, 6), st.integers(0, 3), st.integers(1, 4))


@few
@given(PROBLEMS)
def test_draws_equal_their_twins(of):
    assert same(run_rows(kernel.row_groups, *of), run_rows(twin.row_groups, *of))
    assert same(run_features(kernel.feature_groups, *of), run_features(twin.feature_groups, *of))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("row_groups", "total - mass * found[count]", "total"),
        ("row_groups", "- K * math.log(c1 + seen[m])", ""),
        ("row_groups", "log_none[j] -= math", "log_none[j] -= 0.0 * math"),
        ("row_groups", "c1 * p[k] + held[k, m]", "c1 * p[k] + 0.5 * held[k, m]"),
        ("row_groups", "if known[count] != n:", "if known[count] < 0:"),
        ("feature_groups", "/ (c1 + seen[k, m])", ""),
        ("feature_groups", "seen[k, old] -= 1.0", "pass"),
        ("feature_groups", "groups[n, k] = new", "pass"),
    ],
)
def test_a_mistake_is_seen(name, old, new):
    whole, run = getattr(kernel, name), run_rows if name == "row_groups" else run_features
    problems = [(seed, 6, 3, 3) for seed in range(20)]
    right = [run(getattr(twin, name), *of) for of in problems]
    assert all(same(run(plain(whole), *of), known) for of, known in zip(problems, right, strict=True))
    assert not all(same(run(mutant(whole, old, new), *of), known) for of, known in zip(problems, right, strict=True))


def test_the_expected_number_is_that_of_its_twin(rng):
    for count in (0.0, 1.0, 7.0):
        case = -rng.exponential(size=4), rng.uniform(0.1, 0.9, 4), rng.random(4), count, 0.7
        assert kernel.expected_found(*case) == pytest.approx(twin.expected_found(*case))


def test_places_without_weight_are_never_drawn():
    weights = np.array([0.0, 0.4, 0.0, 0.6, 0.0])
    for u, wanted in ((0.0, 1), (0.39, 1), (0.41, 3), (0.999, 3), (1.0, 3), (1.1, 3)):
        assert kernel.draw_place(weights, 5, u) == twin.draw_place(weights, 5, u) == wanted
