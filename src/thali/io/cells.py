"""What every reader returns, and the errors that every table-like format shares."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thali.errors import InvalidDataError


class Cells(NamedTuple):
    """The numbers of a file and the names that came with them."""

    X: np.ndarray
    row_names: tuple[str, ...] | None
    dim_names: tuple[str, ...] | None
    index_name: str = ""  # what stands above the row names


def are_row_names(texts: Sequence[str]) -> bool:
    """Tell whether texts can name the rows: none is blank and no two are the same."""
    return all(text.strip() for text in texts) and len(set(texts)) == len(texts)


def text_column_error(path: Path, column: str, example: object, where: str = "") -> InvalidDataError:
    """Build the error for a column that is not numbers."""
    return InvalidDataError(
        f"{path}: expected numbers in column {column!r}, but it holds {_short(example)}{where}. Drop the "
        f"column, or turn its values into numbers (a category becomes a 0/1 column for each of its values); "
        f"only a first column may be text, and then it names the rows and no two values may be the same"
    )


def no_numbers_error(path: Path, hint: str = "") -> InvalidDataError:
    """Build the error for a table in which no column is left for the data."""
    return InvalidDataError(f"{path} has no columns of numbers; expected at least one{hint}")


def _short(value: object, limit: int = 40) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
