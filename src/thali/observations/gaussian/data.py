"""What Gaussian observation models share: checked data, its working form, and the collapsed likelihood in K-space."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammainc, gammaincinv

from thali.core.registry import stored
from thali.core.statistics import add
from thali.data.plain_numbers import plain_numbers
from thali.errors import InvalidDataError
from thali.kernels.bits.collapsed_rows import BLOCK

Array = np.ndarray


class DimSums(NamedTuple):
    """Additive statistics of cells, per dim."""

    total: Array
    square: Array


@stored("GaussianRows")
class GaussianRows(NamedTuple):
    """Row variables of a Gaussian model, and the statistics that go with them."""

    z: Array  # (n_rows, n_features) uint8
    gram: Array  # z'z, exact (whole numbers)
    cross: Array  # z'X in the data's units, missing cells filled
    filled: Array  # the missing cells, in row-major order


def check_real(X: Any) -> Array:
    """X as a float64 matrix with NaN for missing cells; every row and every dim must have an observed cell."""
    X = plain_numbers(X)
    try:
        X = np.asarray(X)
        if X.dtype.kind not in "buifO":
            raise TypeError(f"an array of dtype {X.dtype}")
        X = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidDataError(
            f"X must hold real numbers, NaN where a cell is missing. Got {error}. "
            "Convert text columns to numbers, or leave them out."
        ) from error
    if X.ndim != 2:
        raise InvalidDataError(
            f"X must be a matrix (n_rows, n_dims). Got an array with {X.ndim} axes and shape {X.shape}. "
            "Reshape your data: X.reshape(-1, 1) for one dim, X.reshape(1, -1) for one row."
        )
    if X.size == 0:
        raise InvalidDataError(f"X must have at least one row and one dim. Got shape {X.shape}.")
    if np.isinf(X).any():
        n, d = np.argwhere(np.isinf(X))[0]
        raise InvalidDataError(
            f"X must be finite (NaN means missing). Got infinity in row {n}, dim {d}. "
            "Replace infinities by NaN or by a number."
        )
    largest = np.nanmax(np.abs(X), initial=0.0)
    if largest > 1e150 or 0 < largest < 1e-140:
        raise InvalidDataError(
            f"X must hold numbers whose squares can be summed. Got {largest:.3g} as the largest: "
            f"{'divide' if largest > 1 else 'multiply'} X by a constant."
        )
    observed = ~np.isnan(X)
    for axis, kind in ((0, "dim"), (1, "row")):
        empty = np.flatnonzero(~observed.any(axis=axis))
        if len(empty):
            raise InvalidDataError(
                f"Every {kind} of X needs at least one observed cell. Got only NaN in {len(empty)} of them, the first "
                f"at index {empty[0]}. Drop what is wholly missing: nothing can be learned about it."
            )
    return X


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


class Spectrum(NamedTuple):
    """Eigenvalues of Z'Z and what the collapsed likelihood needs besides, so that it costs O(K) to evaluate.

    log p(X | Z) = -N D/2 log(2 pi s) - D/2 sum log(1 + lam f/s) - (square - sum power / (lam + s/f)) / (2 s),
    s the noise and f the feature variance.
    """

    lam: Array
    power: Array  # |u_i' Z'X|^2
    square: float  # |X|^2
    n_rows: int
    n_dims: int

    def log_likelihood(self, noise_var: float, feature_var: float) -> float:
        # eq: DV09.collapsed-likelihood
        ratio = feature_var / noise_var
        with np.errstate(over="ignore", invalid="ignore"):  # of an absurd ratio, which has no probability
            explained = float((self.power / (self.lam + 1.0 / ratio)).sum())
            spread = float(np.log1p(self.lam * ratio).sum())
        return (
            -0.5 * self.n_rows * self.n_dims * math.log(2 * math.pi * noise_var)
            - 0.5 * self.n_dims * spread
            - 0.5 * max(self.square - explained, 0.0) / noise_var
        )


def spectrum(gram: Array, cross: Array, square: float, n_rows: int, n_dims: int) -> Spectrum:
    lam, vectors = np.linalg.eigh(gram)
    power = ((vectors.T @ cross) ** 2).sum(axis=1)
    return Spectrum(np.maximum(lam, 0.0), power, square, n_rows, n_dims)


def draw_truncated_inverse_gamma(rng: np.random.Generator, shape: float, scale: Array, floor: Array) -> Array:
    """InverseGamma(shape, scale_d) restricted to values >= floor_d, by inversion."""
    if not np.any(floor > 0):
        return scale / rng.gamma(shape, size=np.shape(scale))
    u = rng.random(np.shape(scale))
    with np.errstate(divide="ignore", over="ignore"):
        highest = np.where(floor > 0, scale / np.where(floor > 0, floor, 1.0), np.inf)
    below = gammainc(shape, highest)  # P(precision below its ceiling)
    precision = gammaincinv(shape, u * below)
    # where all but nothing of the mass lies below the floor, the floor is the answer to rounding
    return np.where((precision > 0) & (below > 1e-280), np.maximum(scale / np.maximum(precision, 1e-300), floor), floor)


def with_room(Z: Array, gram: Array, cross: Array, room: int) -> tuple[Array, Array, Array]:
    """Copies with `room` columns (at least one), the unused ones zero."""
    K = Z.shape[1]
    room = max(room, 1)
    larger = np.zeros((len(Z), room), dtype=np.uint8)
    larger[:, :K] = Z
    larger_gram = np.zeros((room, room))
    larger_gram[:K, :K] = gram
    larger_cross = np.zeros((room, cross.shape[1]))
    larger_cross[:K] = cross
    return larger, larger_gram, larger_cross
