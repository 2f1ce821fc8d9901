"""Write a table: the format from the suffix. A file is whole under its name, or is not there."""

import csv
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np

from thali.errors import InvalidDataError, InvalidFileError
from thali.files import whole_files
from thali.io.recognisable import cell_of, is_header, recognisable
from thali.io.tables import Table

_TOGETHER = 256  # rows of text that are written at once

__all__ = ["check_suffix", "print_rows", "print_table", "write_table"]


def print_table(table: Table, stream: TextIO, delimiter: str = ",") -> None:
    """As text that reads back to the same table: a header if dims or rows have names, nothing in a missing cell.

    Names that would be read as numbers get a word before them: dim_1990.
    """
    table = recognisable(table)
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    if table.dim_names is not None:
        writer.writerow(table.dim_names if table.row_names is None else (table.index_name, *table.dim_names))
    for i, row in enumerate(table.X.tolist()):
        cells = [cell_of(value) for value in row]
        if i == 0 and table.dim_names is None and is_header(cells, table.X[1:]):
            cells = ["" if value != value else repr(value) for value in row]  # 1990.0 cannot be the name of a dim
        writer.writerow(cells if table.row_names is None else (table.row_names[i], *cells))


def print_rows(X: np.ndarray, dim_names: tuple[str, ...], stream: TextIO, digits: int | None = None) -> None:
    """As csv with a header, quicker than `print_table`: finite numbers with so many digits, or with all they need."""
    form = ",".join(["%r" if digits is None else f"%.{digits}g"] * len(dim_names)) + "\n"
    stream.write(",".join(dim_names) + "\n")
    for begin in range(0, len(X), _TOGETHER):
        stream.write("".join([form % tuple(row) for row in X[begin : begin + _TOGETHER].tolist()]))


def write_table(table: Table, path: str | os.PathLike[str]) -> None:
    """Write the table to `path`: `.csv`, `.tsv`, `.npy` (numbers only), `.npz` or `.parquet`."""
    path = Path(path)
    write = _writer(path)
    with whole_file(path) as file:
        write(table, file)


def check_suffix(path: Path) -> None:
    """Refuse a format that `write_table` does not know, before any work."""
    _writer(path)


def _text(delimiter: str) -> Callable[[Table, IO[bytes]], None]:
    def write(table: Table, file: IO[bytes]) -> None:
        text = TextIOWrapper(file, encoding="utf-8", newline="")
        print_table(table, text, delimiter)
        text.detach()  # flushes

    return write


def _npz(table: Table, file: IO[bytes]) -> None:
    arrays: dict[str, Any] = {"X": table.X}
    label = (table.index_name,) if table.index_name else None
    for name, texts in (("dim_names", table.dim_names), ("row_names", table.row_names), ("index_name", label)):
        if texts:
            arrays[name] = np.array(texts, dtype=str)
    np.savez(file, **arrays)


def _parquet(table: Table, file: IO[bytes]) -> None:
    import pandas as pd

    names = table.dim_names or [f"dim_{d}" for d in range(table.X.shape[1])]
    if len(set(names)) < len(names):
        raise InvalidDataError("a Parquet file cannot have two columns of the same name. Rename them, or write .csv")
    index = None if table.row_names is None else pd.Index(table.row_names, name=table.index_name or None)
    try:
        pd.DataFrame(table.X, index=index, columns=list(names)).to_parquet(file, engine="pyarrow")
    except ImportError as error:
        raise InvalidDataError(
            'writing Parquet needs pyarrow. Run pip install "thali[data]", or write .csv or .npy'
        ) from error


_WRITERS: dict[str, Callable[[Table, IO[bytes]], None]] = {
    ".csv": _text(","),
    ".tsv": _text("\t"),
    ".npy": lambda table, file: np.save(file, table.X),
    ".npz": _npz,
    ".parquet": _parquet,
}


def _writer(path: Path) -> Callable[[Table, IO[bytes]], None]:
    suffix = path.suffix.lower()
    if suffix not in _WRITERS:
        raise InvalidFileError(
            f"{path} has {f'the suffix {suffix!r}' if suffix else 'no suffix'}, which is not a format thali writes; "
            f"expected one of {', '.join(_WRITERS)}. Choose another name"
        )
    return _WRITERS[suffix]


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file under a temporary name, which gets its own once all is written and is removed if anything fails."""
    try:
        with whole_files.whole_file(path) as file:
            yield file
    except OSError as error:
        raise InvalidFileError(whole_files.trouble(path, error)) from error
