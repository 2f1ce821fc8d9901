"""Read text tables (csv, tsv, and both with gzip).

The standard library's parser is used rather than pandas': it is quick enough, needs no import that delays
the command line, and lets every error name the line and the column where the file goes wrong.
"""

import csv
import gzip
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from thali.data.cell_text import Kind, hint, kind_of, listed, number, plain_missing
from thali.errors import InvalidDataError
from thali.io.cells import Cells, Place, cell_error, infinite_error, no_numbers_error
from thali.io.header import find_header
from thali.io.row_names import are_numbered, check_numbers, checked_names, count_the_rows, name_rows
from thali.io.text import lines, unpacked_text


def read_delimited(path: Path, delimiter: str) -> Cells:
    """Read the table in `path`, with its header and its row names where it has them."""
    try:
        with _open(path) as file:
            return _Lines(path, file, delimiter).cells()
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


class _Lines:
    """The lines of a table. The first line and the first column stay text until all of it is known."""

    def __init__(self, path: Path, file: TextIO, delimiter: str) -> None:
        self.path, self.delimiter = path, delimiter
        self.spellings: Counter[str] = Counter()  # what was taken as missing and is neither blank nor NaN
        records = _records(path, file, delimiter)
        self.line, self.first = next(records, (0, []))
        if not self.first:
            raise InvalidDataError(f"{path} has no lines with text; expected a table of numbers")
        self.width = len(self.first)
        self.used = _used(self.first)  # columns up to the last that is not blank in every line
        self.names = [cell.strip() if kind_of(cell) is Kind.TEXT else "" for cell in self.first]
        if 2 * sum(map(bool, self.names)) <= self.width:  # as far as can be told before the rest is known
            self.names = [""] * self.width
        self.heads: list[str] = []
        self.lines = array("q")
        body = array("d")
        for line, record in records:
            self._check_width(line, record)
            self.heads.append(record[0])
            self.lines.append(line)
            body.extend(self._numbers(line, record))
        self.X = (
            np.frombuffer(body).reshape(len(self.heads), self.width - 1)
            if body
            else np.empty((len(self.heads), self.width - 1))
        )

    def cells(self) -> Cells:
        """Decide what the first line and the first column are."""
        used = max(self.used, 1)
        found, doubt = find_header(self.path, self.line, self.first[:used], self.heads, self.X[:, : used - 1])
        width = self.width = used if found else self.width  # without a header, a blank column may be a missing dim
        first, X = self.first[:width], self.X[:, : width - 1]
        reading = [f"line {self.line} is the header" if found else "no header"]
        labels = [cell.strip() or f"column {i}" for i, cell in enumerate(first, 1)] if found else None
        self.names = [cell.strip() if found else "" for cell in first]
        if not found:
            self.heads.insert(0, first[0])
            self.lines.insert(0, self.line)
            X = np.vstack([self._numbers(self.line, first), X])
        if not self.heads:
            raise InvalidDataError(f"{self.path} has a header line but no rows below it; expected a table of numbers")
        self._check_blank_lines()

        names, index_name, doubts = None, "", [doubt]
        if width > 1 and name_rows(self.heads, first[0].strip() if found else None):
            names = checked_names(self.path, self.heads, self._place)
            reading.append(f"column 1{f' ({first[0].strip()})' if found and first[0].strip() else ''} names the rows")
            index_name = first[0].strip() if found else ""
            labels = labels and labels[1:]
        else:
            self._check_one_column()
            check_numbers(self.path, self.heads, self._place)
            column = [self._number(line, 0, head) for line, head in zip(self.lines, self.heads, strict=True)]
            doubts.append(self._doubt_of_ids(labels))
            X = np.column_stack([np.array(column, dtype=float), X])
            reading.append("no row names")
        self._check_labels(labels or [], 2 if names else 1)
        self._check_finite(X, 2 if names else 1)
        if width < len(self.first):
            reading.append("blank columns at the end are left out")
        if self.spellings:
            reading.append(f"{listed(self.spellings)} {'is' if self.spellings.total() == 1 else 'are'} missing")
        dims = tuple(labels) if labels is not None else None
        said = tuple(reading), tuple(filter(None, doubts))
        return Cells(np.ascontiguousarray(X), names, dims, index_name, *said, np.array(self.lines))

    # ---- cells

    def _numbers(self, line: int, record: list[str]) -> list[float]:
        """Return the numbers in all cells but the first: at once if they are plain, else one by one."""
        cells = record[1:]
        try:
            if "_" not in "".join(cells):
                return list(map(float, cells))
        except ValueError:
            pass
        return [self._number(line, i, cell) for i, cell in enumerate(cells, 1)]

    def _number(self, line: int, column: int, cell: str) -> float:
        value = number(cell)
        if value is None:
            raise cell_error(self.path, Place(line, column + 1, self.names[column]), cell)
        if value != value and not plain_missing(cell):
            self.spellings[cell.strip()] += 1
        return value

    def _place(self, row: int, column: int = 1) -> Place:
        return Place(self.lines[row], column, self.names[column - 1])

    # ---- what is refused

    def _check_width(self, line: int, record: list[str]) -> None:
        if self.used < self.width:
            self.used = max(self.used, _used(record))
        if len(record) != self.width:
            lacks = len(record) < self.width
            where = f"nothing in column {len(record) + 1}" if lacks else f"too much from column {self.width + 1} on"
            other = _separator(self.delimiter, self.first[0].replace(" ", "")) if self.width == 1 else ""
            raise InvalidDataError(
                f"{self.path}, line {line}: expected {_cells(self.width)} as in line {self.line}, found {len(record)} "
                f"({where}). Give every line the same number of cells, and row names a header (it may be blank); "
                f"put quotes around a cell that holds the separator, and remove lines of comments{other}"
            )

    def _check_one_column(self) -> None:
        """A single column of text is most often a table with another separator."""
        if self.width > 1:
            return
        for row, cell in enumerate(self.heads):
            if number(cell) is None:
                separator = _separator(self.delimiter, cell)
                if separator and not _one_number(cell):
                    raise no_numbers_error(self.path, f" (line {self.lines[row]}, column 1){separator}")
                return

    def _check_labels(self, labels: list[str], first_column: int) -> None:
        columns: dict[str, int] = {}
        for column, name in enumerate(labels, first_column):
            before = columns.setdefault(name, column)
            if before < column:
                where = Place(self.line, column, name)
                raise InvalidDataError(f"{self.path}, {where}: the name is that of column {before}, too. Rename one")

    def _check_blank_lines(self) -> None:
        if len(self.first) > 1:
            return
        for before, after in zip(self.lines, self.lines[1:], strict=False):
            if after > before + 1:
                raise InvalidDataError(
                    f"{self.path}, line {before + 1}, column 1: the line is blank: a missing cell, or nothing? "
                    f"Write NA if a cell is missing, else remove the line"
                )

    def _check_finite(self, X: np.ndarray, first_column: int) -> None:
        infinite = np.argwhere(np.isinf(X))
        if len(infinite):
            row, dim = (int(i) for i in infinite[0])
            raise infinite_error(self.path, self._place(row, dim + first_column))

    # ---- what is doubted

    def _doubt_of_ids(self, labels: list[str] | None) -> str:
        name = labels[0] if labels else ""
        called = f"column 1{f' ({name})' if self.names[0] else ''}"
        ids = self.names[0].lower() in ("id", "ids", "index", "idx", "row", "no", "nr", "key") and are_numbered(
            self.heads
        )
        if len(self.heads) > 1 and (ids or count_the_rows(self.heads)):
            return f"{called} looks like row numbers; it is used as data: remove it if it only names the rows"
        if labels and not self.first[0].strip() and self.width > 1:
            return "column 1 has no name; it is used as data"
        return ""


