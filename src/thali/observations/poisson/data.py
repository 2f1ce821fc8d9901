"""Counts: what may come in, and the working form in which only cells that are not zero take room."""

from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from thali.core.binary import Array
from thali.data.plain_numbers import plain_numbers
from thali.data.sparse_input import checked_csr
from thali.errors import InvalidDataError

_LARGEST = 2.0**53  # whole numbers above it are not all there


def check_counts(X: Any) -> Any:
    """A float64 matrix with NaN for missing cells, or a CSR array if X is sparse; an error that says what is wrong."""
    if sparse.issparse(X):
        X = checked_csr(X)
        values = X.data
        if np.isnan(values).any():
            raise InvalidDataError(
                "Sparse counts cannot have missing cells. Got NaN. Give a dense array, or leave the rows out."
            )
    else:
        X = _dense(X)
        values = X[~np.isnan(X)]
    if 0 in X.shape:
        raise InvalidDataError(f"X must have at least one row and one dim. Got shape {X.shape}.")
    wrong = (values < 0) | (values != np.floor(values)) | (values > _LARGEST)
    if wrong.any():
        missing = "" if sparse.issparse(X) else " (NaN where a cell is missing)"
        raise InvalidDataError(
            f"X must hold counts: whole numbers from 0 to 2^53{missing}. Got {values[wrong][0]:g}. "
            "Use LinearGaussian or FactorAnalysis for real numbers."
        )
    return X


def _dense(X: Any) -> Array:
    X = plain_numbers(X)
    try:
        X = np.asarray(X)
        if X.dtype.kind not in "buifO":
            raise TypeError(f"an array of dtype {X.dtype}")
        X = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidDataError(f"X must hold counts, NaN where a cell is missing. Got {error}.") from error
    if X.ndim != 2:
        raise InvalidDataError(f"X must be a matrix (n_rows, n_dims). Got an array of shape {X.shape}.")
    return X


class CountData:
    """Rows of counts: the non-zero ones of row n at start[n]:start[n+1], its missing cells likewise."""

    def __init__(
        self, start: Array, dims: Array, counts: Array, missing_start: Array, missing_dim: Array, n_dims: int
    ) -> None:
        self.start, self.dims, self.counts = start, dims, counts
        self.missing_start, self.missing_dim, self.n_dims = missing_start, missing_dim, n_dims

    @classmethod
    def of(cls, X: Any) -> Self:
        """Of checked data."""
        if sparse.issparse(X):
            hidden = np.zeros(len(X.indptr), np.int64), np.zeros(0, np.int64)
        else:
            missing = np.isnan(X)
            hidden = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64), np.nonzero(missing)[1]
            X = sparse.csr_array(np.where(missing, 0.0, X))
        return cls(X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data, *hidden, X.shape[1])

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def any_missing(self) -> bool:
        return len(self.missing_dim) > 0

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array, Array]:
        """What kernels take."""
        return self.start, self.dims, self.counts, self.missing_start, self.missing_dim

    def part(self, start: int, stop: int) -> Self:
        rows = slice(start, stop + 1)
        some, hidden = slice(*self.start[[start, stop]]), slice(*self.missing_start[[start, stop]])
        return type(self)(
            self.start[rows] - self.start[start],
            self.dims[some],
            self.counts[some],
            self.missing_start[rows] - self.missing_start[start],
            self.missing_dim[hidden],
            self.n_dims,
        )

    @property
    def log_factorials(self) -> float:
        """Sum of log x! over all cells."""
        return float(gammaln(self.counts + 1.0).sum())

    def sparse(self) -> sparse.csr_array:
        """The counts, zero at missing cells."""
        return sparse.csr_array((self.counts, self.dims, self.start), shape=(len(self), self.n_dims))

    def dense(self) -> Array:
        """X, NaN where missing."""
        X = self.sparse().toarray()
        X[np.repeat(np.arange(len(self)), np.diff(self.missing_start)), self.missing_dim] = np.nan
        return X

    def at_missing(self, values: Array) -> Array:
        """Sums over rows of values (n_rows, n_features) at each dim's missing cells, (n_features, n_dims)."""
        holes = sparse.csr_array(
            (np.ones(len(self.missing_dim)), self.missing_dim, self.missing_start), shape=(len(self), self.n_dims)
        )
        return np.asarray(holes.T @ values).T

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountData) and all(map(np.array_equal, self.arrays, other.arrays))

    __hash__ = None  # type: ignore[assignment]
