"""Rows recognised by their content: 64 bits for each, so that no copy of the data has to be kept."""

from typing import Any

import numpy as np
from scipy.sparse import issparse

Array = np.ndarray

_BLOCK = 1 << 20  # cells hashed at a time
_STEP = np.uint64(0x9E3779B97F4A7C15)  # between two dims
_NAN = np.array([np.nan]).view(np.uint64)[0]


def row_digests(X: Any) -> Array:
    """(n_rows,) uint64: equal for equal rows, whatever their NaN and their zeros look like, and different for others
    but for a chance of n_rows^2 / 2^64. A sparse matrix has the digests of its dense form."""
    if issparse(X):
        return _of_sparse(X.tocsr(copy=True))
    X = np.ascontiguousarray(X, dtype=np.float64)
    digests = np.zeros(len(X), dtype=np.uint64)
    dims = np.arange(X.shape[1], dtype=np.uint64)
    n_rows = max(1, _BLOCK // max(X.shape[1], 1))
    for first in range(0, len(X), n_rows):
        block = slice(first, first + n_rows)
        digests[block] = _words(X[block], dims).sum(axis=1, dtype=np.uint64)
    return digests


def _of_sparse(X: Any) -> Array:
    X.sum_duplicates()
    digests = np.zeros(X.shape[0], dtype=np.uint64)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    for first in range(0, len(rows), _BLOCK):
        block = slice(first, first + _BLOCK)
        words = _words(X.data[block].astype(np.float64), X.indices[block].astype(np.uint64))
        np.add.at(digests, rows[block], words)
    return digests


def _words(values: Array, dims: Array) -> Array:
    """A pseudo-random word for each (value, dim), 0 for a value of zero; a row's digest is their sum modulo 2^64."""
    bits = np.where(np.isnan(values), _NAN, values.view(np.uint64))
    return np.where(values != 0, _mix(_mix(bits) + (dims + np.uint64(1)) * _STEP), np.uint64(0))


def _mix(x: Array) -> Array:
    """The finaliser of splitmix64: every bit of the result depends on every bit of x."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class KnownRows:
    """Rows by their digests. Equal rows are one group."""

    def __init__(self, digests: Array) -> None:
        self._sorted, self._group, self._size = np.unique(digests, return_inverse=True, return_counts=True)

    def find(self, digests: Array) -> Array:
        """The group of each row, -1 for a row that is not known."""
        if not len(self._sorted):
            return np.full(len(digests), -1)
        place = np.minimum(np.searchsorted(self._sorted, digests), len(self._sorted) - 1)
        return np.where(self._sorted[place] == digests, place, -1)

    def mean(self, values: Array) -> Array:
        """Of each group over its rows; a row that has no equal keeps its bits."""
        total = np.zeros((len(self._size), values.shape[1]))
        np.add.at(total, self._group, values)
        return total / self._size[:, None]
