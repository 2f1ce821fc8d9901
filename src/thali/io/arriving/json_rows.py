"""Many lines of JSON at once: by the compiled reader of plain numbers; else they are parsed as one array. What is not
plain is left to the reader of single lines.
"""

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from thali.data.row_blocks import LARGEST
from thali.io.arriving.plain_rows import plain_arrays, plain_objects

__all__ = ["json_rows"]

Array = np.ndarray


def json_rows(text: bytes, names: Sequence[str] | None, n_columns: int) -> Array | None:
    """The matrix in lines that are all arrays of numbers, or all objects with exactly these names; else None.

    Brackets are counted: with one pair a line and no text but names, no line can borrow a cell from its neighbour.
    """
    X = _plain(text, names, n_columns)
    if X is not None:
        return X
    n_rows = text.count(b"\n")
    if _one_a_line(text, b"[", b"]", n_rows) and b'"' not in text:
        return _matrix(text, list, n_rows, n_columns)
    if names is None or not _one_a_line(text, b"{", b"}", n_rows) or text.count(b'"') != 2 * n_rows * n_columns:
        return None
    pick = itemgetter(*names)

    def values(row: dict[str, Any]) -> Any:
        return pick(row) if n_columns > 1 else (pick(row),)

    return _matrix(text, values, n_rows, n_columns)


def _plain(text: bytes, names: Sequence[str] | None, n_columns: int) -> Array | None:
    """Where all lines have the form of the first one."""
    if text.startswith(b"["):
        return plain_arrays(text, n_columns)
    if names is None or not text.startswith(b"{"):
        return None
    try:
        found = tuple(json.loads(text[: text.find(b"\n")]))
    except (ValueError, RecursionError):
        return None
    if len(found) != n_columns or set(found) != set(names):
        return None
    X = plain_objects(text, found)
    return X if X is None or found == tuple(names) else X[:, [found.index(name) for name in names]]


def _one_a_line(text: bytes, begin: bytes, end: bytes, n: int) -> bool:
    whole = text.startswith(begin) and text.endswith(end + b"\n") and text.count(end + b"\n" + begin) == n - 1
    return whole and text.count(begin) == n == text.count(end)


def _matrix(text: bytes, values: Any, n_rows: int, n_columns: int) -> Array | None:
    try:
        rows = json.loads(b"[" + text[:-1].replace(b"\n", b",") + b"]")
        if any(len(row) != n_columns for row in rows):
            return None
        X = np.array(list(map(values, rows)), dtype=np.float64)  # null becomes NaN
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    fits = X.shape == (n_rows, n_columns) and np.fmax.reduce(np.abs(X), axis=None, initial=0.0) <= LARGEST
    return X if fits else None
