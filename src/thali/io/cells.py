"""What every reader returns, and the errors that every table-like format shares."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from thali.data.cell_text import hint
from thali.errors import InvalidDataError


class Cells(NamedTuple):
    """The numbers of a file and the names that came with them."""

    X: np.ndarray
    row_names: tuple[str, ...] | None
    dim_names: tuple[str, ...] | None
    index_name: str = ""  # what stands above the row names
    reading: tuple[str, ...] = ()  # how the file was read: its header, its names, what is missing
    doubts: tuple[str, ...] = ()  # what may have been meant otherwise
    lines: np.ndarray | None = None  # of a text file: the line of each row


class Place(NamedTuple):
    """Where a cell is."""

    number: int  # of its line, or of its row, from 1
    column: int  # from 1
    name: str = ""  # of its column
    kind: str = "line"

    @property
    def row(self) -> str:
        return f"{self.kind} {self.number}"

    def __str__(self) -> str:
        return f"{self.row}, column {self.column}{f' ({self.name!r:.60})' if self.name else ''}"


def cell_error(path: Path, place: Place, cell: object, *, names: bool = False, more: str = "") -> InvalidDataError:
    """Build the error for a cell that is not a number."""
    why = hint(cell) if isinstance(cell, str) else None
    if_text = "leave the cell empty if it is missing, or drop the column (a category becomes a 0/1 column per value)"
    remedy = "Write plain numbers such as -1234.5" if why else f"Write a number, {if_text}"
    rule = "; a first column names the rows only if most of it is text" if names else ""
    return InvalidDataError(
        f"{path}, {place}: expected a number, found {short(cell)}{f', {why}' if why else ''}{more}. {remedy}{rule}"
    )


def names_error(path: Path, place: Place, what: str) -> InvalidDataError:
    """Build the error for a first column that is text and still cannot name the rows."""
    return InvalidDataError(
        f"{path}, {place}: {what}. A first column of text names the rows: give each row a name of its own, "
        f"or drop the column (a category becomes a 0/1 column per value)"
    )


def infinite_error(path: Path, place: Place) -> InvalidDataError:
    """Build the error for a number that is not finite."""
    return InvalidDataError(
        f"{path}, {place}: an infinite or too large number; expected finite ones. "
        f"Leave the cell empty (or use NaN) if it is missing"
    )


def no_numbers_error(path: Path, hint: str = "") -> InvalidDataError:
    """Build the error for a table in which no column is left for the data."""
    return InvalidDataError(f"{path} has no columns of numbers; expected at least one{hint}")


def short(value: object, limit: int = 40) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
