"""The data of Gaussian models: checked, and in the form that sweeps need."""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from thali.core.statistics import add
from thali.kernels.bits.collapsed_rows import BLOCK

Array = np.ndarray


class DimSums(NamedTuple):
    """Additive statistics of cells, per dim."""

    total: Array
    square: Array


def block_products(X: Array) -> tuple[Array, Array]:
    """x_n . x_t for the rows t of n's block of BLOCK rows, (n_rows, BLOCK), and |x_n|^2."""
    n_rows, n_dims = X.shape
    whole = n_rows - n_rows % BLOCK
    products = np.zeros((n_rows, BLOCK))
    blocks = X[:whole].reshape(-1, BLOCK, n_dims)
    products[:whole] = np.matmul(blocks, blocks.transpose(0, 2, 1)).reshape(whole, BLOCK)
    products[whole:, : n_rows - whole] = X[whole:] @ X[whole:].T
    return products, products[np.arange(n_rows), np.arange(n_rows) % BLOCK].copy()


class GaussianData:
    """Checked data in the form that sweeps need. One per chain: it holds a work space.

    A cell is known, or hidden: known to lie in an interval, which is everywhere if it is missing. A chain keeps a
    current value of each hidden cell (`filled`). Cells that may lie anywhere are integrated out while bits are drawn;
    those with a bound count as seen at their current values.

    Without hidden cells, offset and per-dim scale the work space is X itself and nothing is copied.
    """

    def __init__(self, X: Array, lower: Array | None = None, upper: Array | None = None) -> None:
        """X is NaN where a cell may lie anywhere. Where it has a bound, X holds some point of its interval."""
        missing = np.isnan(X)
        hidden = missing
        for bound in (lower, upper):
            hidden = hidden if bound is None else hidden | np.isfinite(bound)
        self.n_rows, self.n_dims = X.shape
        self.hidden = np.nonzero(hidden)  # row-major order
        self.hidden_start, self.hidden_dim = _by_row(hidden, self.hidden)
        self.any_hidden = len(self.hidden_dim) > 0
        self.points = X[self.hidden]  # of the intervals; NaN if a cell may lie anywhere
        self.is_free = np.isnan(self.points)
        self.bounds = None if self.is_free.all() else _between(lower, upper, self.hidden)
        self.free_start, self.free_dim = self.hidden_start, self.hidden_dim
        if self.bounds is not None:
            self.free_start, self.free_dim = _by_row(missing, np.nonzero(missing))
        known = np.where(hidden, 0.0, X) if self.any_hidden else X
        self.observed = DimSums(known.sum(axis=0), np.einsum("nd,nd->d", known, known))
        self.n_observed = self.n_rows - hidden.sum(axis=0)
        self.mean = self.observed.total / np.maximum(self.n_observed, 1)  # the first rows of a stream may lack a dim
        self.X = np.require(known, requirements=["C", "W"])  # hidden cells are zero here and filled in the work space
        self._work: Array | None = None
        self._held: tuple[Any, Any, Any] | None = None
        self._products: tuple[Array, Array] | None = None

    def sums(self, filled: Array) -> DimSums:
        """Sums and squares per dim, with the hidden cells filled."""
        if not self.any_hidden:
            return self.observed
        of_filled = DimSums(
            np.bincount(self.hidden_dim, filled, self.n_dims),
            np.bincount(self.hidden_dim, filled**2, self.n_dims),
        )
        return add(self.observed, of_filled)

    def holds(self, filled: Array) -> bool:
        """Whether these values of the hidden cells lie in their intervals."""
        return self.bounds is None or bool(((filled >= self.bounds[0]) & (filled <= self.bounds[1])).all())

    def at_hidden(self, matrix: Array) -> Array:
        """The hidden cells of a matrix like X; without a look at indices where all are hidden."""
        return matrix.reshape(-1) if len(self.hidden_dim) == self.X.size else matrix[self.hidden]

    def put_hidden(self, matrix: Array, values: Array) -> None:
        """Set the hidden cells of a contiguous matrix like X."""
        if len(self.hidden_dim) == self.X.size:
            matrix.reshape(-1)[:] = values
        else:
            matrix[self.hidden] = values

    def completed(self, filled: Array) -> Array:
        """A copy of X with the hidden cells filled."""
        X = self.X.copy()
        self.put_hidden(X, filled)
        return X

    def seen(self, filled: Array) -> Array:
        """X as it counts while bits are drawn, zero in cells that may lie anywhere."""
        if self.bounds is None:
            return self.X
        return self.completed(np.where(self.is_free, 0.0, filled))

    def with_free(self, free: Array, filled: Array) -> Array:
        """Values of the hidden cells: `free` where a cell may lie anywhere, the others as they are."""
        if self.bounds is None:
            return free
        values = filled.copy()
        values[self.is_free] = free
        return values

    def sparse(self, filled: Array) -> csr_array:
        """The hidden cells alone, as they are filled."""
        return csr_array((filled, self.hidden_dim, self.hidden_start), shape=(self.n_rows, self.n_dims))

    def standardised(self, offset: Array | None, scale: Array | None, filled: Array) -> tuple[Array, Array, Array]:
        """((X - offset) / scale with the hidden cells filled, its block products, its squared row norms)."""
        if self._held is not None and all(a is b for a, b in zip(self._held, (offset, scale, filled), strict=True)):
            assert self._products is not None
            return (self.X if self._work is None else self._work), *self._products
        if offset is None and scale is None and not self.any_hidden:
            self._work = None
            work = self.X
        else:
            if self._work is None:
                self._work = np.empty_like(self.X)
            work = self._work
            np.copyto(work, self.X)
            if self.any_hidden:
                self.put_hidden(work, filled)
            if offset is not None:
                work -= offset
            if scale is not None:
                work /= scale
        self._products = block_products(work)
        self._held = (offset, scale, filled)
        return work, *self._products

    def take_filled(self, offset: Array | None, scale: Array | None, filled: Array) -> Array:
        """The hidden cells as a sweep left them in the work space, in the data's units."""
        if not self.any_hidden:
            return filled
        assert self._work is not None
        values = self.at_hidden(self._work)
        if scale is not None:
            values = values * scale[self.hidden_dim]
        if offset is not None:
            values = values + offset[self.hidden_dim]
        self._held = None  # computed anew from the state, so that a restored chain has the same bits
        return values.copy() if values.base is not None else values  # never a view of the work space


def _by_row(is_there: Array, cells: tuple[Array, ...]) -> tuple[Array, Array]:
    """(where each row begins among these cells, their dims)."""
    start = np.concatenate([[0], np.cumsum(is_there.sum(axis=1))]).astype(np.int64)
    return start, cells[1].astype(np.int64)


def _between(lower: Array | None, upper: Array | None, cells: tuple[Array, ...]) -> tuple[Array, Array]:
    """The bounds of these cells."""
    everywhere = np.full(len(cells[0]), np.inf)
    return (-everywhere if lower is None else lower[cells]), (everywhere if upper is None else upper[cells])
