"""Cells that are hidden from a fit: observed ones, by share, never all of a row or of a dim."""

import numpy as np
import pytest

from thali.data.hidden_cells import hidden_cells
from thali.rng import make_generator


def test_cells_that_are_held_out():
    X = np.random.default_rng(0).standard_normal((300, 6))
    X[:, 1] = np.where(np.arange(300) % 7, np.nan, X[:, 1])
    hidden = hidden_cells(make_generator(5), X, 0.3)
    assert not (hidden & np.isnan(X)).any()
    assert hidden.sum() == pytest.approx(0.3 * np.sum(~np.isnan(X)), rel=0.1)
    assert np.array_equal(hidden, hidden_cells(make_generator(5), X, 0.3))
    assert not np.array_equal(hidden, hidden_cells(make_generator(6), X, 0.3))
    assert not hidden_cells(make_generator(5), X, 0.0).any()
    for share in (0.9, 0.999):  # every row and every dim keeps a cell
        visible = np.where(hidden_cells(make_generator(5), X, share), np.nan, X)
        assert not np.isnan(visible).all(axis=0).any()
        assert not np.isnan(visible).all(axis=1).any()


def test_a_row_with_one_cell_keeps_it():
    X = np.full((6, 4), 1.0)
    X[0, 1:] = np.nan
    assert not hidden_cells(make_generator(0), X, 0.99)[0].any()
