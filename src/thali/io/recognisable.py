"""Names that a reader of a text table will take for names, by the rules it has for header and row names."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from thali.errors import InvalidDataError
from thali.io.header import find_header
from thali.io.row_names import name_rows
from thali.io.tables import Table


def recognisable(table: Table) -> Table:
    """The table with a header if its rows have names, and a word before names that would be read as numbers."""
    X, dims, names, label = table.X, table.dim_names, table.row_names, table.index_name.strip()
    if not X.size:
        return table
    if names is not None:
        dims = dims if dims is not None else tuple(f"dim_{d}" for d in range(X.shape[1]))
        label = label if name_rows(names, label) else ""
        names = names if name_rows(names, label) else tuple(f"row_{name}" for name in names)
    if dims is None:
        return table
    dims = tuple(name.strip() or f"column {i}" for i, name in enumerate(dims, 1))
    words = tuple(f"dim_{name}" for name in dims)
    for label_, dims_ in ((label, dims), ("", dims), (label, words), ("", words)):
        if is_header(dims_ if names is None else (label_, *dims_), X, names):
            break
    return table._replace(dim_names=dims_, row_names=names, index_name=label_)


def is_header(cells: Sequence[str], X: np.ndarray, names: Sequence[str] | None = None) -> bool:
    """Whether a reader takes these cells for a header above X."""
    heads = [cell_of(value) for value in X[:, 0].tolist()] if names is None else names
    try:
        return find_header(Path(), 1, cells, heads, X[:, 1:] if names is None else X).found
    except InvalidDataError:
        return False


def cell_of(value: float) -> str:
    """Nothing where a cell is missing; as few characters as give the same number."""
    return "" if value != value else repr(value).removesuffix(".0")
