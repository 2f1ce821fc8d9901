"""Read NumPy files. Pickles are never loaded: opening a data file must not be able to run code.

Nothing that a file says is believed: sizes are held against the file before there is an array
(`thali.files.archives`), and the structure of a sparse matrix is looked at before its cells are filled in
(`thali.data.sparse_input`).
"""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from thali.errors import InvalidDataError
from thali.files import limits
from thali.files.archives import Header, TooLargeError, directory, member_header, read_header, read_member, read_numbers
from thali.io.cells import Cells, no_numbers_error

_NAMES = ("row_names", "dim_names", "index_name")
_LONGEST_NAME = 4096  # bytes
_MOST_CELLS = limits.SPARSE_MOST // limits.DOUBLE  # of a sparse matrix that is made dense, however large its file
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # the second: one with nothing in it


def read_numpy(path: Path) -> Cells:
    """Read a `.npy` matrix, or from an `.npz` the array X, a sparse matrix, or else the only matrix of numbers."""
    size = limits.stored_size(path)
    try:
        with path.open("rb") as file:
            if file.read(4) in _ZIP:
                with zipfile.ZipFile(file) as archive:
                    cells = _cells(path, _choose(path, archive, size))
                    return _named(archive, limits.room_of_data(size), cells)
            file.seek(0)
            header = read_header(file)
            _check_matrix(path, header)
            _check_room(header.size, limits.room_of_data(size))
            return _cells(path, read_numbers(file, header, path.stat().st_size - file.tell()))
    except InvalidDataError:
        raise
    except TooLargeError as error:
        raise InvalidDataError(
            f"{path} is out of proportion: {error}. If it is meant so, save it uncompressed with numpy.save"
        ) from error
    except Exception as error:  # a damaged file makes zipfile and zlib raise anything
        raise InvalidDataError(
            f"{path} is not a NumPy file of plain numbers: it is damaged, or holds Python objects (pickle), "
            f"which thali never loads because that can run code. Save a matrix of numbers with numpy.save"
        ) from error


def _named(archive: zipfile.ZipFile, room: int, cells: Cells) -> Cells:
    """The matrix with the names that `write_table` puts beside it, where they are there."""
    members = _members(archive, room)
    names: dict[str, tuple[str, ...] | None] = {}
    for name, length in zip(_NAMES, (*cells.X.shape, 1), strict=True):
        header = member_header(archive, members[name]) if "X" in members and name in members else None
        fits = header is not None and header.dtype.kind == "U" and header.shape == (length,)
        names[name] = tuple(read_member(archive, members[name], _LONGEST_NAME).tolist()) if fits else None
    rows, dims, label = (names[name] for name in _NAMES)
    rows = rows if rows is not None and len(set(rows)) == len(rows) else None
    found = [
        words for words, texts in (("row_names names the rows", rows), ("dim_names names the dims", dims)) if texts
    ]
    return cells._replace(
        row_names=rows, dim_names=dims, index_name=label[0] if label and rows else "", reading=tuple(found)
    )


def _members(archive: zipfile.ZipFile, room: int) -> dict[str, zipfile.ZipInfo]:
    return {name.removesuffix(".npy"): info for name, info in directory(archive, room).items()}


def _choose(path: Path, archive: zipfile.ZipFile, size: int) -> np.ndarray:
    room = limits.room_of_data(size)
    members = _members(archive, room)
    if {"format", "shape", "data"} <= members.keys() and "X" not in members:  # as scipy.sparse.save_npz writes it
        return _dense(path, {name: read_member(archive, info) for name, info in members.items()}, size)
    headers = {name: member_header(archive, info) for name, info in members.items()}
    matrices = ["X"] if "X" in headers else [name for name, header in headers.items() if _is_matrix(header)]
    if len(matrices) != 1:
        held = ", ".join(
            f"{name} (Python objects)" if header.dtype == object else f"{name} ({header.dtype}, shape {header.shape})"
            for name, header in headers.items()
        )
        raise InvalidDataError(
            f"{path}: expected an array named X or exactly one matrix of numbers, found {held or 'no arrays'}. "
            f"Save the data under the name X: numpy.savez(path, X=data)"
        )
    name = matrices[0]
    _check_matrix(path, headers[name])
    _check_room(headers[name].size, room)
    return read_member(archive, members[name])


