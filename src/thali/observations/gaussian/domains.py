"""What the parameters of Gaussian models may be."""

from typing import Any

import numpy as np

from thali.core.binary import Array
from thali.core.distributions import NormalOffset
from thali.core.spec import Domain, positive


def _numbers(value: Any) -> Array:
    """As an array; of no kind of number if it is none."""
    try:
        return np.asarray(value)
    except ValueError:  # rows of different lengths
        return np.empty(0, dtype=object)


def _positive_array(value: Any) -> bool:
    value = _numbers(value)
    if value.dtype.kind not in "uif" or value.ndim > 1 or value.size == 0:
        return False
    return bool((value > 0).all() and np.isfinite(value).all())


def _is_floor(value: Any) -> bool:
    value = _numbers(value)
    return value.dtype.kind in "uif" and value.ndim <= 1 and value.size > 0 and bool(((value >= 0) & (value < 1)).all())


def _is_offset(value: Any) -> bool:
    if value is None:
        return True
    value = _numbers(value)
    return value.dtype.kind in "uif" and value.ndim == 1 and bool(np.isfinite(value).all())


noise_domain = Domain("a positive number, or one per dim", _positive_array, low=0.0, accepts=lambda d: True)
feature_domain = Domain("a positive number", lambda v: v is None or positive.contains(v), low=0.0)
offset_domain = Domain(
    "None, a vector with one number per dim", _is_offset, accepts=lambda d: isinstance(d, NormalOffset)
)
floor_domain = Domain("a share of each dim's variance, in [0, 1)", _is_floor)
weighted_floor_domain = Domain(
    '"uniqueness", or a share of each dim\'s variance, in [0, 1)',
    lambda v: v == "uniqueness" if isinstance(v, str) else _is_floor(v),
)
origin_domain = Domain("None, or one number per dim", _is_offset)
ard_domain = Domain("None or a positive number", lambda v: v is None or positive.contains(v))
scale_domain = Domain("None, or a positive number per dim", lambda v: v is None or _positive_array(v))
