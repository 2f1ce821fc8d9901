"""Sparse matrices from outside: their whole structure is looked at before anything follows an index of theirs.

Kernels, and scipy's own conversions, read and write wherever `indices` and `indptr` point. scipy looks at little of it
when a matrix is made and at nothing after that, so a file, or a matrix that was changed in place, may point anywhere.
"""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import issparse

from thali.errors import InvalidDataError, InvalidDataTypeError

__all__ = ["check_structure", "checked_csr", "issparse"]

Array = np.ndarray


def checked_csr(X: Any) -> sparse.csr_array:
    """X, in whatever format, as a CSR array of doubles with sorted indices, no duplicates and no stored zeros.

    Its flags are not believed, and X itself stays as it is.
    """
    try:
        check_structure(X)
        table = sparse.csr_array(_rebuilt(X))
    except AttributeError as error:
        raise _broken(str(error)) from error
    if not table.has_canonical_format or (table.data == 0).any():
        table = table.copy()
        table.sum_duplicates()
        table.eliminate_zeros()
    return table


def _rebuilt(X: Any) -> Any:
    """The same matrix of doubles, made of its parts: a fresh one knows nothing of indices that are sorted."""
    if X.format in ("lil", "dok"):
        return _from_python(X)
    data = _native(X.data, np.float64)
    if X.format == "coo":
        rows, dims = X.coords if hasattr(X, "coords") else (X.row, X.col)
        return sparse.coo_array((data, (_native(rows), _native(dims))), shape=X.shape)
    if X.format == "dia":
        return sparse.dia_array((data, _native(X.offsets)), shape=X.shape)
    used = int(X.indptr[-1])
    kind = {"csr": sparse.csr_array, "csc": sparse.csc_array, "bsr": sparse.bsr_array}[X.format]
    return kind((data[:used], _native(X.indices[:used]), _native(X.indptr)), shape=X.shape)


def _native(values: Array, dtype: Any = None) -> Array:
    """As a plain array in the order of bytes of this machine; whole numbers as 64 bits unless they have 32."""
    if dtype is None:
        dtype = np.int32 if values.dtype.kind == "i" and values.dtype.itemsize == 4 else np.int64
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is found later
        return np.asarray(values, dtype=dtype)


def check_structure(X: Any) -> None:
    """An InvalidDataError unless every index of a scipy.sparse matrix points into it."""
    if X.ndim != 2:
        raise InvalidDataError(f"X must be a matrix (n_rows, n_dims). Got {X.ndim} axes.")
    if len(X.shape) != 2 or not all(isinstance(n, int | np.integer) and n >= 0 for n in X.shape):
        raise _broken(f"its shape is {X.shape!r}")
    n_rows, n_dims = (int(n) for n in X.shape)
    if X.format == "csr":
        check_compressed(X.data, X.indices, X.indptr, n_rows, n_dims)
    elif X.format == "csc":
        check_compressed(X.data, X.indices, X.indptr, n_dims, n_rows)
    elif X.format == "bsr":
        check_blocks(X.data, X.indices, X.indptr, n_rows, n_dims)
    elif X.format == "coo":
        check_coordinates(X.data, X.coords if hasattr(X, "coords") else (X.row, X.col), n_rows, n_dims)
    elif X.format == "dia":
        check_diagonals(X.data, X.offsets, n_rows, n_dims)
    elif X.format in ("lil", "dok"):
        _from_python(X)
    else:
        raise InvalidDataTypeError(f"X has the sparse format {X.format!r}, which is not known. Convert it by .tocsr().")


def check_compressed(data: Any, indices: Any, indptr: Any, n_major: int, n_minor: int) -> None:
    """The parts of a CSR matrix, or with the axes exchanged of a CSC one."""
    _numbers(data, 1)
    _whole("indices", indices)
    _whole("indptr", indptr)
    if len(indptr) != n_major + 1 or indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise _broken(f"indptr must rise from 0 in {n_major} steps")
    if len(data) != len(indices) or int(indptr[-1]) > len(indices):
        raise _broken(f"indptr ends at {indptr[-1]}, with {len(indices)} indices and {len(data)} values")
    _inside("indices", indices[: int(indptr[-1])], n_minor)


