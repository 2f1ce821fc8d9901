"""The data of sparse factor analysis, with a row for whatever owns loadings."""

from collections.abc import Iterator

import numpy as np

Array = np.ndarray

_BLOCK = 4_000_000  # numbers held at a time for cells with matrices of their own


class LoadingData:
    """Y (n_rows, n_cells) as the model works with it, NaN where a cell is missing, and where these are.

    A row belongs to an owner of loadings: a dim, or a row of X. Y is counted from the origin, in the units of the dims.
    """

    def __init__(self, Y: Array) -> None:
        missing = np.isnan(Y)
        self.n_rows, self.n_cells = Y.shape
        self.missing = missing
        self.any_missing = bool(missing.any())
        self.seen = (~missing).astype(float)
        self.n_seen = self.n_cells - missing.sum(axis=1)
        self.start = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64)
        self.cells = np.nonzero(missing)[1].astype(np.int64)
        self.Y = np.where(missing, 0.0, Y) if self.any_missing else np.ascontiguousarray(Y)

    def __len__(self) -> int:
        return self.n_rows

    def without(self, offset: Array | float) -> Array:
        """Y less an offset that goes with it by broadcasting, zero at missing cells."""
        Y = self.Y - offset
        if self.any_missing:
            Y[self.missing] = 0.0
        return Y

    def blocks(self, n_factors: int) -> Iterator[slice]:
        """Cells, so many at a time that a matrix for each of them fits in memory; all, if they share one."""
        step = max(_BLOCK // max(n_factors, 1) ** 2, 1) if self.any_missing else max(self.n_cells, 1)
        for first in range(0, self.n_cells, step):
            yield slice(first, min(first + step, self.n_cells))
