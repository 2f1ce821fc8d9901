"""Binary matrices: checks, column counts, histories and the classes of matrices that share them."""

import math
from collections import Counter
from typing import Any

import numpy as np

from thali.errors import InvalidDataError

Array = np.ndarray


def check_binary(Z: Any) -> Array:
    """Z as a C-contiguous uint8 matrix of zeros and ones, or a clear error."""
    Z = np.asarray(Z)
    if Z.ndim != 2:
        raise InvalidDataError(
            f"Z must be a matrix of zeros and ones, one row per observation. Got an array with {Z.ndim} axes; "
            "reshape it to (n_rows, n_features)."
        )
    if Z.dtype.kind in "bu":
        is_binary = Z.max(initial=0) <= 1  # faster than comparisons
    else:
        is_binary = Z.dtype.kind in "if" and ((Z == 0) | (Z == 1)).all()
    if not is_binary:
        raise InvalidDataError("Z must hold only 0 and 1. Got other values; use (values > threshold).astype(int).")
    return np.ascontiguousarray(Z, dtype=np.uint8)


def column_counts(Z: Array) -> Array:
    """How many rows have each feature.

    Bytes are added to bytes along long rows, 255 of them at most: NumPy takes twenty times as long to add numbers of
    eight bytes along rows of K.
    """
    n_rows, K = Z.shape
    width = max(-(-n_rows // 255), 1)
    height = n_rows // width
    parts = Z[: height * width].reshape(height, width * K).sum(axis=0, dtype=np.uint8)
    return parts.reshape(width, K).sum(axis=0, dtype=np.int64) + Z[height * width :].sum(axis=0, dtype=np.int64)


def n_non_empty(Z: Array) -> int:
    """How many features some row has."""
    return int(np.count_nonzero(column_counts(Z)))


def non_empty(Z: Array) -> Array:
    """Z without the columns that no row has."""
    return np.ascontiguousarray(Z[:, column_counts(Z) > 0])


def history_counts(Z: Array) -> list[int]:
    """How often each distinct column occurs (the K_h of Griffiths & Ghahramani), empty columns left out."""
    counts = column_counts(Z)
    _, places, n_columns = np.unique(counts, return_inverse=True, return_counts=True)
    used = counts > 0
    maybe_equal = used & (n_columns[places] > 1)  # columns are equal only if as many rows have them
    return [1] * int((used & ~maybe_equal).sum()) + list(Counter(_keys(Z[:, maybe_equal])).values())


def histories(Z: Any) -> list[int]:
    """Each column read as a binary number, its first row the most significant bit; exact for any number of rows."""
    Z = check_binary(Z)
    unused = -len(Z) % 8
    return [int.from_bytes(key, "big") >> unused for key in _keys(Z)]


def left_ordered(Z: Any) -> Array:
    """The columns of Z in decreasing order of their histories, empty ones dropped: the same for a whole class."""
    Z = non_empty(check_binary(Z))
    keys = _keys(Z)
    order = sorted(range(Z.shape[1]), key=keys.__getitem__, reverse=True)
    return np.ascontiguousarray(Z[:, order])


def log_class_size(Z: Any) -> float:
    """Log of the number of matrices that differ from Z by the order of its non-empty columns only: K! / prod_h K_h!."""
    counts = history_counts(check_binary(Z))
    # eq: GG11.class-size
    return math.lgamma(sum(counts) + 1) - sum(math.lgamma(count + 1) for count in counts)


def class_size(Z: Any) -> int:
    """The same as a whole number, exact however large."""
    counts = history_counts(check_binary(Z))
    return math.factorial(sum(counts)) // math.prod(math.factorial(count) for count in counts)


def _keys(Z: Array) -> list[bytes]:
    """Columns packed into bytes, first row first: they compare as the histories do."""
    packed = np.packbits(Z, axis=0)
    return [column.tobytes() for column in np.ascontiguousarray(packed.T)]
