"""Additive statistics: NamedTuples of arrays that are sums over rows, so that parts of the data can be combined."""

import functools
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

S = TypeVar("S", bound=tuple[Any, ...])


def add(a: S, b: S) -> S:
    """Statistics of two disjoint sets of rows (or cells) together."""
    return type(a)(*(x + y for x, y in zip(a, b, strict=True)))


def subtract(a: S, b: S) -> S:
    """Statistics of what is in `a` but not in `b`."""
    return type(a)(*(x - y for x, y in zip(a, b, strict=True)))


def scale(a: S, factor: float) -> S:
    """Statistics of `factor` times as many rows of the same kind."""
    return type(a)(*(x * factor for x in a))


def are_alike(ours: Any, its: Any, *, shared_axes: bool = False) -> bool:
    """Whether two trees of tuples have the same types, arrays of the same shapes, and only finite numbers.

    shared_axes: in one of them an axis may have length 1, where the other has a value for each.
    """
    if isinstance(ours, np.ndarray):
        if not isinstance(its, np.ndarray) or its.dtype != ours.dtype or its.ndim != ours.ndim:
            return False
        same = all(a == b or (shared_axes and 1 in (a, b)) for a, b in zip(ours.shape, its.shape, strict=True))
        return same and bool(np.isfinite(its).all())
    if isinstance(ours, tuple):
        if not isinstance(its, type(ours)) or len(its) != len(ours):
            return False
        return all(are_alike(a, b, shared_axes=shared_axes) for a, b in zip(ours, its, strict=True))
    if isinstance(ours, int | float | np.number):
        return isinstance(its, int | float | np.number) and bool(np.isfinite(its))
    return isinstance(its, type(ours))


def combine(parts: Iterable[S]) -> S:
    """Statistics of all parts together, added in this order."""
    return functools.reduce(add, parts)
