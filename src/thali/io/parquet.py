"""Read Parquet files through pandas and pyarrow, which are imported only when such a file is asked for."""

import re
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from thali import limits
from thali.errors import InvalidDataError
from thali.io.cells import Cells, are_row_names, no_numbers_error, text_column_error

if TYPE_CHECKING:
    import pandas as pd


_TYPE = re.compile(r"[A-Za-z_]+\d{0,3}(\[.{1,60}\])?")


def read_parquet(path: Path) -> Cells:
    """Read the columns of numbers; a text index, or else a first column of distinct texts, names the rows."""
    frame = _load(path)
    if len(frame) == 0:
        raise InvalidDataError(f"{path} has no rows; expected at least one")
    names = [str(name) for name in frame.columns]
    columns = [frame.iloc[:, i] for i in range(frame.shape[1])]
    row_names, index_name = _names(frame.index.to_series()), frame.index.name
    if row_names is None and columns:
        row_names = _names(columns[0])
        if row_names is not None:
            index_name, names, columns = names[0], names[1:], columns[1:]
    if not columns:
        raise no_numbers_error(path)
    values = [_floats(path, name, column) for name, column in zip(names, columns, strict=True)]
    return Cells(np.column_stack(values), row_names, tuple(names), "" if index_name is None else str(index_name))


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


def _names(column: "pd.Series") -> tuple[str, ...] | None:
    """Return the values as row names if they are distinct texts, else None."""
    values = column.tolist()
    if all(isinstance(value, str) for value in values) and are_row_names(values):
        return tuple(values)
    return None


def _floats(path: Path, name: str, column: "pd.Series") -> np.ndarray:
    if column.dtype.kind in "biuf":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    values = [None if missing else value for value, missing in zip(column.tolist(), column.isna(), strict=True)]
    for value in values:
        if value is not None and not isinstance(value, Real | Decimal):
            raise text_column_error(path, name, value)
    return np.array([np.nan if value is None else float(value) for value in values])
