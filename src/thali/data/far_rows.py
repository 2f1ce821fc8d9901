"""Rows of a stream that lie far beyond all rows before them: mistakes, more often than news, and they cannot be undone.

Each dim is judged in its own units, by how far a value lies outside the range so far, as a multiple of that range. A
dim with few values, or always the same one, has no range to speak of: there the largest value of all dims is the
measure, with a much wider margin. Before the first row nothing can be judged.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from thali.core.caller import warn_caller
from thali.core.registry import stored

Array = np.ndarray

_ENOUGH = 10  # values of a dim that make a range
_FAR, _FAR_OF_FEW = 100.0, 1e4
_CELLS = 2**20  # that are judged at a time


@stored("Seen")
class Seen(NamedTuple):
    """The range of each dim so far."""

    low: Array  # inf where nothing was seen
    high: Array  # -inf likewise
    n_cells: Array  # that were observed
    n_rows: int

    @classmethod
    def nothing(cls, n_dims: int) -> "Seen":
        return cls(np.full(n_dims, np.inf), np.full(n_dims, -np.inf), np.zeros(n_dims, np.int64), 0)

    def after(self, X: Any) -> "Seen":
        """With the rows of X, too."""
        n_rows = self.n_rows + X.shape[0]
        if X.shape[0] == 0:
            return self
        if issparse(X):
            low, high = (np.asarray(end.todense()).ravel() for end in (X.min(axis=0), X.max(axis=0)))
            return Seen(np.minimum(self.low, low), np.maximum(self.high, high), self.n_cells + X.shape[0], n_rows)
        low, high = np.fmin.reduce(X, axis=0, initial=np.inf), np.fmax.reduce(X, axis=0, initial=-np.inf)
        count = np.sum(~np.isnan(X), axis=0)
        return Seen(np.minimum(self.low, low), np.maximum(self.high, high), self.n_cells + count, n_rows)


class FarRow(NamedTuple):
    """A row and the dim in which it lies furthest out."""

    row: int
    dim: int
    value: float
    times: float  # the range


def warn_of_far_rows(seen: Seen, X: Any) -> None:
    """Say which rows of the next batch lie far from all that came before; the first batch is judged from both ends."""
    found = {far.row: far for far in far_rows(seen, X)}
    if seen.n_rows == 0:  # what comes first may be what is odd
        last = X.shape[0] - 1
        found |= {last - far.row: far._replace(row=last - far.row) for far in far_rows(seen, X[::-1])}
    if not found:
        return
    row, dim, value, times = found[min(found)]
    others = f" So do {len(found) - 1} other rows of this batch." if len(found) > 1 else ""
    warn_caller(
        f"Row {row} of this batch (row {seen.n_rows + row} of the stream) has the value {value:.3g} in dim {dim}: "
        f"{times:.3g} times the range of the other rows outside that range.{others} It may become a feature of its "
        "own, and what was taken in cannot be taken out. If it is a mistake, go back to a saved fit and leave the row "
        "out, or make its cells NaN.",
    )


def far_rows(seen: Seen, X: Any) -> list[FarRow]:
    """Rows of X that lie far from all before them, in order."""
    found: list[FarRow] = []
    step = max(_CELLS // X.shape[1], 1)
    for start in range(0, X.shape[0], step):
        block = X[start : start + step]
        rows = block.toarray() if issparse(block) else block
        excess, far = _excess(seen, rows)
        for row in np.flatnonzero((excess > far).any(axis=1)):
            dim = int(np.argmax(excess[row] / far[row]))
            found.append(FarRow(start + int(row), dim, float(rows[row, dim]), float(excess[row, dim])))
        seen = seen.after(block)
    return found


def _excess(seen: Seen, rows: Array) -> tuple[Array, Array]:
    """(How far each cell lies outside the range of what came before, in units of it; from where that is far)."""
    low = np.fmin.accumulate(np.vstack([seen.low, rows]), axis=0)[:-1]
    high = np.fmax.accumulate(np.vstack([seen.high, rows]), axis=0)[:-1]
    count = np.cumsum(np.vstack([seen.n_cells, ~np.isnan(rows)]), axis=0)[:-1]
    known = count > 0
    size = np.maximum(np.abs(np.where(known, low, 0.0)), np.abs(np.where(known, high, 0.0))).max(axis=1, keepdims=True)
    spread = np.where(known, high, 0.0) - np.where(known, low, 0.0)
    has_range = (count >= _ENOUGH) & (spread > 0)
    unit = np.where(has_range, spread, np.maximum(spread, size))
    beyond = np.maximum(np.where(known, rows - high, np.abs(rows)), np.where(known, low - rows, 0.0))
    beyond = np.nan_to_num(np.maximum(beyond, 0.0))
    with np.errstate(over="ignore"):
        times = np.divide(beyond, unit, out=np.zeros_like(beyond), where=unit > 0)
    return times, np.where(has_range, _FAR, _FAR_OF_FEW)
