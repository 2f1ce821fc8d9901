"""Data that are read a block of rows at a time: an array, a memory map, or an iterator of batches.

Only the block at hand is converted to double precision, so a file of single-precision numbers stays one.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.sparse import issparse

from thali.data.plain_numbers import plain_numbers
from thali.data.sparse_input import checked_csr
from thali.errors import InvalidDataError, InvalidDataTypeError

Array = np.ndarray

LARGEST = 1e150  # squares can still be summed


class RowBlocks:
    """The rows of an array, a memory map or a CSR matrix, in blocks that can be read again in any order."""

    def __init__(self, X: Any, batch_size: int, check: Callable[[Array], Array] = lambda rows: rows) -> None:
        """`check` sees every block before it is used."""
        if not issparse(X) and (not isinstance(X, np.ndarray) or X.ndim != 2):
            raise InvalidDataError(f"X must be a matrix (n_rows, n_dims). Got {_shape(X)}.")
        if min(X.shape) < 1:
            raise InvalidDataError(f"X must have a row and a dim at least. Got {X.shape}.")
        if X.dtype.kind not in "fiub":
            raise InvalidDataTypeError(f"X must hold real numbers. Got dtype {X.dtype}.")
        X = checked_csr(X) if issparse(X) else X
        self._X, self._check = X, check
        self.n_rows, self.n_dims = X.shape
        self.batch_size = min(batch_size, self.n_rows)
        self.n_blocks = -(-self.n_rows // batch_size)
        self.on_disk = on_disk(X)

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, self.n_dims

    @property
    def matrix(self) -> Any:
        """All rows, as they were given."""
        return self._X

    def block(self, index: int) -> Array:
        start = index * self.batch_size
        return self._read(slice(start, start + self.batch_size))

    def some_rows(self, rng: np.random.Generator, n_rows: int) -> Array:
        """So many rows at random, or all of them, in order."""
        if n_rows >= self.n_rows:
            return self._read(slice(None))
        return self.rows(np.sort(rng.choice(self.n_rows, n_rows, replace=False)))

    def rows(self, rows: Array) -> Array:
        """These rows, by increasing number."""
        return self._read(rows)

    def _read(self, rows: Any) -> Array:
        return self._check(check_batch(self._X[rows], self.n_dims))


def is_iterator(X: Any) -> bool:
    return isinstance(X, Iterator)


def on_disk(X: Any) -> bool:
    """Whether X is a memory map, or a view of one."""
    while isinstance(X, np.ndarray):
        if isinstance(X, np.memmap):
            return True
        X = X.base
    return False


def check_batch(X: Any, n_dims: int | None = None) -> Array:
    """A batch as a matrix of doubles with so many dims, NaN where a cell is missing; sparse ones as CSR."""
    if issparse(X):
        return checked_csr(X)
    X = plain_numbers(X)
    try:
        X = np.ascontiguousarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidDataTypeError(
            f"X must be a matrix of real numbers, NaN where a cell is missing. {error}"
        ) from None
    if X.ndim != 2 or not len(X) or X.shape[1] != (n_dims or X.shape[1]):
        wanted = "(n_rows, n_dims)" if n_dims is None else f"(n_rows, {n_dims}), as before,"
        raise InvalidDataError(f"A batch must have the shape {wanted} with at least one row. Got {X.shape}.")
    check_squares(X)
    return X


def check_squares(values: Array) -> None:
    """An error if squares of the values overflow when they are summed; NaN is none."""
    largest = np.fmax.reduce(np.abs(values), axis=None, initial=0.0)
    if largest > LARGEST:
        raise InvalidDataError(f"X must hold numbers whose squares can be summed. Got {largest:.3g}.")


def _shape(X: Any) -> str:
    return f"shape {X.shape}" if hasattr(X, "shape") else f"a {type(X).__name__}"
