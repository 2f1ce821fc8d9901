"""The first rows of a stream, kept while they are few: what a row or two say of the features is soon out of date.

Features begin anew with all rows so far each time their number has doubled, until there are as many as a fit begins
with; then the rows are forgotten. All these beginnings together take about twice the time of the last one.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse, vstack

from thali.core.registry import stored
from thali.data.sparse_input import check_coordinates
from thali.errors import ThaliError
from thali.files import limits

Array = np.ndarray


@stored("YoungRows")
class YoungRows(NamedTuple):
    """Some rows, sparse ones by their cells."""

    cells: Array  # (n_rows, n_dims), or the cells that are not zero
    row: Array | None  # of each such cell
    dim: Array | None
    n_rows: int
    n_dims: int

    @classmethod
    def of(cls, X: Any) -> "YoungRows":
        n_rows, n_dims = X.shape
        if not issparse(X):
            return cls(X, None, None, n_rows, n_dims)
        cells = coo_array(X)
        return cls(cells.data, cells.row, cells.col, n_rows, n_dims)

    @classmethod
    def of_old_file(cls, form: Any, arrays: dict[str, Array]) -> "YoungRows":
        n_rows, n_dims = (int(n) for n in form["shape"])
        row, dim = (arrays[f"stream/young.{name}"] if form["sparse"] else None for name in ("row", "dim"))
        return cls(arrays["stream/young"], row, dim, n_rows, n_dims)

    def matrix(self) -> Any:
        """As they came; a ValueError if the parts, which may be from a file, do not fit together."""
        if self.row is None or self.dim is None:
            if self.cells.shape != (self.n_rows, self.n_dims):
                raise ValueError("its first rows do not have the shape that they say")
            return np.ascontiguousarray(self.cells, dtype=np.float64)
        if limits.DOUBLE * self.n_rows > limits.room_of_fit(self.cells.nbytes):  # a row without entries takes room, too
            raise ValueError("its first rows are more than their entries allow")
        where = self.row, self.dim
        check_coordinates(self.cells, where, self.n_rows, self.n_dims)
        return csr_array(coo_array((self.cells.astype(np.float64), where), shape=(self.n_rows, self.n_dims)))

    def check(self, given: Any, model: Any, n_seen: int) -> None:
        """A ValueError unless they are some of a stream of n_seen rows by this model."""
        kinds = [type(part) for one in (given, model) for part in (one.prior, one.observation)]
        if kinds[:2] != kinds[2:] or self.n_rows != n_seen:
            raise ValueError("its first rows are those of another stream")
        try:
            given.observation.check_data(self.matrix())
        except ThaliError as error:
            raise ValueError(f"its first rows are no data: {error}") from error


def is_time(n_rows: int, n_begun: int, n_start: int) -> bool:
    """Whether features should begin anew with n_rows, when they began with n_begun."""
    return n_rows >= min(2 * n_begun, n_start)


def with_rows(young: YoungRows | None, X: Any) -> Any:
    """The rows so far and those of X."""
    if young is None:
        return X
    before = young.matrix()
    if issparse(X) or issparse(before):
        return csr_array(vstack([csr_array(before), csr_array(X)]))
    return np.vstack([before, X])
