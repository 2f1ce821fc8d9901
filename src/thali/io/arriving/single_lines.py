"""One line at a time: its cells as numbers, or why it is no row. The rules for a cell are those of every text table."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thali.data.cell_text import number
from thali.data.row_blocks import LARGEST
from thali.errors import InvalidDataError
from thali.io.cells import Place, cell_error, infinite_error, short

__all__ = ["cells_of", "json_of", "numbers_of", "row_of_json", "width_error"]

Names = Sequence[str]


def text_of(path: Path, line: int, text: bytes) -> str:
    """The text of a line without its end, or an error if it is none."""
    text = text.removesuffix(b"\n").removesuffix(b"\r")
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidDataError(
            f"{path}, line {line}: it is not UTF-8 text (byte {error.start} of it cannot be decoded). Send UTF-8 text"
        ) from error
    if "\0" in decoded:
        raise InvalidDataError(f"{path}, line {line}: found a NUL byte, so this is not text. Send UTF-8 text")
    if not decoded.strip():
        raise InvalidDataError(
            f"{path}, line {line}: the line is empty. Send nothing for a row that is not there, NaN in its cells for "
            "one that is missing"
        )
    return decoded


def cells_of(path: Path, line: int, text: bytes, delimiter: str) -> list[str]:
    """The cells of a line of a table."""
    try:
        (record,) = csv.reader([text_of(path, line, text)], delimiter=delimiter, skipinitialspace=True, strict=True)
    except csv.Error as error:
        raise InvalidDataError(
            f"{path}, line {line}: {error}. Check its quotes; a row that arrives has a line to itself"
        ) from error
    return record


def numbers_of(path: Path, line: int, cells: Names, names: Names, first_column: int = 1) -> list[float]:
    """The numbers in cells, which are those from a column on."""
    return [
        _finite(path, Place(line, column, name), number(cell), cell)
        for column, (cell, name) in enumerate(zip(cells, names, strict=True), first_column)
    ]


def width_error(path: Path, line: int, found: int, wanted: int) -> InvalidDataError:
    cells = f"{wanted} cell{'' if wanted == 1 else 's'}"
    return InvalidDataError(
        f"{path}, line {line}: expected {cells}, as in the lines before, found {found}. Leave a cell empty (in JSON: "
        "null) if it is missing"
    )


def json_of(path: Path, line: int, text: bytes) -> list[Any] | dict[str, Any]:
    """The array or the object in a line."""
    decoded = text_of(path, line, text)
    try:
        value = json.loads(decoded, object_pairs_hook=_pairs)
    except _TwiceError as error:
        raise InvalidDataError(
            f"{path}, line {line}: the name {short(error.args[0])} is there twice. Rename one"
        ) from None
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else _words(error)
        raise InvalidDataError(
            f"{path}, line {line}: it is no JSON ({said}). Send one array or object a line"
        ) from None
    if not isinstance(value, list | dict):
        raise InvalidDataError(
            f"{path}, line {line}: expected a row as a JSON array or object, found {short(value)}. Send one a line"
        )
    return value


def row_of_json(path: Path, line: int, values: Sequence[Any], names: Names) -> list[float]:
    """The numbers in JSON values: null is a missing cell, and text is read as in a table."""
    return [
        _json_number(path, Place(line, column, name), value)
        for column, (value, name) in enumerate(zip(values, names, strict=True), 1)
    ]


def _json_number(path: Path, place: Place, value: Any) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, str):
        return _finite(path, place, number(value), value)
    if isinstance(value, int | float):  # true and false are 1 and 0
        try:
            return _finite(path, place, float(value), value)
        except OverflowError:
            raise infinite_error(path, place) from None
    raise cell_error(path, place, value)


def _finite(path: Path, place: Place, value: float | None, cell: object) -> float:
    if value is None:
        raise cell_error(path, place, cell)
    if abs(value) > LARGEST:
        raise infinite_error(path, place)
    return value


class _TwiceError(Exception):
    """A name of an object stands there twice."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceError(name)
        found[name] = value
    return found


def _words(error: ValueError) -> str:
    return getattr(error, "msg", None) or str(error).partition(";")[0]
