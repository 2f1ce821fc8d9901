"""Data of every kind for fuzzing: plain, extreme, odd arrays and data frames, and what holds no data."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-5, 1e5, 1e-12, 1e12]
EXTREME = [1e30, -1e30, 1e-30, 1e60, 1e76, 1e100, 1e149, 1e151, 1e308, 5e-324, 1e-100, 1e-139, 1e-155, 1e-160, 1e-200]
SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 4))


def cells(*more: float) -> st.SearchStrategy[float]:
    return st.one_of(st.sampled_from(NUMBERS), st.floats(-100, 100), *([st.sampled_from(more)] if more else []))


@st.composite
def plain(draw: Any) -> np.ndarray:
    """A matrix that looks like data: often with missing cells, constant columns or a scale of its own per dim."""
    X = draw(arrays(np.float64, draw(SHAPES), elements=st.floats(-5, 5)))
    if draw(st.booleans()):
        X = X * draw(st.sampled_from([1e-6, 1e-3, 1e3, 1e6]))
    if draw(st.booleans()):
        X[:, draw(st.integers(0, X.shape[1] - 1))] = draw(cells())
    if draw(st.booleans()):
        X[draw(arrays(bool, X.shape, elements=st.booleans(), fill=st.just(False)))] = np.nan
    return X


@st.composite
def extreme(draw: Any) -> np.ndarray:
    """Huge and tiny numbers, alone or side by side."""
    few = draw(st.lists(st.sampled_from(EXTREME), min_size=1, max_size=3))
    return draw(arrays(np.float64, draw(SHAPES), elements=cells(np.nan, *few)))


@st.composite
def odd_arrays(draw: Any) -> Any:
    """Other kinds of numbers, memory layouts, shapes; and what holds no numbers at all."""
    kind = draw(st.sampled_from(["f4", "f2", "i8", "u1", "i1", "bool", "O", "U3", "c16", "M8[D]", "longdouble"]))
    shape = draw(st.lists(st.integers(0, 5), max_size=3).map(tuple) | SHAPES)
    elements: Any = None
    if kind == "O":
        elements = st.sampled_from([0, 1.5, None, "a", "3", 10**400, np.nan, True, (), {}, Decimal("1.5")])
    elif kind == "longdouble" or (kind in ("f4", "f2", "i8") and draw(st.booleans())):
        elements = st.integers(0, 5)
    X = draw(arrays("f8" if kind == "longdouble" else kind, shape, elements=elements))
    X = X.astype(np.longdouble) if kind == "longdouble" else X
    layout = draw(st.sampled_from(["C", "F", "read-only", "strided", "big endian", "masked", "list", "sparse"]))
    if layout == "F":
        return np.asfortranarray(X)
    if layout == "read-only":
        X.flags.writeable = False
    if layout == "strided" and X.ndim:
        return np.repeat(X, 2, axis=-1)[..., ::2]
    if layout == "big endian":
        return X.astype(X.dtype.newbyteorder(">"))
    if layout == "masked":
        return np.ma.masked_array(X, mask=np.zeros(X.shape, dtype=bool))
    if layout == "list":
        return X.tolist()
    if layout == "sparse" and X.ndim == 2 and kind in ("i8", "f4"):
        return scipy.sparse.csr_matrix(X) if draw(st.booleans()) else scipy.sparse.coo_array(X)
    return X


COLUMNS: dict[str, Callable[[list[int]], Any]] = {
    "float": lambda v: pd.Series(v, dtype=float),
    "float32": lambda v: pd.Series(v, dtype="float32"),
    "int": lambda v: pd.Series(v),
    "bool": lambda v: pd.Series(v) > 0,
    "Int64": lambda v: pd.Series([pd.NA if x == 0 else x for x in v], dtype="Int64"),
    "Float64": lambda v: pd.Series([pd.NA if x == 0 else x / 2 for x in v], dtype="Float64"),
    "boolean": lambda v: pd.Series([pd.NA if x == 0 else x > 0 for x in v], dtype="boolean"),
    "category": lambda v: pd.Series(v).astype("category"),
    "string": lambda v: pd.Series([str(x) for x in v], dtype="string"),
    "object": lambda v: pd.Series([None if x == 0 else x for x in v], dtype=object),
    "text": lambda v: pd.Series(["x"] * len(v)),
    "time": lambda v: pd.to_datetime(pd.Series(v), unit="D"),
    "span": lambda v: pd.to_timedelta(pd.Series(v), unit="D"),
    "decimal": lambda v: pd.Series([Decimal(x) for x in v], dtype=object),
    "sparse": lambda v: pd.Series(v, dtype=pd.SparseDtype(float)),
    "arrow": lambda v: pd.Series(v, dtype="double[pyarrow]"),
}


@st.composite
def frames(draw: Any) -> Any:
    """Data frames with columns of any dtype and any names, also none or the same."""
    n_rows = draw(st.integers(0, 6))
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), max_size=3))
    columns = [COLUMNS[kind](draw(st.lists(st.integers(-3, 3), min_size=n_rows, max_size=n_rows))) for kind in kinds]
    names = draw(st.lists(st.sampled_from(["a", "b", 0, 1.5, None, "", ("x", 1)]), min_size=3, max_size=3))
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(n_rows))
    frame.columns = names[: frame.shape[1]] if draw(st.booleans()) else [f"c{i}" for i in range(frame.shape[1])]
    return frame.iloc[:, 0] if frame.shape[1] and draw(st.integers(0, 9)) == 0 else frame


ODD_THINGS = st.sampled_from(
    [None, "x", b"x", 3, object(), {}, {"a": [1, 2]}, [], [[]], [[1.0], [1.0, 2.0]], range(3), set()]
)
ANY_DATA = st.one_of(plain(), extreme(), odd_arrays(), frames(), ODD_THINGS)