def _cells(n: int) -> str:
    return f"{n} cell{'' if n == 1 else 's'}"


def _used(record: list[str]) -> int:
    """How many cells there are up to the last that is not blank."""
    return next((i for i in range(len(record), 0, -1) if record[i - 1].strip()), 0)


def _records(path: Path, file: TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each line that is not blank."""
    reader = csv.reader(_text_lines(path, file), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        line = 1
        for record in reader:
            if record:
                yield line, record
            line = reader.line_num + 1
    except csv.Error as error:
        raise InvalidDataError(
            f"{path}, line {reader.line_num}: {error}. Expected a text table; check the quotes near there"
        ) from error


def _text_lines(path: Path, file: TextIO) -> Iterator[str]:
    """Yield the lines of a text file, those of nothing but spaces as blank ones."""
    for number_, line in enumerate(lines(path, file), 1):
        if "\0" in line:
            raise InvalidDataError(
                f"{path}, line {number_}: found a NUL byte, so this is not a text table. "
                f"Give the file the suffix of its true format, or save it as UTF-8 text"
            )
        yield line if line.strip(" \r\n") else "\n"


def _one_number(cell: str) -> bool:
    """Whether a comma or a space in a cell may stand inside a number."""
    return hint(cell) is not None and ";" not in cell and cell.count(",") + cell.count(" ") < 2


def _separator(delimiter: str, example: str) -> str:
    for other, name in ((";", "semicolons"), ("\t", "tabs"), (",", "commas"), (" ", "spaces")):
        if other != delimiter and other in example.strip():
            return f". Its cells seem to be separated by {name}: use commas in a .csv, tabs in a .tsv or .txt"
    return ""
