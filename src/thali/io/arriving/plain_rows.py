"""Many lines of plain numbers at once, by a compiled reader. What is not plain is left to the reader of single lines,
which says why.

The compiled reader rounds as `float` does and takes nothing for a number that `thali.data.cell_text` does not; the
tests hold both against it.
"""

import json
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from thali.data.row_blocks import LARGEST

__all__ = ["plain_arrays", "plain_objects", "plain_rows"]

Array = np.ndarray


class Tokens(NamedTuple):
    """What stands between the numbers of a line."""

    text: Array
    ends: Array  # of each token
    first: Array  # the first one before each number; those after the last number; how many there are


def plain_rows(text: bytes, n_columns: int) -> Array | None:
    """The matrix in lines of cells with commas between them; None if a line is anything but plain finite numbers and
    cells that are blank or NaN, or has another width."""
    return _matrix(text, _of_table(n_columns), n_columns, strict=False)


def plain_arrays(text: bytes, n_columns: int) -> Array | None:
    """The matrix in lines that are JSON arrays of numbers and null; None if one is anything else."""
    return _matrix(text, _of_arrays(n_columns), n_columns, strict=True)


def plain_objects(text: bytes, names: Sequence[str]) -> Array | None:
    """The matrix in lines that are JSON objects of numbers and null, all with these names in this order, else None."""
    return _matrix(text, _of_objects(tuple(names), not text.isascii()), len(names), strict=True)


def _matrix(text: bytes, tokens: Tokens, n_columns: int, *, strict: bool) -> Array | None:
    from thali.kernels.number_text import read_lines

    n_rows = text.count(b"\n")
    X = np.empty((n_rows, n_columns))
    codes = np.frombuffer(text, np.uint8)
    if read_lines(codes, n_rows, *tokens, strict, *_powers(), X, X.view(np.uint64)) < n_rows:
        return None
    return X if np.fmax.reduce(np.abs(X), axis=None, initial=0.0) <= LARGEST else None


@cache
def _powers() -> tuple[Array, Array]:
    """10^q to 128 bits, in halves: its first bit is the highest; rounded up for q < 0, else down."""
    from thali.kernels.number_text import LEAST, MOST

    numbers = []
    for q in range(LEAST, MOST + 1):
        five = 5 ** abs(q)
        n_bits = five.bit_length()
        if q < 0:
            numbers.append(2 ** (n_bits + 127) // five + 1)
        else:
            numbers.append(five << (128 - n_bits) if n_bits <= 128 else five >> (n_bits - 128))
    halves = [(number >> 64, number & (2**64 - 1)) for number in numbers]
    upper, lower = np.array(halves, dtype=np.uint64).T
    return np.ascontiguousarray(upper), np.ascontiguousarray(lower)


def _tokens(groups: Sequence[Sequence[bytes]]) -> Tokens:
    words = [word for group in groups for word in group]
    ends = np.cumsum([len(word) for word in words], dtype=np.int64)
    first = np.cumsum([0, *(len(group) for group in groups)], dtype=np.int64)
    return Tokens(np.frombuffer(b"".join(words), np.uint8), ends, first)


@lru_cache(8)
def _of_table(n_columns: int) -> Tokens:
    return _tokens([(), *[(b",",)] * (n_columns - 1), ()])


@lru_cache(8)
def _of_arrays(n_columns: int) -> Tokens:
    return _tokens([(b"[",), *[(b",",)] * (n_columns - 1), (b"]",)])


@lru_cache(8)
def _of_objects(names: tuple[str, ...], is_utf8: bool) -> Tokens:
    keys = [(json.dumps(name, ensure_ascii=not is_utf8).encode(), b":") for name in names]
    return _tokens([(b"{", *keys[0]), *((b",", *key) for key in keys[1:]), (b"}",)])
