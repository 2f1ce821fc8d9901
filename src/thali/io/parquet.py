"""Read Parquet files through pandas and pyarrow, which are imported only when such a file is asked for."""

import re
from collections import Counter
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from thali.data.cell_text import listed, number, plain_missing
from thali.errors import InvalidDataError
from thali.files import limits
from thali.io.cells import Cells, Place, cell_error, no_numbers_error
from thali.io.row_names import are_codes, are_mostly_text, checked_names, count_the_rows

if TYPE_CHECKING:
    import pandas as pd


_TYPE = re.compile(r"[A-Za-z_]+\d{0,3}(\[.{1,60}\])?")


def read_parquet(path: Path) -> Cells:
    """Read the columns of numbers; an index, or else a first column that is mostly text, names the rows.

    A column of text holds numbers and missing cells by the rule of text files.
    """
    frame = _load(path)
    if len(frame) == 0:
        raise InvalidDataError(f"{path} has no rows; expected at least one")
    names = [str(name) for name in frame.columns]
    columns = [frame.iloc[:, i] for i in range(frame.shape[1])]
    row_names, said = _index(frame.index)
    index_name, reading, doubts = frame.index.name, [said] if said else [], []
    first = 1
    if row_names is None and columns and _is_text(columns[0]):
        heads = ["" if value is None else str(value) for value in _values(columns[0])]
        if are_mostly_text(heads) or are_codes(heads):
            row_names = checked_names(path, heads, lambda row: Place(row + 1, 1, names[0], "row"))
            reading.append(f"column 1 ({names[0]}) names the rows")
            index_name, names, columns, first = names[0], names[1:], columns[1:], 2
    if not columns:
        raise no_numbers_error(path)
    spellings: Counter[str] = Counter()
    values = [
        _floats(path, i, name, column, spellings)
        for i, (name, column) in enumerate(zip(names, columns, strict=True), first)
    ]
    if spellings:
        reading.append(f"{listed(spellings)} {'is' if spellings.total() == 1 else 'are'} missing")
    if row_names is None and count_the_rows([f"{value:g}" for value in values[0]]):
        doubts.append(f"column 1 ({names[0]}) looks like row numbers; it is used as data")
    label = "" if index_name is None or row_names is None else str(index_name)
    return Cells(np.column_stack(values), row_names, tuple(names), label, tuple(reading), tuple(doubts))


def _load(path: Path) -> "pd.DataFrame":
    try:
        import pandas as pd
        import pyarrow  # noqa: F401, asked for here so that its absence is told from a damaged file
    except ImportError as error:
        raise InvalidDataError(
            f"{path}: reading Parquet needs pandas and pyarrow, and {error.name} is not installed. Run "
            f'pip install "thali[data]", or save the data as .csv or .npy'
        ) from error
    try:
        text = _check_promises(path)
        return pd.read_parquet(path, engine="pyarrow", read_dictionary=text)  # a text that repeats is there once
    except InvalidDataError:
        raise
    except Exception as error:  # a damaged file makes pyarrow and pandas raise anything, even KeyError
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidDataError(f"{path} is not a Parquet file of plain columns ({reason}); write it anew") from error


def _index(index: "pd.Index") -> tuple[tuple[str, ...] | None, str]:
    """The names of the rows if the index gives them, and what is to be said of it."""
    import pandas as pd

    if isinstance(index, pd.RangeIndex):
        return None, ""
    called = "the index" if index.name is None else f"the index ({index.name})"
    names = tuple(str(value).strip() for value in index.tolist())
    if index.dtype.kind not in "fbc" and not index.hasnans and index.is_unique and all(names):
        return names, f"{called} names the rows"
    return None, f"{called} is left out, since it does not name the rows"


def _check_promises(path: Path) -> list[str]:
    """The columns of text; an error if what the file says of itself is out of proportion to its size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = limits.stored_size(path)
    room = limits.room_of_data(size)
    with pq.ParquetFile(path, thrift_string_size_limit=room, thrift_container_size_limit=max(size, 10**6)) as file:
        meta = file.metadata
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
        cells = max(meta.num_rows * meta.num_columns, sum(max(chunk.num_values, 0) for chunk in chunks))
        unpacked = sum(max(chunk.total_uncompressed_size, 0) for chunk in chunks)
        if max(limits.DOUBLE * cells, unpacked) > room:
            raise InvalidDataError(
                f"{path} is out of proportion: {cells} cells in {size} bytes. If it is meant so, save it with "
                f"numpy.save or as .csv"
            )
        _check_pandas(file.schema_arrow.pandas_metadata)
        kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
        return [field.name for field in file.schema_arrow if any(is_kind(field.type) for is_kind in kinds)]


def _check_pandas(said: Any) -> None:
    """pandas makes arrays of the types that the file names: none of them may be of long texts."""
    for part in ("columns", "column_indexes"):
        for column in (said or {}).get(part) or []:
            if not _TYPE.fullmatch(str((column or {}).get("numpy_type"))):
                raise ValueError("its columns have no type that is known")


def _is_text(column: "pd.Series") -> bool:
    return any(isinstance(value, str) for value in _values(column))


def _values(column: "pd.Series") -> list[Any]:
    """The values as Python objects, None where one is missing."""
    if column.dtype.kind in "biuf":
        return []
    return [None if missing else value for value, missing in zip(column.tolist(), column.isna(), strict=True)]


def _floats(path: Path, i: int, name: str, column: "pd.Series", spellings: Counter[str]) -> np.ndarray:
    if column.dtype.kind in "biuf":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    found = []
    for row, value in enumerate(_values(column), 1):
        cell = np.nan if value is None else number(value) if isinstance(value, str) else value
        if not isinstance(cell, Real | Decimal):
            raise cell_error(path, Place(row, i, name, "row"), value)
        if isinstance(value, str) and cell != cell and not plain_missing(value):
            spellings[value.strip()] += 1
        found.append(float(cell))
    return np.array(found)
