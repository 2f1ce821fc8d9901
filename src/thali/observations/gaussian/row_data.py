"""Data in the form that variational inference of Gaussian models needs: rows that can be split, never changed."""

from functools import cached_property
from typing import Self

import numpy as np

from thali.errors import InvalidDataError

Array = np.ndarray

_LARGEST_SINGLE = 1e18


class RowData:
    """X - centre with zeros at missing cells, and where these are. Without either nothing is copied."""

    def __init__(self, X: Array, missing_start: Array, missing_dim: Array) -> None:
        self.X, self.missing_start, self.missing_dim = X, missing_start, missing_dim
        self.n_rows, self.n_dims = X.shape
        self.any_missing = len(missing_dim) > 0

    @classmethod
    def of(cls, X: Array, centre: Array | None) -> Self:
        missing = np.isnan(X)
        starts = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64)
        X = X if centre is None else X - centre
        known = np.where(missing, 0.0, X).astype(X.dtype, copy=False) if starts[-1] else X
        known = np.require(known, requirements=["C", "W"])  # for arrays that are read only kernels would compile anew
        return cls(known, starts, np.nonzero(missing)[1].astype(np.int64))

    def __len__(self) -> int:
        return self.n_rows

    def part(self, start: int, stop: int) -> Self:
        starts = self.missing_start[start : stop + 1]
        some = type(self)(self.X[start:stop], starts - starts[0], self.missing_dim[starts[0] : starts[-1]])
        for precision in ("single", "double"):
            if precision in self.__dict__:
                some.__dict__[precision] = self.__dict__[precision][start:stop]
        return some

    @cached_property
    def single(self) -> Array:
        """X in single precision, in which squares have to fit, too."""
        largest = float(np.abs(self.X).max(initial=0.0))
        if largest > _LARGEST_SINGLE:
            raise InvalidDataError(
                f"Single precision holds squares of numbers up to {_LARGEST_SINGLE:.0e}. Got {largest:.3g}. "
                'Use precision="double", or scale X.'
            )
        return np.asarray(self.X, dtype=np.float32)

    @cached_property
    def double(self) -> Array:
        """X in double precision."""
        return np.asarray(self.X, dtype=np.float64)

    @cached_property
    def total(self) -> Array:
        """Sum of each dim's observed cells."""
        return self.X.sum(axis=0, dtype=float)

    @cached_property
    def square(self) -> Array:
        """Sum of their squares."""
        return np.einsum("nd,nd->d", self.X, self.X, dtype=float)

    @cached_property
    def missing_row(self) -> Array:
        """Row of each missing cell, as `missing_dim`."""
        return np.repeat(np.arange(self.n_rows), np.diff(self.missing_start))

    @cached_property
    def lacking(self) -> tuple[Array, Array]:
        """Missing cells by dim: rows[start[d]:start[d+1]] lack dim d."""
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.missing_dim, minlength=self.n_dims))])
        return starts.astype(np.int64), self.missing_row[np.argsort(self.missing_dim, kind="stable")]
