"""Variational rows of sparse factors: twins, mutants."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import few, mutant, plain, seeds
from reference.weights import mean_field_sparse as twin

from thali.kernels.weights import mean_field_sparse as kernel


class Part:
    """Arguments of `sparse_factor_rows`: some rows with missing cells, with an offset of the rows or of the cells."""

    def __init__(self, seed, n_rows, K, missing=0.0, offset="", shape=1.5, floor=0.0, n_cells=4):
        rng = np.random.default_rng(seed)
        self.n_columns = K + (offset == "cells")
        F = rng.standard_normal((self.n_columns, n_cells))
        self.of_cells = np.ascontiguousarray(np.einsum("kc,lc->ckl", F, F) + 0.2 * np.eye(self.n_columns))
        holes = rng.random((n_rows, n_cells)) < missing
        holes[:, 0] = False
        Y = np.where(holes, 0.0, 2 * rng.standard_normal((n_rows, n_cells)))
        start = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
        self.data = Y @ F.T, Y.sum(axis=1), (Y * Y).sum(axis=1), n_cells - holes.sum(axis=1), start
        self.data = (*self.data, np.nonzero(holes)[1].astype(np.int64), self.of_cells.sum(axis=0), self.of_cells)
        totals = (~holes).astype(float) @ F.T
        self.totals = np.ascontiguousarray(totals[: n_rows * (offset == "rows")])
        self.law = rng.standard_normal(K), 0.5 + rng.random(K), rng.standard_normal(K), (shape, 0.7, floor), 3.0
        self.local = [rng.random((n_rows, K)), rng.standard_normal((n_rows, K)), 0.1 + rng.random((n_rows, K))]
        self.local += [1 + rng.random(n_rows), 1 + rng.random(n_rows)]
        self.local += [rng.standard_normal(n_rows), rng.random(n_rows)]
        if offset != "rows":
            self.local[5], self.local[6] = np.zeros((2, n_rows))

    def run(self, rows, heat=1.0, sharpness=1.0, n_passes=1):
        local = [part.copy() for part in self.local]
        v, square = np.zeros((2, len(local[0]), self.n_columns))
        rows(*self.data, self.totals, *self.law, heat, sharpness, n_passes, *local, v, square)
        return np.concatenate([part.ravel() for part in (*local, v, square)])


@few
@given(
    seeds, st.integers(1, 5), st.integers(0, 4), st.sampled_from([0.0, 0.4, 0.9]),
    st.sampled_from(["", "rows", "cells"]), st.sampled_from([(0.0, 0.0), (1.5, 0.0), (1.5, 0.2), (1.5, 3.0)]),
    st.sampled_from([1.0, 3.0]), st.sampled_from([1.0, math.inf]), st.integers(0, 3),
)  # fmt: skip
def test_rows_equal_their_twins(seed, n_rows, K, missing, offset, law, heat, sharpness, n_passes):
    part = Part(seed, n_rows, K, missing, offset, *law)
    mine = part.run(kernel.sparse_factor_rows, heat, sharpness, n_passes)
    np.testing.assert_allclose(mine, part.run(twin.sparse_factor_rows, heat, sharpness, n_passes), 1e-7, 1e-9)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("loadings_pass", "t * c + precision[k]", "t * c"),
        ("loadings_pass", "g[k] + c * v[k]", "g[k]"),
        ("loadings_pass", "log_precision[k] - math.log(curve)", "log_precision[k]"),
        ("loadings_pass", "first * first + 1.0 / curve", "first * first"),
        ("square_left", "square[k] - v[k] * v[k]", "square[k]"),
        ("sparse_factor_rows", "n_seen[n] * offset_var[n]", "0.0"),
        ("sparse_factor_rows", "flat, cells,", "flat, cells[:0],"),
        ("sparse_factor_rows", "0.5 * n_seen[n]", "n_seen[n]"),
        ("sparse_factor_rows", "total -= totals[n, k] * v[n, k]", "total -= 0.0"),
        ("sparse_factor_rows", "t / heat", "t"),
        ("sparse_factor_rows", "1.0 / noise_law[2]", "2.0 / noise_law[2]"),
    ],
)  # fmt: skip
def test_a_mistake_is_seen(name, old, new):
    wrong = vars(kernel) | {name: mutant(getattr(kernel, name), old, new)}
    function = plain(kernel.sparse_factor_rows)
    patched = type(function)(function.__code__, wrong, function.__name__)
    if name == "sparse_factor_rows":
        patched = wrong[name]
    part = Part(0, 6, 3, 0.4, "rows", floor=0.5)
    right = part.run(twin.sparse_factor_rows, 2.0, 1.0, 2)
    np.testing.assert_allclose(part.run(function, 2.0, 1.0, 2), right, 1e-7, 1e-9)
    assert not np.allclose(part.run(patched, 2.0, 1.0, 2), right, 1e-7, 1e-9)