def _dense(path: Path, parts: dict[str, np.ndarray], size: int) -> np.ndarray:
    """All cells of a sparse matrix, given the arrays of its file."""
    shape = parts["shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
        raise InvalidDataError(f"{path}: expected a sparse matrix (2-d). Save one row per object")
    n_rows, n_dims = (int(n) for n in shape)
    if n_rows * n_dims > min(limits.room_of_sparse(size) // limits.DOUBLE, _MOST_CELLS):
        raise InvalidDataError(
            f"{path} is a sparse matrix of {float(n_rows) * n_dims:.3g} cells, too many for a table of them all; load "
            f"it with scipy.sparse.load_npz in Python and give it to PoissonGamma, which keeps it sparse"
        )
    try:
        return _sparse(parts, (n_rows, n_dims)).toarray()
    except InvalidDataError as error:
        raise InvalidDataError(f"{path}: {error}") from error


def _sparse(parts: dict[str, np.ndarray], shape: tuple[int, int]) -> Any:
    """The sparse matrix of these parts, once every index was found inside it."""
    from scipy import sparse

    from thali.data import sparse_input as check

    kind, data = parts["format"].item(), parts["data"]
    kind = kind.decode("ascii") if isinstance(kind, bytes) else kind
    if kind in ("csr", "csc", "bsr"):
        indices, indptr = parts["indices"], parts["indptr"]
        if kind == "bsr":
            check.check_blocks(data, indices, indptr, *shape)
        else:
            check.check_compressed(data, indices, indptr, *(shape if kind == "csr" else shape[::-1]))
        makers = {"csr": sparse.csr_array, "csc": sparse.csc_array, "bsr": sparse.bsr_array}
        return check.checked_csr(makers[kind]((data, indices, indptr), shape=shape))
    if kind == "coo":
        coords = tuple(parts["coords"]) if "coords" in parts else (parts["row"], parts["col"])
        check.check_coordinates(data, coords, *shape)
        return check.checked_csr(sparse.coo_array((data, coords), shape=shape))
    if kind == "dia":
        check.check_diagonals(data, parts["offsets"], *shape)
        return check.checked_csr(sparse.dia_array((data, parts["offsets"]), shape=shape))
    raise InvalidDataError(f"a sparse matrix of the format {str(kind)[:20]!r} is not known; save it as csr")


def _check_room(n_cells: int, room: int) -> None:
    if limits.DOUBLE * n_cells > room:
        raise TooLargeError(limits.DOUBLE * n_cells, room)


def _is_matrix(values: np.ndarray | Header) -> bool:
    return len(values.shape) == 2 and values.dtype.kind in "biuf"


def _check_matrix(path: Path, values: np.ndarray | Header) -> None:
    if not _is_matrix(values):
        remedy = "Use data.reshape(-1, 1) for a single column" if len(values.shape) == 1 else "Save one row per object"
        if values.dtype == object:
            raise ValueError("objects")
        raise InvalidDataError(
            f"{path}: expected a matrix of real numbers (2-d), "
            f"got an array of {values.dtype} with shape {values.shape}. {remedy}"
        )
    if values.shape[0] == 0:
        raise InvalidDataError(f"{path} has no rows (shape {values.shape}); expected at least one")
    if values.shape[1] == 0:
        raise no_numbers_error(path)


def _cells(path: Path, values: np.ndarray) -> Cells:
    _check_matrix(path, values)
    with np.errstate(over="ignore"):  # a number beyond double precision becomes infinite, and is refused as such
        return Cells(np.ascontiguousarray(values, dtype=np.float64), None, None)