def check_blocks(data: Any, indices: Any, indptr: Any, n_rows: int, n_dims: int) -> None:
    """The parts of a BSR matrix."""
    _numbers(data, 3)
    height, width = data.shape[1:]
    if height < 1 or width < 1 or n_rows % height or n_dims % width:
        raise _broken(f"blocks of {height} x {width} do not fill {n_rows} x {n_dims}")
    check_compressed(data[:, 0, 0], indices, indptr, n_rows // height, n_dims // width)


def check_coordinates(data: Any, coords: Any, n_rows: int, n_dims: int) -> None:
    """The parts of a COO matrix."""
    _numbers(data, 1)
    if len(coords) != 2:
        raise _broken(f"it has {len(coords)} lists of coordinates")
    for name, places, length in (("row", coords[0], n_rows), ("col", coords[1], n_dims)):
        _whole(name, places)
        if len(places) != len(data):
            raise _broken(f"{name} has {len(places)} entries for {len(data)} values")
        _inside(name, places, length)


def check_diagonals(data: Any, offsets: Any, n_rows: int, n_dims: int) -> None:
    """The parts of a DIA matrix."""
    _numbers(data, 2)
    _whole("offsets", offsets)
    if len(offsets) != len(data) or len(np.unique(offsets)) < len(offsets):
        raise _broken(f"it has {len(data)} diagonals with {len(np.unique(offsets))} different offsets")
    _inside("offsets", offsets.astype(np.int64) + max(n_rows - 1, 0), max(n_rows + n_dims - 1, 0))


def _from_python(X: Any) -> sparse.coo_array:
    """A LIL or DOK matrix, which hold lists and a dictionary, from its entries one by one."""
    try:
        if X.format == "dok":
            places = list(X.keys())
            values = np.array(list(X.values()))
            rows, dims = (np.array([place[i] for place in places]) for i in (0, 1))
        else:
            if X.rows.shape != (X.shape[0],) or X.data.shape != X.rows.shape:
                raise _broken(f"it has {len(X.rows)} lists for {X.shape[0]} rows")
            lengths = [len(row) for row in X.rows]
            if lengths != [len(row) for row in X.data]:
                raise _broken("a row has not as many values as places")
            rows = np.repeat(np.arange(len(lengths)), lengths)
            dims = np.array([dim for row in X.rows for dim in row])
            values = np.array([value for row in X.data for value in row])
    except InvalidDataError:
        raise
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise _broken(str(error)) from error
    if not len(values):
        return sparse.coo_array(X.shape, dtype=np.float64)
    check_coordinates(values, (rows, dims), *(int(n) for n in X.shape))
    return sparse.coo_array((_native(values, np.float64), (_native(rows), _native(dims))), shape=X.shape)


def _numbers(data: Any, n_axes: int) -> None:
    if not isinstance(data, np.ndarray) or data.ndim != n_axes:
        raise _broken(f"its values are no array with {n_axes} axes")
    if data.dtype.kind not in "biuf":
        raise InvalidDataTypeError(f"X must hold real numbers. Got a sparse matrix of {data.dtype}.")


def _whole(name: str, places: Any) -> None:
    if not isinstance(places, np.ndarray) or places.ndim != 1 or places.dtype.kind not in "iu":
        raise _broken(f"{name} must be a list of whole numbers")


def _inside(name: str, places: Array, length: int) -> None:
    if len(places) and (places.min() < 0 or places.max() >= length):
        raise _broken(f"{name} must lie from 0 to {length - 1}, and are from {places.min()} to {places.max()}")


def _broken(why: str) -> InvalidDataError:
    return InvalidDataError(f"X is a sparse matrix that does not hold together: {why}. Build it anew from its entries.")
