"""The text of a file, line by line, as much of it as its size allows: a small .gz may unpack to anything."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

from thali.errors import InvalidDataError
from thali.files import limits

_CHUNK = 2**16


def unpacked_text(path: Path) -> TextIO:
    """The text in a .gz file, once it was unpacked to its end to see how much it is: that is far quicker than to read
    it as a table."""
    most = limits.room_of_text(limits.stored_size(path))
    left = most
    with gzip.open(path, "rb") as file:
        while left >= 0 and (chunk := file.read(_CHUNK)):
            left -= len(chunk)
    if left < 0:
        raise InvalidDataError(
            f"{path} unpacks to more than {most / 1e6:.3g} MB, {limits.TEXT_RATIO} times its size; "
            f"if it is meant so, unpack it with gunzip and read the text"
        )
    return cast(TextIO, gzip.open(path, "rt", encoding="utf-8-sig", newline=""))


def lines(path: Path, file: TextIO) -> Iterator[str]:
    """The lines of a text, none of them without an end, nor longer than what the file has on disk: holes read as
    zeros."""
    number = 1
    longest = min(limits.LINE_LENGTH, limits.room_of_text(limits.stored_size(path)))
    while line := file.readline(longest):
        too_many = len(line) > limits.LINE_CELLS and _n_cells(line) > limits.LINE_CELLS
        if too_many or len(line) == longest:
            raise InvalidDataError(
                f"{path}, line {number}: the line has {_n_cells(line)} cells and {len(line)} characters or more; "
                f"expected at most {limits.LINE_CELLS} cells and {longest} characters. Save a matrix that wide with "
                f"numpy.save"
            )
        yield line
        number += 1


def _n_cells(line: str) -> int:
    return 1 + max(line.count(separator) for separator in ",\t;")
