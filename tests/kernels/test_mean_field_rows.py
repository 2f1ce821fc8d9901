"""The update of bits by coordinate ascent against its twin, in both precisions; the same bits in parts."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import few, mutant, plain, seeds
from reference.bits import mean_field_rows as twin

from thali.kernels.bits import mean_field_rows as kernel

PARTS = (
    "exp_minus", "to_bits", "gathered_entropy", "side_by_side", "own_forms", "with_own_forms", "triangle",
    "from_triangle",
)  # fmt: skip


class Problem:
    """Arguments of `update_bits`; with an offset the forms have a column more."""

    def __init__(self, seed, n_rows, K, n_dims, missing=0.0, offset=False, dtype=np.float64, scale=1.0):
        rng = np.random.default_rng(seed)
        A = scale * rng.standard_normal((K + offset, n_dims))
        cov = rng.standard_normal((n_dims, K + offset, K + offset))
        of_dims = np.einsum("kd,ld->dkl", A, A) + 0.2 * cov @ np.swapaxes(cov, 1, 2)
        X = (rng.random((n_rows, K)) < 0.5) @ A[:K] + rng.standard_normal((n_rows, n_dims))
        holes = rng.random(X.shape) < missing
        if missing:
            holes[n_rows // 2] = np.arange(n_dims) > 0  # a row that lacks most of its cells
        self.starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
        self.dims = np.nonzero(holes)[1].astype(np.int64)
        self.X = np.where(holes, 0.0, X).astype(dtype)
        self.features, self.forms = A[:K].astype(dtype), of_dims.sum(axis=0).astype(dtype)
        self.of_dims = (of_dims if missing else of_dims[:0]).astype(dtype)
        self.odds, self.old = rng.standard_normal(K).astype(dtype), rng.random((n_rows, K)).astype(dtype)

    def run(self, update, n_passes=1, hard=False, chunk=1000, n_parts=1):
        """(probabilities, counts, grams, crosses, entropies)."""
        n_chunks, K, n_dims = -(-len(self.X) // chunk), self.old.shape[1], self.X.shape[1]
        new = np.full_like(self.old, np.nan)
        shapes = ((n_chunks, K), (n_chunks, K, K), (n_chunks, K, n_dims), (n_chunks,))
        sums = [np.full(shape, np.nan) for shape in shapes]
        for first, last in itertools.pairwise(n_chunks * i // n_parts for i in range(n_parts + 1)):
            update(
                self.X, self.starts, self.dims, self.features, self.forms, self.of_dims, self.odds, self.old, new,
                n_passes, hard, chunk, first, *(part[first:last] for part in sums),
            )  # fmt: skip
        return new, *sums


def same(mine, theirs, tolerance=1e-9):
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max(initial=0)))
        for a, b in zip(mine, theirs, strict=True)
    )


@few
@given(
    seeds, st.integers(1, 12), st.integers(0, 9), st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.booleans(),
    st.integers(0, 3), st.booleans(),
)  # fmt: skip
def test_update_equals_its_twin(seed, n_rows, K, n_dims, missing, offset, n_passes, hard):
    problem = Problem(seed, n_rows, K, n_dims, missing, offset)
    assert same(problem.run(kernel.update_bits, n_passes, hard), problem.run(twin.update_bits, n_passes, hard))


@pytest.mark.parametrize("missing", [0.0, 0.01])
@pytest.mark.parametrize("n_rows", [5, kernel.BLOCK + 3])
def test_many_dims(n_rows, missing):
    """Products with the features have another form there."""
    problem = Problem(3, n_rows, 4, kernel.WIDE, missing, scale=0.02)
    assert same(problem.run(kernel.update_bits), problem.run(twin.update_bits))


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_single_precision_is_close(missing):
    arguments = (7, 300, 70, 5, missing, True)
    double = Problem(*arguments, scale=0.3)
    single = Problem(*arguments, dtype=np.float32, scale=0.3)
    mine = single.run(kernel.update_bits)
    assert mine[0].dtype == np.float32
    assert same(mine, double.run(kernel.update_bits), 3e-4)


def test_many_features_and_certain_bits():
    """Products of many factors do not overflow, and extreme log-odds give probabilities 0 and 1."""
    for dtype in (np.float64, np.float32):
        problem = Problem(1, 5, 1100 if dtype is np.float64 else 140, 2, dtype=dtype, scale=0.0)
        problem.forms[:] = 0.0
        problem.odds[:] = 0.0
        problem.odds[:2] = 1e6, -1e6
        new, *_, entropies = problem.run(kernel.update_bits)
        assert entropies[0] == pytest.approx(5 * (problem.odds.size - 2) * np.log(2), rel=1e-5)
        assert (new[:, 0] == 1).all()
        assert (new[:, 1] < 1e-19).all()


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        ("update_bits", "odds[k] - 0.5 * forms[k, k]", "odds[k]"),
        ("update_bits", "base[k] -= forms[k, j]", "base[k] += forms[k, j]"),
        ("update_bits", "elif j != k:", "else:"),
        ("update_bits", "outside[k, j] = forms[k, j]", "outside[k, j] = 0.0"),
        ("own_forms", "own[j] -= of_dims[d, j]", "own[j] += of_dims[d, j]"),
        ("with_own_forms", "forms[k] * (p[k] - c[2])", "forms[k] * p[k]"),
        ("with_own_forms", "probs[r, k] = new[r]", "pass"),
        ("from_triangle", "matrix[j, k] = flat[i]", "matrix[j, k] = 0.0"),
        ("to_bits", "linear[r] += max(logit, zero) - logit * p", "linear[r] += -logit * p"),
        ("side_by_side", "- (g0 * p0[r]", "- (-g0 * p0[r]"),
        ("exp_minus", "f2 * (c[2] + f * c[3])", "f2 * (c[3] + f * c[3])"),
    ],
)
def test_a_mistake_is_seen(function, old, new, monkeypatch):
    problems = [Problem(seed, 9, 5, 3, missing, True) for seed in range(3) for missing in (0.0, 0.25)]
    right = [problem.run(twin.update_bits) for problem in problems]
    for name in PARTS:
        monkeypatch.setattr(kernel, name, plain(getattr(kernel, name)))
    update = plain(kernel.update_bits)
    with np.errstate(over="ignore"):
        assert all(same(problem.run(update), known) for problem, known in zip(problems, right, strict=True))
        wrong = mutant(getattr(kernel, function), old, new)
        if function == "update_bits":
            update = wrong
        else:
            monkeypatch.setattr(kernel, function, wrong)
        assert not all(same(problem.run(update), known) for problem, known in zip(problems, right, strict=True))


@pytest.mark.parametrize("missing", [0.0, 0.01])
def test_the_same_bits_in_parts(missing):
    problem = Problem(3, 1500, 8, 5, missing, True)
    whole = problem.run(kernel.update_bits, 2, chunk=256)
    for n_parts in (2, 5):
        for mine, theirs in zip(problem.run(kernel.update_bits, 2, chunk=256, n_parts=n_parts), whole, strict=True):
            assert np.array_equal(mine, theirs)


def test_exponential():
    """To all digits but two, over its whole range."""
    a = np.concatenate([np.linspace(0.0, kernel.FARTHEST, 10_001), [1e-300, np.log(2) / 2]])
    mine = np.array([plain(kernel.exp_minus)(value, kernel.CONSTANTS) for value in a])
    np.testing.assert_allclose(mine, twin.exp_minus(a, None), rtol=2e-14)
    c = kernel.CONSTANTS.astype(np.float32)
    single = np.array([plain(kernel.exp_minus)(value, c) for value in a.astype(np.float32)])
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, twin.exp_minus(a, None), rtol=5e-6)


@pytest.mark.parametrize("hard", [False, True])
def test_passes_equal_their_twins(hard, rng):
    """Five features and a column that is always on; seven rows."""
    root = rng.standard_normal((7, 6, 6))
    own = root @ np.swapaxes(root, 1, 2)
    odds, b, probs = rng.standard_normal(5), rng.standard_normal((7, 5)), np.ones((7, 6))
    probs[:, :5] = rng.random((7, 5))
    room, outside, within = np.zeros((8, 7)), np.zeros((8, 8)), np.zeros((8, 4))
    room[:5] = probs[:, :5].T
    outside[4, :4], outside[:4, 4] = own[0, 4, :4], own[0, :4, 4]
    within[:4] = own[0, :4, :4] - np.diag(np.diag(own[0])[:4])
    results = []
    for code in (kernel, twin):
        work = np.zeros(7), np.zeros(7), np.ones(7), np.zeros(7)
        mine, other = probs.copy(), room.copy()
        first = code.with_own_forms(b, own, odds, hard, kernel.CONSTANTS, mine, *work)
        columns = np.ascontiguousarray(b.T)
        second = code.side_by_side(
            columns, other, outside, within, odds, hard, kernel.CONSTANTS, np.zeros((4, 7)), *work[2:]
        )
        results.append((mine, other, np.array([first, second])))
    assert same(*results, 1e-12)


def test_probabilities_and_their_entropy(rng):
    t = np.concatenate([rng.uniform(-60, 60, size=50), [0.0]])
    for hard in (False, True):
        results = []
        for bits, total in ((plain(kernel.to_bits), kernel.gathered_entropy), (twin.to_bits, twin.gathered_entropy)):
            probs, product, linear = np.zeros(51), np.ones(51), np.zeros(51)
            bits(t, hard, kernel.CONSTANTS, probs, product, linear)
            results.append((probs, np.array([total(product, linear)]), product, linear))
        assert same(*results, 1e-12)


def test_triangles(rng):
    matrix = rng.standard_normal((4, 4))
    matrix += matrix.T
    for code in (kernel, twin):
        flat, back = np.zeros(10), np.zeros((4, 4))
        code.triangle(matrix, flat)
        code.from_triangle(flat, back)
        assert np.array_equal(back, matrix)
        assert np.array_equal(flat, matrix[np.tril_indices(4)])


def test_forms_of_a_row(rng):
    of_dims = rng.standard_normal((7, 9))
    for cells in (np.array([3]), np.array([0, 1, 2, 4, 6])):
        mine, theirs, is_seen = np.zeros(9), np.zeros(9), np.ones(7, bool)
        kernel.own_forms(of_dims.sum(axis=0), of_dims, cells, is_seen, mine)
        twin.own_forms(of_dims.sum(axis=0), of_dims, cells, is_seen, theirs)
        np.testing.assert_allclose(mine, theirs, atol=1e-12)
        assert is_seen.all()


def test_sums_over_rows_that_lack_a_dim(rng):
    n_rows, n_dims, K = 400, 5, 3
    codes, squares = rng.standard_normal((2, n_rows, K))
    holes = rng.random((n_rows, n_dims)) < np.linspace(0.0, 0.9, n_dims)
    starts = np.concatenate([[0], np.cumsum(holes.sum(axis=0))])
    rows = np.nonzero(holes.T)[1]
    results = []
    wrong = mutant(kernel.lacking_grams, "gram[k, k] = 0.0", "pass")
    for work in (kernel.lacking_grams, twin.lacking_grams, wrong):
        grams = np.full((n_dims, K + 1, K + 1), np.nan)
        work(codes, squares, starts, rows, grams)
        results.append(grams)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12, atol=1e-12)
    assert not np.allclose(results[2], results[1])
