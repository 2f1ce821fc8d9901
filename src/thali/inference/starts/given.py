"""Codes that a user gives as a start: from another fit, from what is known, or from nothing in particular."""

from typing import Any

import numpy as np

from thali.core.observation import Observation
from thali.core.spec import Domain
from thali.errors import InvalidDataError

Array = np.ndarray


def start_domain(*names: str) -> Domain:
    """The names of starts, or a matrix of codes (n_rows, n_features)."""
    words = ", ".join(repr(name) for name in names)
    return Domain(
        f"one of {words}, or a matrix of codes (n_rows, n_features)",
        lambda v: v in names if isinstance(v, str) else is_given(v),
    )


def is_given(start: Any) -> bool:
    """Whether a start is codes rather than a name."""
    if isinstance(start, str):
        return False
    try:
        codes = np.asarray(start)
    except ValueError:  # rows of different lengths
        return False
    return codes.ndim == 2 and codes.dtype.kind in "buif" and bool(np.isfinite(codes).all())


def given_codes(start: Any, n_rows: int, observation: Observation, n_features: int | None) -> Array:
    """The codes as the model needs them: without empty columns, or with as many columns as a finite prior has."""
    codes = np.asarray(start)
    kind, name = observation.code_kind, type(observation).__name__
    if len(codes) != n_rows:
        raise InvalidDataError(
            f"start must have a row of codes for each of the {n_rows} rows of X. Got {len(codes)} rows."
        )
    if kind == "bits" and not np.isin(codes, (0, 1)).all():
        raise InvalidDataError(f"start must hold zeros and ones: the codes of {name} are bits. Got other numbers.")
    if kind == "positive" and (codes < 0).any():
        raise InvalidDataError(f"start must not be negative: the weights of {name} are positive. Got a negative code.")
    codes = np.ascontiguousarray(codes[:, codes.any(axis=0)], dtype=np.uint8 if kind == "bits" else float)
    if n_features is None:
        return codes
    if codes.shape[1] > n_features:
        raise InvalidDataError(
            f"start must have at most the {n_features} features of the prior. Got {codes.shape[1]} that are in use."
        )
    return np.hstack([codes, np.zeros((n_rows, n_features - codes.shape[1]), dtype=codes.dtype)])
