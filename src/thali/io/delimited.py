"""Read text tables (csv, tsv, and both with gzip).

The standard library's parser is used rather than pandas': it is quick enough, needs no import that delays
the command line, and lets every error name the line and the column where the file goes wrong.
"""

import csv
import gzip
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from thali.errors import InvalidDataError
from thali.io.cells import Cells, are_row_names, no_numbers_error, text_column_error
from thali.io.text import lines, unpacked_text

# Compared in lower case. Blank, NA, NaN, null and ? are missing; a bool is a number.
_WORDS = {word: float("nan") for word in ("", "na", "nan", "null", "?")} | {"true": 1.0, "false": 0.0}


def read_delimited(path: Path, delimiter: str) -> Cells:
    """Read the table in `path`, with its header and its row names where it has them."""
    try:
        with _open(path) as file:
            return _read(path, file, delimiter)
    except UnicodeDecodeError as error:
        raise InvalidDataError(
            f"{path} is not UTF-8 text (byte {error.start} cannot be decoded); expected a text table. "
            f"Save it as UTF-8, or give the file the suffix of its true format"
        ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidDataError(f"{path} is not a whole gzip file ({error}); download or compress it anew") from error


def _open(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return unpacked_text(path)
    return path.open("r", encoding="utf-8-sig", newline="")


def _read(path: Path, file: TextIO, delimiter: str) -> Cells:
    records = _records(path, file, delimiter)
    line, first = next(records, (0, []))
    if not first:
        raise InvalidDataError(f"{path} has no lines with text; expected a table of numbers")
    width = len(first)
    header = first if _is_header(first) else None
    labels = [cell.strip() or f"column {i}" for i, cell in enumerate(header or [""] * width, 1)]

    heads: list[str] = []  # the first column is kept as text until all of it is known
    body = array("d")
    records = records if header else _chain((line, first), records)
    for line, record in records:
        if len(record) != width:
            raise InvalidDataError(
                f"{path}, line {line}: expected {width} cells as in the first line, found {len(record)}. "
                f"Give every line the same number of cells; put quotes around a cell that holds the separator"
            )
        heads.append(record[0])
        body.extend(_numbers(path, line, record, labels))
    if not heads:
        raise InvalidDataError(f"{path} has a header line but no rows below it; expected a table of numbers")

    X = np.frombuffer(body).reshape(len(heads), width - 1) if body else np.empty((len(heads), 0))
    column = [_number(head) for head in heads]
    is_index = header is not None and not header[0].strip()  # as pandas and R write the names of the rows
    if width > 1 and (None in column or is_index) and are_row_names(heads):
        return Cells(X, tuple(heads), tuple(labels[1:]) if header else None, header[0].strip() if header else "")
    if None in column:
        example = heads[column.index(None)]
        hint = _separator_hint(delimiter, example) if width == 1 else ""
        raise no_numbers_error(path, hint) if hint else text_column_error(path, labels[0], example)
    return Cells(np.column_stack([np.array(column, dtype=float), X]), None, tuple(labels) if header else None)


def _records(path: Path, file: TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each line that is not blank."""
    reader = csv.reader(_text_lines(path, file), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for record in reader:
            if record:
                yield reader.line_num, record
    except csv.Error as error:
        raise InvalidDataError(
            f"{path}, line {reader.line_num}: {error}. Expected a text table; check the quotes near there"
        ) from error


def _text_lines(path: Path, file: TextIO) -> Iterator[str]:
    """Yield the lines of a text file, those of nothing but spaces as blank ones."""
    for number, line in enumerate(lines(path, file), 1):
        if "\0" in line:
            raise InvalidDataError(
                f"{path}, line {number}: found a NUL byte, so this is not a text table. "
                f"Give the file the suffix of its true format, or save it as UTF-8 text"
            )
        yield line if line.strip(" \r\n") else "\n"


def _chain(first: tuple[int, list[str]], rest: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    yield first
    yield from rest


def _is_header(record: list[str]) -> bool:
    """Any cell that is not a number makes a header; so do a blank and 0, 1, 2, ... (from pandas)."""
    if any(_number(cell) is None for cell in record):
        return True
    return len(record) > 1 and not record[0].strip() and record[1:] == [str(i) for i in range(len(record) - 1)]


def _number(cell: str) -> float | None:
    """Return the number in a cell, NaN where it is missing, None where it is text (1_000 is text)."""
    text = cell.strip().lower()
    if text in _WORDS:
        return _WORDS[text]
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _numbers(path: Path, line: int, record: list[str], labels: list[str]) -> list[float]:
    """Return the numbers in all cells but the first: at once if they are plain, else one by one."""
    cells = record[1:]
    try:
        if "_" not in "".join(cells):
            return list(map(float, cells))
    except ValueError:
        pass
    values = []
    for cell, label in zip(cells, labels[1:], strict=True):
        value = _number(cell)
        if value is None:
            raise text_column_error(path, label, cell, f" (line {line})")
        values.append(value)
    return values


def _separator_hint(delimiter: str, example: str) -> str:
    for other, name in ((";", "semicolons"), ("\t", "tabs"), (",", "commas"), (" ", "spaces")):
        if other != delimiter and other in example.strip():
            return f". Its cells seem to be separated by {name}: use commas in a .csv, tabs in a .tsv or .txt"
    return ""
