"""Many lines of plain numbers at once. What is not plain is left to the reader of single lines, which says why.

pandas' parser rounds as `float` does and takes nothing for a number that `thali.data.cell_text` does not, provided that
the text has only the characters below; the tests hold both against it.
"""

import io
from typing import Any

import numpy as np

from thali.data.row_blocks import LARGEST

__all__ = ["plain_rows"]

Array = np.ndarray

_OF_NUMBERS = b"0123456789+-.eE, \n"
_FEW = 4096  # cells for which it pays to call pandas
_NAN = ("nan", "NaN", "NAN")


def plain_rows(text: bytes, n_columns: int) -> Array | None:
    """The matrix in lines of cells with commas between them; None if a line is anything but plain finite numbers and
    cells that are blank or NaN, or has another width."""
    if not _is_plain(text) or not _are_of_width(text, n_columns):
        return None
    n_rows = text.count(b"\n")
    X = _few_rows(text, n_columns) if n_rows * n_columns < _FEW else _many_rows(text, n_columns)
    if X is None or X.shape != (n_rows, n_columns) or np.fmax.reduce(np.abs(X), axis=None, initial=0.0) > LARGEST:
        return None
    return X


def _is_plain(text: bytes) -> bool:
    rest = text.translate(None, _OF_NUMBERS)
    return not rest or not rest.replace(b"nan", b"").replace(b"NaN", b"").replace(b"NAN", b"")


def _are_of_width(text: bytes, n_columns: int) -> bool:
    codes = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    if n_columns == 1:  # a blank line is no row
        return b"," not in text and bool((np.diff(ends, prepend=-1) > 1).all())
    commas = np.flatnonzero(codes == ord(","))
    if len(commas) != len(ends) * (n_columns - 1):
        return False
    before = np.searchsorted(commas, ends)
    return bool((before == np.arange(1, len(ends) + 1) * (n_columns - 1)).all())


def _few_rows(text: bytes, n_columns: int) -> Array | None:
    cells = text[:-1].replace(b"\n", b",").split(b",")
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells]).reshape(-1, n_columns)
    except ValueError:
        return None


def _many_rows(text: bytes, n_columns: int) -> Array | None:
    import pandas as pd

    try:
        frame = pd.read_csv(
            io.BytesIO(text), engine="c", header=None, names=range(n_columns), index_col=False, dtype=np.float64,
            keep_default_na=False, na_values=_NAN, skip_blank_lines=False, quoting=3, low_memory=False,
            **_rounding(),
        )  # fmt: skip
    except ValueError:
        return None
    return np.ascontiguousarray(frame.to_numpy())


def _rounding() -> dict[str, Any]:
    """What makes pandas round to the nearest double: since 3.1 nothing else can be asked for."""
    import pandas as pd

    return {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
