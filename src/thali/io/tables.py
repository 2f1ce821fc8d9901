"""Read a data matrix from a file: the format from the suffix, one kind of result, one kind of error."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thali import limits
from thali.errors import InvalidDataError
from thali.io.arrays import read_numpy
from thali.io.cells import Cells
from thali.io.delimited import read_delimited
from thali.io.parquet import read_parquet

__all__ = ["Table", "read_table"]


class Table(NamedTuple):
    """A data matrix as read from a file; the names are None where the file gives none."""

    X: np.ndarray  # (n_rows, n_dims) float64, NaN where a cell is missing
    row_names: tuple[str, ...] | None
    dim_names: tuple[str, ...] | None
    source: str
    index_name: str = ""  # what stands above the row names


_READERS: dict[str, Callable[[Path], Cells]] = {
    ".csv": lambda path: read_delimited(path, ","),
    ".tsv": lambda path: read_delimited(path, "\t"),
    ".txt": lambda path: read_delimited(path, "\t"),
    ".csv.gz": lambda path: read_delimited(path, ","),
    ".tsv.gz": lambda path: read_delimited(path, "\t"),
    ".txt.gz": lambda path: read_delimited(path, "\t"),
    ".npy": read_numpy,
    ".npz": read_numpy,
    ".parquet": read_parquet,
}


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read the data matrix in `path`, with NaN for missing cells.

    Formats, by suffix: `.csv` (commas), `.tsv` and `.txt` (tabs), each also with `.gz`; `.npy`; `.npz` (the array
    named X, a matrix of scipy.sparse.save_npz, or the only matrix of numbers in it); `.parquet`. In text files a
    first line with any cell that is not a number is the header, and a first column of distinct texts holds the names
    of the rows.

    Raises `InvalidDataError` whenever the file is not such a matrix, or is not there.
    """
    path = Path(path)
    reader = _reader(path)
    _check_readable(path)
    try:
        cells = reader(path)
    except OSError as error:
        raise InvalidDataError(f"cannot read {path}: {error.strerror or error}") from error
    _check_finite(path, cells)
    return Table(cells.X, cells.row_names, cells.dim_names, str(path), cells.index_name)


def _reader(path: Path) -> Callable[[Path], Cells]:
    suffix = "".join(path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]).lower()
    if suffix not in _READERS:
        found = f"the suffix {suffix!r}" if suffix else "no suffix"
        raise InvalidDataError(
            f"{path} has {found}, which is not a format thali reads; "
            f"expected one of {', '.join(_READERS)}. Convert or rename the file"
        )
    return _READERS[suffix]


def _check_readable(path: Path) -> None:
    """Open the file once, so that every format answers alike when it cannot be opened or is empty.

    Only files are opened: a pipe would wait, and /dev/zero has no end.
    """
    try:
        wrong = limits.not_a_file(path) if os.path.exists(path) else None
        if wrong == "it is a directory":
            raise InvalidDataError(f"expected a data file, but {path} is a directory; name a file inside it")
        if wrong is not None:
            raise InvalidDataError(f"cannot read {path}: {wrong}")
        with path.open("rb") as file:
            first = file.read(1)
    except FileNotFoundError as error:
        raise InvalidDataError(f"there is no file {path}; check the name and the current directory") from error
    except PermissionError as error:
        raise InvalidDataError(f"no permission to read {path}; change its permissions or copy it") from error
    except OSError as error:
        raise InvalidDataError(f"cannot read {path}: {error.strerror or error}") from error
    if not first:
        raise InvalidDataError(f"{path} is empty; expected a table of numbers")


def _check_finite(path: Path, cells: Cells) -> None:
    infinite = np.isinf(cells.X)
    if infinite.any():
        row, dim = (int(i) for i in np.argwhere(infinite)[0])
        where = f"column {cells.dim_names[dim]!r}" if cells.dim_names else f"column {dim + 1}"
        raise InvalidDataError(
            f"{path} has {int(infinite.sum())} infinite or too large value(s), the first in row {row + 1} of "
            f"{where}; expected finite numbers. Leave a cell empty (or use NaN) where it is missing"
        )
