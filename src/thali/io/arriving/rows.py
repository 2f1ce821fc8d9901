"""Rows from pieces of text that arrive one after the other: CSV, TSV, or JSON with an array or object on each line.

How the lines are read is decided by the first of them, as for a table in a file; from then on every line is a row, or
is told of with its number and why it is none. Lines are read many at a time, and one by one only near a bad one; which
are read together makes no difference to what is read.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thali.data.cell_text import Kind, kind_of, listed, number, plain_missing
from thali.errors import InvalidDataError
from thali.files import limits
from thali.io.arriving.json_rows import json_rows
from thali.io.arriving.lines import Lines, NoLine, WholeLines
from thali.io.arriving.plain_rows import plain_rows
from thali.io.arriving.single_lines import cells_of, json_of, numbers_of, row_of_json, width_error
from thali.io.header import find_header
from thali.io.row_names import name_rows

__all__ = ["ArrivingRows", "BadLine", "Form", "Remark", "Rows"]

Array = np.ndarray

N_FIRST = 20  # lines that decide how all are read
_FEW = 16  # lines that are read one by one if they cannot be read together
_MARK = b"\xef\xbb\xbf"  # that some systems put before UTF-8 text


class Form(StrEnum):
    """What a line looks like."""

    CSV = "csv"
    TSV = "tsv"
    NDJSON = "ndjson"


class Rows(NamedTuple):
    """Some rows, and where they stand."""

    X: Array  # (n_rows, n_dims), NaN where a cell is missing
    lines: Array  # the line of each row
    names: list[str] | None  # in the first column of a table, if it names the rows


class BadLine(NamedTuple):
    """A line that is no row."""

    line: int
    why: str


class Remark(NamedTuple):
    """What is worth saying of a line that is a row."""

    line: int
    words: str


Found = Rows | BadLine | Remark


class ArrivingRows:
    """Reads what it is fed. Errors that concern all lines are raised."""

    def __init__(
        self,
        source: Path,
        form: Form | None = None,
        *,
        header: bool | None = None,
        dims: Sequence[str] | None = None,
        n_dims: int | None = None,
        longest: int = limits.ARRIVING_LINE,
    ) -> None:
        """header: whether there is one; None: it is told by the first lines. dims, n_dims: those of a fit, if there is
        one: columns are then matched by name, or by place if they have none."""
        self.path, self.form = source, form
        self.dim_names = None if not dims else tuple(dims)
        self.n_dims = n_dims if not dims else len(dims)
        self.reading: list[str] = []  # how the lines are read, in words
        self.spellings: Counter[str] = Counter()  # of missing cells, but blank and NaN
        self._header = header
        self._lines = Lines(longest)
        self._longest = longest
        self._waiting: list[WholeLines] | None = []  # lines before it is known how to read them
        self._is_named = False  # whether the first column of a table names the rows
        self._width = 0  # columns
        self._columns: tuple[str, ...] = ()  # their names, blank where they have none
        self._order: Array | None = None  # the column of each dim, if they are in another order
        self._lacking: set[str] = set()  # names that some object lacked

    def feed(self, piece: bytes) -> list[Found]:
        """What the lines that end in this piece say."""
        return list(self._taken(self._lines.feed(piece)))

    def end(self, *, cut_off: bool = False) -> list[Found]:
        """What is left when nothing more comes, or when it was decided to read no more (`cut_off`)."""
        found: list[Found] = []
        last = self._lines.end()
        if self._waiting:
            found += self._begin()
        if last is not None:
            found += self._last(last, cut_off)
        return found

    @property
    def has_begun(self) -> bool:
        """Whether it is known how to read the lines."""
        return self._waiting is None

    def spelt(self) -> str:
        """Which spellings were taken as missing, in words."""
        return listed(self.spellings) if self.spellings else ""

    # ---- lines

    def _taken(self, pieces: list[WholeLines | NoLine]) -> Iterator[Found]:
        for piece in pieces:
            if isinstance(piece, NoLine):
                yield self._too_long(piece)
                continue
            if piece.first == 1:
                piece = WholeLines(piece.text.removeprefix(_MARK), 1)
            if self._waiting is None:
                yield from self._read(piece)
            else:
                self._waiting.append(piece)
                if sum(lines.text.count(b"\n") for lines in self._waiting) > N_FIRST:
                    yield from self._begin()

    def _too_long(self, line: NoLine) -> BadLine:
        why = f"the line has {line.length} bytes, of at most {self._longest}. Send a row a line, with fewer digits"
        return BadLine(line.number, f"{self.path}, line {line.number}: {why}")

    def _last(self, last: NoLine, cut_off: bool) -> Iterator[Found]:
        """A line without an end: a row of JSON is whole if it can be read, but a number may go on."""
        text = last.text.removeprefix(_MARK) if last.number == 1 else last.text
        is_json = self.form is Form.NDJSON or (self._waiting is not None and text.lstrip()[:1] in (b"[", b"{"))
        if cut_off and not (is_json and last.text.rstrip()[-1:] in (b"]", b"}")):
            yield Remark(last.number, f"{self.path}, line {last.number}: it had not come to its end, and was not taken")
        elif last.length > self._longest:
            yield self._too_long(last)
        elif is_json:
            yield from self._taken([WholeLines(last.text + b"\n", last.number)])
            if self._waiting:
                yield from self._begin()
        else:
            why = "the last line has no end, so it may be torn, and is not taken. End each line with a newline"
            yield BadLine(last.number, f"{self.path}, line {last.number}: {why}")

    def _read(self, lines: WholeLines) -> Iterator[Found]:
        """All at once, or in halves until the bad ones are found."""
        text = lines.text.replace(b"\r\n", b"\n") if b"\r" in lines.text else lines.text
        together = self._together(text)
        n_lines = text.count(b"\n")
        if together is not None:
            X, names = together
            yield Rows(self._in_order(X), np.arange(lines.first, lines.first + n_lines), names)
            return
        if n_lines > _FEW:
            middle = text.find(b"\n", len(text) // 2) + 1
            if 0 < middle < len(text):
                n_before = text.count(b"\n", 0, middle)
                yield from self._read(WholeLines(text[:middle], lines.first))
                yield from self._read(WholeLines(text[middle:], lines.first + n_before))
                return
        yield from self._one_by_one(text, lines.first)

    def _one_by_one(self, text: bytes, first: int) -> Iterator[Found]:
        rows: list[list[float]] = []
        numbers: list[int] = []
        names: list[str] = []
        others: list[Found] = []
        for line, one in enumerate(text.split(b"\n")[:-1], first):
            try:
                row, name, remarks = self._row(line, one)
            except InvalidDataError as error:
                others.append(BadLine(line, str(error)))
                continue
            rows.append(row)
            numbers.append(line)
            names.append(name)
            others += remarks
        if rows:
            X = np.array(rows, dtype=np.float64).reshape(len(rows), -1)
            yield from self._between(X, np.array(numbers), names, others)
        else:
            yield from others

    def _between(self, X: Array, lines: Array, names: list[str], others: list[Found]) -> Iterator[Found]:
        """Rows and what is to be said of lines among them, in the order of the lines."""
        X, at = self._in_order(X), 0
        for other in others:
            assert not isinstance(other, Rows)
            end = int(np.searchsorted(lines, other.line))
            if end > at:
                yield Rows(X[at:end], lines[at:end], names[at:end] if self._is_named else None)
            yield other
            at = max(at, end)
        if at < len(X):
            yield Rows(X[at:], lines[at:], names[at:] if self._is_named else None)

    def _in_order(self, X: Array) -> Array:
        return X if self._order is None else np.ascontiguousarray(X[:, self._order])

    def _together(self, text: bytes) -> tuple[Array, list[str] | None] | None:
        """The columns of numbers, and the names of the rows."""
        if self.form is Form.NDJSON:
            X = json_rows(text, self._columns if any(self._columns) else None, self._width)
            return None if X is None else (X, None)
        if self.form is Form.TSV:
            if b"," in text:
                return None
            text = text.replace(b"\t", b",")
        names = None
        if self._is_named:
            if b'"' in text:
                return None
            parts = [line.partition(b",") for line in text[:-1].split(b"\n")]
            try:
                names = [name.decode("utf-8").strip() for name, _, _ in parts]
            except UnicodeDecodeError:
                return None
            if b"\0" in text or not all(names) or not all(comma for _, comma, _ in parts):
                return None
            text = b"".join([cells + b"\n" for _, _, cells in parts])
        X = plain_rows(text, self._width - self._is_named)
        return None if X is None else (X, names)

    def _row(self, line: int, text: bytes) -> tuple[list[float], str, list[Remark]]:
        """The numbers of a line, in the order of its columns, its name, and what to say of it."""
        remarks: list[Remark] = []
        if self.form is Form.NDJSON:
            value = json_of(self.path, line, text)
            if isinstance(value, dict):
                value, remarks = self._by_name(line, value)
            if len(value) != self._width:
                raise width_error(self.path, line, len(value), self._width)
            self._count([cell for cell in value if isinstance(cell, str)])
            return row_of_json(self.path, line, value, self._columns), "", remarks
        record = cells_of(self.path, line, text, self._delimiter)
        if len(record) != self._width:
            raise width_error(self.path, line, len(record), self._width)
        name = record.pop(0).strip() if self._is_named else ""
        first = 2 if self._is_named else 1
        row = numbers_of(self.path, line, record, self._columns[first - 1 :], first)
        self._count(record)
        return row, name, remarks

    def _by_name(self, line: int, row: dict[str, Any]) -> tuple[list[Any], list[Remark]]:
        """The values of an object in the order of the columns: names that it lacks are missing cells."""
        if not any(self._columns):
            raise InvalidDataError(
                f"{self.path}, line {line}: expected an array, as in the lines before, found an object, whose names "
                "are not known. Begin with an object, or with an array of the names"
            )
        unknown = row.keys() - set(self._columns)
        if unknown:
            raise InvalidDataError(
                f"{self.path}, line {line}: the name {min(unknown)!r:.60} is not among those of the first row or of "
                "the fit. Begin with a row that has all names (null where a cell is missing)"
            )
        new = [name for name in self._columns if name not in row and name not in self._lacking]
        self._lacking.update(new)
        remarks = [
            Remark(line, f"{self.path}, line {line}: it has no {name!r:.60}: where that is so, the cell is missing")
            for name in new
        ]
        return [row.get(name) for name in self._columns], remarks

    def _count(self, cells: Sequence[str]) -> None:
        for cell in cells:
            value = number(cell)
            if value is not None and value != value and not plain_missing(cell):
                self.spellings[cell.strip()] += 1

    # ---- the first lines

    def _begin(self) -> Iterator[Found]:
        """Decide how lines are read, and read those that came."""
        waiting = [
            (lines.first + i, line)
            for lines in self._waiting or ()
            for i, line in enumerate(lines.text.split(b"\n")[:-1])
        ]
        self._waiting = None
        if self.form is None:
            text = next((line.lstrip() for _, line in waiting if line.strip()), b"")
            self.form = Form.NDJSON if text[:1] in (b"{", b"[") else Form.CSV
        split = self._split_json if self.form is Form.NDJSON else self._split_cells
        for i, (line, text) in enumerate(waiting):
            try:
                first = split(line, text)
            except InvalidDataError as error:
                yield BadLine(line, str(error))
                continue
            decide = self._decide_json if self.form is Form.NDJSON else self._decide_table
            is_header = decide(line, first, waiting[i + 1 : i + 1 + N_FIRST])
            for at, one in waiting[i + is_header :]:
                yield from self._read(WholeLines(one + b"\n", at))
            return
        self._waiting = []  # none of them was one

    @property
    def _delimiter(self) -> str:
        return "\t" if self.form is Form.TSV else ","

    def _split_cells(self, line: int, text: bytes) -> list[str]:
        return cells_of(self.path, line, text, self._delimiter)

    def _split_json(self, line: int, text: bytes) -> Any:
        return json_of(self.path, line, text)

    def _decide_table(self, line: int, first: list[str], below: list[tuple[int, bytes]]) -> bool:
        """Whether the first line is a header; what its columns are."""
        heads, body = [], []
        for at, text in below:
            try:
                record = self._split_cells(at, text)
                values = numbers_of(self.path, at, record[1:], [""] * (len(record) - 1), 2)
            except InvalidDataError:
                continue
            if len(record) == len(first):
                heads.append(record[0])
                body.append(values)
        X = np.array(body, dtype=np.float64).reshape(len(heads), len(first) - 1)
        found, doubt = self._header, ""
        if found is None:
            found, doubt = find_header(self.path, line, first, heads, X)
        label = first[0].strip() if found else None
        self._width = len(first)
        self._is_named = len(first) > 1 and name_rows(heads if found else [first[0], *heads], label)
        self._columns = (
            tuple(cell.strip() or f"column {i}" for i, cell in enumerate(first, 1)) if found else ("",) * len(first)
        )
        self.reading.append(f"line {line} is the header" if found else "no header")
        if self._is_named:
            self.reading.append(f"column 1{f' ({label})' if label else ''} names the rows")
        if doubt:
            self.reading.append(doubt)
        self._match(line, self._columns[self._is_named :])
        return found

    def _decide_json(self, line: int, first: Any, below: list[tuple[int, bytes]]) -> bool:
        texts = isinstance(first, list) and bool(first) and all(isinstance(value, str) for value in first)
        is_header = texts and self._header is not False and all(kind_of(value) is Kind.TEXT for value in first)
        if self._header and not is_header:
            raise InvalidDataError(
                f"{self.path}, line {line}: expected a header, which is an array of names. Leave --header out if there "
                "is none"
            )
        if isinstance(first, dict):
            self._columns = self.dim_names or tuple(first)
            self.reading.append(f"line {line} has the names of the dims")
        elif is_header:
            self._columns = tuple(first)
            self.reading.append(f"line {line} is the header")
        else:
            self._columns = self.dim_names or ("",) * len(first)
            self.reading.append("no names of dims" if self.dim_names is None else "dims by place")
        self._width = len(self._columns)
        self._match(line, self._columns)
        return is_header

    def _match(self, line: int, columns: tuple[str, ...]) -> None:
        """The dims, or the columns in the order of those that there are."""
        if not columns:
            raise InvalidDataError(f"{self.path}, line {line}: there is no column of numbers. Send one at least")
        names = any(columns)
        twice = [name for name, n in Counter(columns).items() if n > 1]
        if names and twice:
            raise InvalidDataError(f"{self.path}, line {line}: the name {twice[0]!r:.60} is there twice. Rename one")
        if self.dim_names is not None and names and columns != self.dim_names:
            if set(columns) != set(self.dim_names):
                wrong = sorted(set(columns) ^ set(self.dim_names))[0]
                raise InvalidDataError(
                    f"{self.path}, line {line}: its dims are not those of the fit, first of all {wrong!r:.60}. Send "
                    "the same columns, in any order"
                )
            self._order = np.array([columns.index(name) for name in self.dim_names])
        elif self.n_dims is not None and len(columns) != self.n_dims:
            raise InvalidDataError(
                f"{self.path}, line {line}: it has {len(columns)} columns of numbers, but the fit has {self.n_dims} "
                "dims. Send the same columns"
            )
        self.n_dims = len(columns)
        if self.dim_names is None and names:
            self.dim_names = columns
