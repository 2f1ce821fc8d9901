"""The first rows of a stream, kept while they are few: what a row or two say of the features is soon out of date.

Features begin anew with all rows so far each time their number has doubled, until there are as many as a fit begins
with; then the rows are forgotten. All these beginnings together take about twice the time of the last one.
"""

from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse, vstack

from thali.data.sparse_input import check_coordinates
from thali.errors import ThaliError
from thali.files import limits

Array = np.ndarray


def is_time(n_rows: int, n_begun: int, n_start: int) -> bool:
    """Whether features should begin anew with n_rows, when they began with n_begun."""
    return n_rows >= min(2 * n_begun, n_start)


def with_rows(young: Any, X: Any) -> Any:
    """The rows so far (None: none) and those of X."""
    if young is None:
        return X
    if issparse(X) or issparse(young):
        return csr_array(vstack([csr_array(young), csr_array(X)]))
    return np.vstack([young, X])


def rows_to_file(young: Any, arrays: dict[str, Array]) -> dict[str, Any]:
    if not issparse(young):
        arrays["stream/young"] = young
        return {"shape": list(young.shape), "sparse": False}
    cells = coo_array(young)
    arrays |= {"stream/young": cells.data, "stream/young.row": cells.row, "stream/young.dim": cells.col}
    return {"shape": list(young.shape), "sparse": True}


def rows_from_file(form: Any, arrays: dict[str, Array]) -> Any:
    """As they were written; a ValueError if they do not fit together."""
    n_rows, n_dims = (int(n) for n in form["shape"])
    values = arrays["stream/young"]
    if not form["sparse"]:
        if values.shape != (n_rows, n_dims):
            raise ValueError("its first rows do not have the shape that they say")
        return np.ascontiguousarray(values, dtype=np.float64)
    where = arrays["stream/young.row"], arrays["stream/young.dim"]
    if limits.DOUBLE * n_rows > limits.room_of_fit(values.nbytes):  # a row without entries takes a number, too
        raise ValueError("its first rows are more than their entries allow")
    check_coordinates(values, where, n_rows, n_dims)
    return csr_array(coo_array((values.astype(np.float64), where), shape=(n_rows, n_dims)))


def checked_rows(young: Any, given: Any, model: Any, n_seen: int) -> Any:
    """The rows, once it is sure that they are some of a stream of n_seen by this model."""
    kinds = [type(part) for one in (given, model) for part in (one.prior, one.observation)]
    if kinds[:2] != kinds[2:] or young.shape[0] != n_seen:
        raise ValueError("its first rows are those of another stream")
    try:
        return given.observation.check_data(young)
    except ThaliError as error:
        raise ValueError(f"its first rows are no data: {error}") from error
