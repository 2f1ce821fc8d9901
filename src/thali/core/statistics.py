"""Additive statistics: NamedTuples of arrays that are sums over rows, so that parts of the data can be combined."""

import functools
from collections.abc import Iterable
from typing import Any, TypeVar

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


def combine(parts: Iterable[S]) -> S:
    """Statistics of all parts together, added in this order."""
    return functools.reduce(add, parts)
