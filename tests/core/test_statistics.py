"""Additive statistics."""

from typing import NamedTuple

import numpy as np
import pytest

from thali.core.statistics import add, subtract
from thali.observations.gaussian.data import DimSums, GaussianData


class Sums(NamedTuple):
    count: float
    total: np.ndarray


def of(X):
    return Sums(len(X), X.sum(axis=0))


def same(a, b):
    assert type(a) is type(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_parts_add_up_and_come_off_again(rng):
    X = rng.integers(-5, 6, size=(11, 3)).astype(float)
    whole, a, b = of(X), of(X[:4]), of(X[4:])
    same(add(a, b), whole)
    same(subtract(whole, b), a)
    same(subtract(add(a, b), b), a)
    same(add(a, b), add(b, a))


def test_different_lengths_are_refused():
    with pytest.raises(ValueError, match="zip"):
        add(Sums(1, np.zeros(2)), (1,))


def test_sums_of_dims_with_missing_cells(rng):
    X = rng.standard_normal((9, 3))
    holes = rng.random(X.shape) < 0.3
    data = GaussianData(np.where(holes, np.nan, X))
    same(data.sums(X[holes]), DimSums(X.sum(axis=0), (X**2).sum(axis=0)))
