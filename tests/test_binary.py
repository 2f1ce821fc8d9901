"""Binary matrices."""

import numpy as np
import pytest

from thali.binary import check_binary, column_counts, history_counts, non_empty
from thali.errors import InvalidDataError


@pytest.mark.parametrize(
    "Z",
    [
        [[0, 1], [1, 1]],
        np.array([[0.0, 1.0]]),
        np.array([[True], [False]]),
        np.asfortranarray(np.eye(3)),
        np.ones((2, 0)),
    ],
)
def test_zeros_and_ones_are_taken(Z):
    checked = check_binary(Z)
    assert checked.dtype == np.uint8
    assert checked.flags.c_contiguous
    assert np.array_equal(checked, np.asarray(Z).astype(int))


@pytest.mark.parametrize(
    "Z", [[0, 1], 3, [[[1]]], [[2]], [[-1]], [[0.5]], [[np.nan]], [[np.inf]], [["1"]], [[1j]], [[None]], None]
)
def test_anything_else_is_refused(Z):
    with pytest.raises(InvalidDataError, match="Got"):
        check_binary(Z)


def test_counts_of_many_rows_do_not_overflow():
    assert column_counts(np.ones((300, 2), np.uint8)).tolist() == [300, 300]


def test_non_empty_drops_columns_of_zeros():
    Z = np.array([[0, 1, 0], [0, 1, 1]], np.uint8)
    assert non_empty(Z).tolist() == [[1, 0], [1, 1]]
    assert non_empty(Z[:, :1]).shape == (2, 0)
    assert non_empty(Z).flags.c_contiguous


@pytest.mark.parametrize("n_rows", [1, 7, 8, 9, 30])
def test_histories_are_counted(n_rows, rng):
    Z = rng.integers(2, size=(n_rows, 6)).astype(np.uint8)
    Z = np.hstack([Z, Z[:, :2], np.zeros((n_rows, 2), np.uint8)])
    columns = [tuple(column) for column in Z.T if column.any()]
    assert sorted(history_counts(Z)) == sorted(columns.count(c) for c in set(columns))
    assert history_counts(Z[:, -2:]) == []
    assert history_counts(Z[:, :0]) == []
