"""Binary matrices: checks, column counts and histories."""

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
    if Z.dtype.kind not in "buif" or not ((Z == 0) | (Z == 1)).all():
        raise InvalidDataError("Z must hold only 0 and 1. Got other values; use (values > threshold).astype(int).")
    return np.ascontiguousarray(Z, dtype=np.uint8)


def column_counts(Z: Array) -> Array:
    """How many rows have each feature."""
    return Z.sum(axis=0, dtype=np.int64)


def non_empty(Z: Array) -> Array:
    """Z without the columns that no row has."""
    return np.ascontiguousarray(Z[:, Z.any(axis=0)])


def history_counts(Z: Array) -> list[int]:
    """How often each distinct column occurs (the K_h of Griffiths & Ghahramani), empty columns left out."""
    packed = np.packbits(Z[:, Z.any(axis=0)], axis=0)
    return list(Counter(np.ascontiguousarray(column).tobytes() for column in packed.T).values())
