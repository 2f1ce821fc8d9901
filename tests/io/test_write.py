"""Tables that are written: text reads back to the same numbers, and what a format cannot hold is refused."""

import io
from pathlib import Path

import numpy as np
import pytest

import thali as library
from thali.io import Table, print_table, read_table, write_table


def test_text_reads_back_to_the_same_numbers(tmp_path: Path) -> None:
    X = np.array([[0.1, -1e-300, np.nan], [1 / 3, 1e17, 3.0]])
    odd = Table(X, ('a "quoted", name', "b"), ("x,y", "z\n", "w"), "", "id")
    write_table(odd, tmp_path / "odd.csv")
    read = read_table(tmp_path / "odd.csv")
    assert np.array_equal(read.X, X, equal_nan=True)
    assert read.row_names == odd.row_names
    stream = io.StringIO()
    print_table(Table(np.array([[3.0], [np.nan]]), None, None, ""), stream)
    assert stream.getvalue() == '3\n""\n'


def test_parquet_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(library.InvalidDataError, match="same name"):
        write_table(Table(np.ones((2, 2)), None, ("a", "a"), ""), tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []
