"""Read a data matrix from a file: the format from the suffix, one kind of result, one kind of error."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thali.errors import InvalidDataError
from thali.files import limits
from thali.io.arrays import read_numpy
from thali.io.cells import Cells, Place, infinite_error
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
    reading: tuple[str, ...] = ()  # how the file was read: its header, its names, what was taken as missing
    doubts: tuple[str, ...] = ()  # sentences on what may have been meant otherwise
    lines: np.ndarray | None = None  # of a text file: the line of each row


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
    first line of text is the header, and a first column that is mostly text names the rows. `reading` of the table says
    what was found, and how many cells of which spelling (NA, n/a, -, ...) were taken as missing; `doubts` what looks as
    if it had been meant otherwise.

    Raises `InvalidDataError` whenever the file is not such a matrix, or is not there: with the line and the column
    where a text file goes wrong.
    """
    path = Path(path)
    reader = _reader(path)
    _check_readable(path)
    try:
        cells = reader(path)
    except OSError as error:
        raise InvalidDataError(f"cannot read {path}: {error.strerror or error}") from error
    _check_finite(path, cells)
    names = cells.row_names, cells.dim_names, str(path), cells.index_name
    return Table(cells.X, *names, cells.reading, (*cells.doubts, *_stand_ins(cells)), cells.lines)


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
        raise infinite_error(path, Place(row + 1, dim + 1, cells.dim_names[dim] if cells.dim_names else "", "row"))


def _stand_ins(cells: Cells) -> list[str]:
    """Numbers such as -999 that lie far from all others of their dim: often, they stand for a missing cell."""
    found = []
    for dim, column in enumerate(cells.X.T):
        low, high = np.fmin.reduce(column), np.fmax.reduce(column)
        for value in {float(low), float(high)} & _STAND_INS:
            others = column[(column != value) & ~np.isnan(column)]
            spread = float(others.max()) - float(others.min()) if len(others) else 0.0
            if spread > 0 and np.abs(others - value).min() > 2 * spread:
                n = int((column == value).sum())
                name = f"column {cells.dim_names[dim]!r}" if cells.dim_names else f"dim {dim + 1}"
                cell = "a cell" if n == 1 else f"{n} cells"
                found.append(
                    f"{name} holds {value:g} in {cell}, used as a number: empty such cells if they are missing"
                )
    return found


_STAND_INS = {sign * float(nines) for nines in (99, 999, 9999, 99999, 999999) for sign in (1, -1)}
