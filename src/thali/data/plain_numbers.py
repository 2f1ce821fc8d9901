"""X as numbers and NaN: masks, text and the missing values of data frames, by one rule wherever X is taken."""

from collections import Counter
from typing import Any

import numpy as np

from thali.core.caller import warn_caller
from thali.data.cell_text import hint, listed, number, plain_missing
from thali.errors import InvalidDataError

Array = np.ndarray


def plain_numbers(X: Any) -> Any:
    """X with NaN in each missing cell, where that takes more than a conversion to floats; else X itself.

    The cells of a masked array that its mask hides are missing, as are None, NA and NaT, and what `cell_text` takes for
    missing among texts: a warning counts those that are neither blank nor NaN. Texts that are numbers become numbers;
    any other is an error that names its row and column.
    """
    if isinstance(X, list | tuple):
        X = _of_list(X)
    if isinstance(X, np.ma.MaskedArray):
        return _unmasked(X)
    if hasattr(X, "iloc") and getattr(X, "ndim", 0) == 2:
        return _of_frame(X)
    if isinstance(X, np.ndarray) and X.dtype.kind in "mM":
        raise InvalidDataError(f"X must hold real numbers. Got dates or times ({X.dtype}). Turn them into numbers.")
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUT":
        return _of_objects(X)
    return X


def _of_objects(X: Array) -> Array:
    spellings: Counter[str] = Counter()
    columns = [_cells(X[:, d].tolist(), f"column {d}", spellings) for d in range(X.shape[1])]
    _tell(spellings)
    # a cell may be a sequence, of which NumPy would make one more axis
    return np.stack([np.fromiter(c, dtype=object, count=len(c)) for c in columns], axis=1) if columns else X


def _unmasked(X: Any) -> Any:
    if X.dtype.kind in "biuf":
        return X.astype(np.float64).filled(np.nan)
    if X.dtype.kind in "OUT":
        cells = np.array(X.data, dtype=object)
        cells[np.ma.getmaskarray(X)] = None
        return plain_numbers(cells)
    raise InvalidDataError(f"X must hold real numbers. Got a masked array of dtype {X.dtype}.")


def _of_list(X: Any) -> Any:
    """Rows that are masked arrays, and rows that mix text with numbers, which NumPy would turn into text."""
    if any(isinstance(row, np.ma.MaskedArray) for row in X):
        try:
            return np.ma.stack([np.ma.asarray(row, dtype=np.float64) for row in X])
        except (TypeError, ValueError) as error:
            raise InvalidDataError(f"X must be a matrix of real numbers. Got rows of a list: {error}.") from error
    if any(isinstance(row, list | tuple) and any(isinstance(cell, str) or _absent(cell) for cell in row) for row in X):
        try:
            table = np.array(X, dtype=object)
        except ValueError:  # rows of different lengths: whoever asked for a matrix says so
            return X
        return table if table.ndim == 2 else X
    return X


def _of_frame(X: Any) -> Any:
    """A data frame whose columns are all floats, or the same one if its columns are plain NumPy numbers."""
    if all(isinstance(dtype, np.dtype) and dtype.kind in "biufc" for dtype in X.dtypes):
        return X
    spellings: Counter[str] = Counter()
    columns = {}
    for d, name in enumerate(X.columns):
        column, where = X.iloc[:, d], f"column {name!r}"
        if column.dtype.kind in "mM":
            raise InvalidDataError(
                f"X must hold real numbers. Got dates or times in {where}. Turn them into numbers, or leave them out."
            )
        if column.dtype.kind in "biuf":
            columns[d] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            columns[d] = np.array(_cells(column.tolist(), where, spellings), dtype=object)
    _tell(spellings)
    frame = type(X)(columns, index=X.index)
    frame.columns = X.columns
    return frame


def _cells(values: list[Any], where: str, spellings: Counter[str]) -> list[Any]:
    """Texts as numbers, missing cells as NaN, and the rest as it is."""
    return [
        text_cell(value, f"row {row} of {where}", spellings) if isinstance(value, str)
        else np.nan if _absent(value) else value
        for row, value in enumerate(values)
    ]  # fmt: skip


def text_cell(text: str, where: str, spellings: Counter[str]) -> float:
    """The number in a text; a spelling that means missing, and might mean more, is counted."""
    value = number(text)
    if value is None:
        why = hint(text)
        raise InvalidDataError(
            f"X must hold real numbers. Got {text!r:.60} in {where}{f': {why}' if why else ''}. "
            "Turn it into a number, or leave the column out."
        )
    if value != value and not plain_missing(text):
        spellings[text.strip()] += 1
    return value


def _absent(value: Any) -> bool:
    """None, masked, or one of the missing values of pandas, which do not compare."""
    return value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType")


def _tell(spellings: Counter[str]) -> None:
    if spellings:
        warn_caller(f"X holds {listed(spellings)}, taken as missing.")
