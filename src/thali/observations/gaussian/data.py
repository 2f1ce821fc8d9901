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

    Without missing cells, offset and per-dim scale the work space is X itself and nothing is copied.
    """

    def __init__(self, X: Array) -> None:
        missing = np.isnan(X)
        self.n_rows, self.n_dims = X.shape
        self.missing = np.nonzero(missing)  # row-major order
        self.missing_start = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64)
        self.missing_dim = self.missing[1].astype(np.int64)
        self.any_missing = len(self.missing_dim) > 0
        known = np.where(missing, 0.0, X) if self.any_missing else X
        self.observed = DimSums(known.sum(axis=0), np.einsum("nd,nd->d", known, known))
        self.n_observed = self.n_rows - missing.sum(axis=0)
        self.mean = self.observed.total / np.maximum(self.n_observed, 1)  # the first rows of a stream may lack a dim
        self.X = np.require(known, requirements=["C", "W"])  # missing cells are zero here and filled in the work space
        self._work: Array | None = None
        self._held: tuple[Any, Any, Any] | None = None
        self._products: tuple[Array, Array] | None = None

    def sums(self, filled: Array) -> DimSums:
        """Sums and squares per dim, with the missing cells filled."""
        if not self.any_missing:
            return self.observed
        of_filled = DimSums(
            np.bincount(self.missing_dim, filled, self.n_dims),
            np.bincount(self.missing_dim, filled**2, self.n_dims),
        )
        return add(self.observed, of_filled)

    def sparse(self, filled: Array) -> csr_array:
        """The missing cells alone, as they are filled."""
        return csr_array((filled, self.missing_dim, self.missing_start), shape=(self.n_rows, self.n_dims))

    def standardised(self, offset: Array | None, scale: Array | None, filled: Array) -> tuple[Array, Array, Array]:
        """((X - offset) / scale with the missing cells filled, its block products, its squared row norms)."""
        if self._held is not None and all(a is b for a, b in zip(self._held, (offset, scale, filled), strict=True)):
            assert self._products is not None
            return (self.X if self._work is None else self._work), *self._products
        if offset is None and scale is None and not self.any_missing:
            self._work = None
            work = self.X
        else:
            if self._work is None:
                self._work = np.empty_like(self.X)
            work = self._work
            np.copyto(work, self.X)
            if self.any_missing:
                work[self.missing] = filled
            if offset is not None:
                work -= offset
            if scale is not None:
                work /= scale
        self._products = block_products(work)
        self._held = (offset, scale, filled)
        return work, *self._products

    def take_filled(self, offset: Array | None, scale: Array | None, filled: Array) -> Array:
        """The missing cells as a sweep left them in the work space, in the data's units."""
        if not self.any_missing:
            return filled
        assert self._work is not None
        values = self._work[self.missing]
        if scale is not None:
            values = values * scale[self.missing_dim]
        if offset is not None:
            values = values + offset[self.missing_dim]
        self._held = None  # computed anew from the state, so that a restored chain has the same bits
        return values
