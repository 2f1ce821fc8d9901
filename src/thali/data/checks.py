"""Whether X is what models of real numbers can take."""

from typing import Any

import numpy as np

from thali.data.plain_numbers import plain_numbers
from thali.errors import InvalidDataError

Array = np.ndarray


def check_real(X: Any) -> Array:
    """X as a float64 matrix with NaN for missing cells; every row and every dim must have an observed cell."""
    X = plain_numbers(X)
    try:
        X = np.asarray(X)
        if X.dtype.kind not in "buifO":
            raise TypeError(f"an array of dtype {X.dtype}")
        X = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidDataError(
            f"X must hold real numbers, NaN where a cell is missing. Got {error}. "
            "Convert text columns to numbers, or leave them out."
        ) from error
    if X.ndim != 2:
        raise InvalidDataError(
            f"X must be a matrix (n_rows, n_dims). Got an array with {X.ndim} axes and shape {X.shape}. "
            "Reshape your data: X.reshape(-1, 1) for one dim, X.reshape(1, -1) for one row."
        )
    if X.size == 0:
        raise InvalidDataError(f"X must have at least one row and one dim. Got shape {X.shape}.")
    if np.isinf(X).any():
        n, d = np.argwhere(np.isinf(X))[0]
        raise InvalidDataError(
            f"X must be finite (NaN means missing). Got infinity in row {n}, dim {d}. "
            "Replace infinities by NaN or by a number."
        )
    largest = np.nanmax(np.abs(X), initial=0.0)
    if largest > 1e150 or 0 < largest < 1e-140:
        raise InvalidDataError(
            f"X must hold numbers whose squares can be summed. Got {largest:.3g} as the largest: "
            f"{'divide' if largest > 1 else 'multiply'} X by a constant."
        )
    observed = ~np.isnan(X)
    for axis, kind in ((0, "dim"), (1, "row")):
        empty = np.flatnonzero(~observed.any(axis=axis))
        if len(empty):
            raise InvalidDataError(
                f"Every {kind} of X needs at least one observed cell. Got only NaN in {len(empty)} of them, the first "
                f"at index {empty[0]}. Drop what is wholly missing: nothing can be learned about it."
            )
    return X
