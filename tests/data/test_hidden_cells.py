"""Cells that are hidden from a fit."""

import numpy as np
import pytest

from thali.data.hidden_cells import hidden_cells
from thali.rng import make_generator


def hide(X, share, seed):
    return hidden_cells(make_generator(seed), X, share)


def test_cells_that_are_held_out() -> None:
    X = np.random.default_rng(0).standard_normal((300, 6))
    X[:, 1] = np.where(np.arange(300) % 7, np.nan, X[:, 1])
    hidden = hide(X, 0.3, 5)
    assert not (hidden & np.isnan(X)).any()
    assert hidden.sum() == pytest.approx(0.3 * np.sum(~np.isnan(X)), rel=0.1)
    assert not np.array_equal(hidden, hide(X, 0.3, 6))
    assert not hide(X, 0.0, 5).any()
    for share in (0.9, 0.999):  # every row and every dim keeps a cell
        visible = np.where(hide(X, share, 5), np.nan, X)
        assert not np.isnan(visible).all(axis=0).any()
        assert not np.isnan(visible).all(axis=1).any()
