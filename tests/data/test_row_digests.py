"""Rows by their content."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from thali.data import row_digests as module
from thali.data.row_digests import KnownRows, row_digests


def test_equal_rows_and_no_others_have_equal_digests(rng):
    X = rng.integers(-1, 2, size=(3000, 6)) * rng.choice([1.0, 1e-300, 1e300, 0.5], size=6)
    X[rng.random(X.shape) < 0.2] = np.nan
    rows = np.unique(np.nan_to_num(X, nan=7.0), axis=0, return_inverse=True)[1].ravel()
    digests = row_digests(X)
    assert digests.dtype == np.uint64
    for number in np.unique(rows)[:50]:
        assert len(np.unique(digests[rows == number])) == 1
    assert len(np.unique(digests)) == rows.max() + 1


def test_what_looks_different_and_is_the_same(rng):
    X = rng.standard_normal((5, 3))
    X[0, 0], X[1, 1] = 0.0, np.nan
    other = X.copy()
    other[0, 0], other[1, 1] = -0.0, -np.float64(np.nan)
    for same in (other, np.asfortranarray(X), X.tolist(), np.repeat(X, 2, axis=0)[::2]):
        assert np.array_equal(row_digests(same), row_digests(X))
    assert np.array_equal(row_digests(X[[3, 1]]), row_digests(X)[[3, 1]])
    swapped = X[:, [1, 0, 2]]
    assert (row_digests(swapped) != row_digests(X)).all()
    assert (row_digests(X + np.array([1e-15, 0, 0])) != row_digests(X))[2:].all()


def test_sparse_as_dense(rng, monkeypatch):
    X = rng.poisson(0.4, size=(40, 12)).astype(float)
    monkeypatch.setattr(module, "_BLOCK", 25)  # many blocks
    sparse = csr_matrix(X)
    sparse.data[0] = X[sparse.nonzero()[0][0], sparse.indices[0]]
    assert np.array_equal(row_digests(sparse), row_digests(X))
    explicit = csr_matrix((np.array([0.0, 2.0, 3.0]), np.array([0, 2, 2]), np.array([0, 3])), shape=(1, 4))
    assert np.array_equal(row_digests(explicit), row_digests(np.array([[0.0, 0.0, 5.0, 0.0]])))
    assert explicit.nnz == 3  # the caller's matrix is left as it is


@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_empty(shape):
    assert len(row_digests(np.zeros(shape))) == shape[0]
    assert KnownRows(np.zeros(0, np.uint64)).find(np.arange(3, dtype=np.uint64)).tolist() == [-1, -1, -1]


def test_groups_of_equal_rows():
    known = KnownRows(np.array([7, 3, 7, 9], dtype=np.uint64))
    assert known.find(np.array([9, 3, 7, 8, 0, 10], dtype=np.uint64)).tolist() == [2, 0, 1, -1, -1, -1]
    np.testing.assert_array_equal(known.mean(np.array([[0.2], [0.1], [0.6], [0.3]])), [[0.1], [0.4], [0.3]])
