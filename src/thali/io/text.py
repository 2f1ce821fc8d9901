"""The text of a file, line by line, as much of it as its size allows: a small .gz may unpack to anything."""

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from thali import limits
from thali.errors import InvalidDataError


def unpacked_text(path: Path) -> io.TextIOWrapper:
    """The text in a .gz file."""
    return io.TextIOWrapper(io.BufferedReader(_Unpacked(path)), encoding="utf-8-sig", newline="")


def lines(path: Path, file: TextIO) -> Iterator[str]:
    """The lines of a text, none of them without an end."""
    number = 1
    while line := file.readline(limits.LINE_LENGTH):
        too_many = len(line) > limits.LINE_CELLS and _n_cells(line) > limits.LINE_CELLS
        if too_many or len(line) == limits.LINE_LENGTH:
            raise InvalidDataError(
                f"{path}, line {number}: the line has {_n_cells(line)} cells and {len(line)} characters or more; "
                f"expected at most {limits.LINE_CELLS} cells. Save a matrix that wide with numpy.save"
            )
        yield line
        number += 1


def _n_cells(line: str) -> int:
    return 1 + max(line.count(separator) for separator in ",\t;")


class _Unpacked(io.RawIOBase):
    """The bytes of a .gz file; an error once there are too many of them."""

    def __init__(self, path: Path) -> None:
        self._path, self._room = path, limits.room_of_text(limits.stored_size(path))
        self._file = gzip.open(path, "rb")  # noqa: SIM115 (closed with this one)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n = self._file.readinto(buffer)
        self._room -= n
        if self._room < 0:
            raise InvalidDataError(
                f"{self._path} unpacks to more than {limits.TEXT_RATIO} times its size; "
                f"if it is meant so, unpack it with gunzip and read the text"
            )
        return n

    def close(self) -> None:
        self._file.close()
        super().close()
