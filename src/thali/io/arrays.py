"""Read NumPy files. Pickles are never loaded: opening a data file must not be able to run code."""

from pathlib import Path

import numpy as np

from thali.errors import InvalidDataError
from thali.io.cells import Cells, no_numbers_error

_MOST_CELLS = 2e8  # of a sparse matrix that is made dense: 1.6 GB


def read_numpy(path: Path) -> Cells:
    """Read a `.npy` matrix, or from an `.npz` the array X, a sparse matrix, or else the only matrix of numbers."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.lib.npyio.NpzFile):
                return _named(loaded, _matrix(path, _choose(path, loaded)))
            return _matrix(path, loaded)
    except InvalidDataError:
        raise
    except Exception as error:  # a damaged file makes NumPy and zipfile raise anything, even TokenError
        raise InvalidDataError(
            f"{path} is not a NumPy file of plain numbers: it is damaged, or holds Python objects (pickle), "
            f"which thali never loads because that can run code. Save a matrix of numbers with numpy.save"
        ) from error


def _choose(path: Path, archive: np.lib.npyio.NpzFile) -> np.ndarray:
    names = archive.files
    if "X" in names:
        return archive["X"]
    if {"format", "shape", "data"} <= set(names):  # as scipy.sparse.save_npz writes it
        return _dense(path, archive)
    arrays: dict[str, np.ndarray | None] = {name: _load(archive, name) for name in names}
    matrices = [found for found in arrays.values() if found is not None and _is_matrix(found)]
    if len(matrices) == 1:
        return matrices[0]
    held = ", ".join(
        f"{name} (Python objects)" if found is None else f"{name} ({found.dtype}, shape {found.shape})"
        for name, found in arrays.items()
    )
    raise InvalidDataError(
        f"{path}: expected an array named X or exactly one matrix of numbers, found {held or 'no arrays'}. "
        f"Save the data under the name X: numpy.savez(path, X=data)"
    )


def _named(archive: np.lib.npyio.NpzFile, cells: Cells) -> Cells:
    """The matrix with the names that `write_table` puts beside it, where they are there."""
    n_rows, n_dims = cells.X.shape
    names: dict[str, tuple[str, ...] | None] = {}
    for name, length in (("row_names", n_rows), ("dim_names", n_dims), ("index_name", 1)):
        texts = _load(archive, name) if "X" in archive.files and name in archive.files else None
        fit = texts is not None and texts.dtype.kind == "U" and texts.shape == (length,)
        names[name] = tuple(texts.tolist()) if fit and texts is not None else None
    rows, dims, label = names["row_names"], names["dim_names"], names["index_name"]
    rows = rows if rows is not None and len(set(rows)) == len(rows) else None
    found = [
        words for words, texts in (("row_names names the rows", rows), ("dim_names names the dims", dims)) if texts
    ]
    return cells._replace(
        row_names=rows, dim_names=dims, index_name=label[0] if label and rows else "", reading=tuple(found)
    )


def _dense(path: Path, archive: np.lib.npyio.NpzFile) -> np.ndarray:
    from scipy.sparse import load_npz

    n_cells = float(np.prod(archive["shape"], dtype=float))
    if n_cells > _MOST_CELLS:
        raise InvalidDataError(
            f"{path} is a sparse matrix of {n_cells:.3g} cells, too many for a table of them all; load it with "
            f"scipy.sparse.load_npz in Python and give it to PoissonGamma, which keeps it sparse"
        )
    return load_npz(path).toarray()


def _load(archive: np.lib.npyio.NpzFile, name: str) -> np.ndarray | None:
    try:
        return archive[name]
    except ValueError:
        return None


def _is_matrix(values: np.ndarray) -> bool:
    return values.ndim == 2 and values.dtype.kind in "biuf"


def _matrix(path: Path, values: np.ndarray) -> Cells:
    if not _is_matrix(values):
        remedy = "Use data.reshape(-1, 1) for a single column" if values.ndim == 1 else "Save one row per object"
        raise InvalidDataError(
            f"{path}: expected a matrix of real numbers (2-d), "
            f"got an array of {values.dtype} with shape {values.shape}. {remedy}"
        )
    if values.shape[0] == 0:
        raise InvalidDataError(f"{path} has no rows (shape {values.shape}); expected at least one")
    if values.shape[1] == 0:
        raise no_numbers_error(path)
    return Cells(np.ascontiguousarray(values, dtype=np.float64), None, None)
