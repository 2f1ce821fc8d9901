"""Binary matrices."""

import itertools
import math

import numpy as np
import pytest

from thali.core.binary import (
    check_binary,
    class_size,
    column_counts,
    histories,
    history_counts,
    left_ordered,
    log_class_size,
    n_non_empty,
    non_empty,
)
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
    "Z",
    [
        [0, 1],
        3,
        [[[1]]],
        [[2]],
        np.array([[2]], np.uint8),
        [[-1]],
        [[0.5]],
        [[np.nan]],
        [[np.inf]],
        [["1"]],
        [[1j]],
        [[None]],
        None,
    ],
)
def test_anything_else_is_refused(Z):
    with pytest.raises(InvalidDataError, match="Got"):
        check_binary(Z)


@pytest.mark.parametrize("n_rows", [0, 1, 254, 255, 256, 257, 300, 509, 510, 511, 65_026, 70_000])
def test_counts_do_not_overflow(n_rows, rng):
    Z = np.ones((n_rows, 3), np.uint8)
    Z[:, 1] = rng.integers(2, size=n_rows)
    wanted = [n_rows, int(Z[:, 1].astype(int).sum()), n_rows]
    assert column_counts(Z).tolist() == wanted
    assert column_counts(np.asfortranarray(Z)).tolist() == wanted
    assert column_counts(Z.astype(bool)).tolist() == wanted
    assert column_counts(Z[:, :0]).shape == (0,)


def test_non_empty_columns_are_counted():
    assert n_non_empty(np.array([[0, 1, 0], [0, 1, 1]], np.uint8)) == 2
    assert n_non_empty(np.zeros((3, 0), np.uint8)) == 0


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


def test_left_order_by_hand():
    Z = [[0, 1, 0, 0, 1], [1, 0, 0, 0, 1], [1, 1, 0, 1, 0]]
    ordered = left_ordered(Z)
    assert ordered.tolist() == [[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 1]]
    assert histories(Z) == [0b011, 0b101, 0, 0b001, 0b110]
    assert histories(ordered) == [0b110, 0b101, 0b011, 0b001]
    assert ordered.dtype == np.uint8
    assert ordered.flags.c_contiguous


@pytest.mark.parametrize("n_rows", [1, 7, 8, 9, 70])
def test_left_order_is_that_of_the_histories(n_rows, rng):
    Z = rng.integers(2, size=(n_rows, 12))
    numbers = [sum(int(bit) << (n_rows - 1 - n) for n, bit in enumerate(column)) for column in Z.T]
    assert histories(Z) == numbers
    ordered = left_ordered(Z)
    assert histories(ordered) == sorted((number for number in numbers if number), reverse=True)
    assert np.array_equal(left_ordered(Z[:, rng.permutation(12)]), ordered)
    assert np.array_equal(left_ordered(ordered), ordered)


def test_left_order_of_nothing():
    assert left_ordered(np.zeros((3, 2))).shape == (3, 0)
    assert left_ordered(np.zeros((0, 2))).shape == (0, 0)
    assert histories(np.zeros((3, 0))) == []
    assert class_size(np.zeros((3, 2))) == 1
    with pytest.raises(InvalidDataError, match="Got"):
        left_ordered([[2]])


def test_class_size_counts_the_matrices(rng):
    for _ in range(20):
        Z = rng.integers(2, size=(2, 5))
        full = non_empty(Z)
        members = {full[:, list(order)].tobytes() for order in itertools.permutations(range(full.shape[1]))}
        assert class_size(Z) == len(members)
        assert log_class_size(Z) == pytest.approx(math.log(len(members)), abs=1e-12)


def test_large_class_sizes_stay_exact():
    assert class_size(np.eye(200)) == math.factorial(200)
    assert log_class_size(np.eye(2000)) == pytest.approx(math.lgamma(2001))
