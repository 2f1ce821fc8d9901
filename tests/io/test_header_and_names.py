"""What is taken as header, as names of rows and as missing is said; where it cannot be told, the file is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thali.errors import InvalidDataError
from thali.io import Table, read_table, write_table

NAN = float("nan")


def table(folder: Path, text: str) -> Table:
    path = folder / "data.csv"
    path.write_bytes(text.encode())
    return read_table(path)


@pytest.mark.parametrize(
    ("text", "X", "row_names", "dim_names", "said"),
    [
        (
            "1.71,n/a,31\n1.8,7,3\n",
            [[1.71, NAN, 31], [1.8, 7, 3]],
            None,
            None,
            "no header; no row names; 1 cell 'n/a' is",
        ),
        (
            "h,w\n1.7,7\nn/a,6\n1.6,5\n",
            [[1.7, 7], [NAN, 6], [1.6, 5]],
            None,
            ("h", "w"),
            "line 1 is the header; no row",
        ),
        (
            "a,b\n-,.\n1,NULL\n",
            [[NAN, NAN], [1, NAN]],
            None,
            ("a", "b"),
            "1 cell '-', 1 cell '.' and 1 cell 'NULL' are",
        ),
        ("id,a\n1001,5\nn/a,6\n", [[1001, 5], [NAN, 6]], None, ("id", "a"), "no row names; 1 cell 'n/a' is missing"),
        ("g1,1,2\ng2,3,4\n", [[1, 2], [3, 4]], ("g1", "g2"), None, "no header; column 1 names the rows"),
        ("al,1.5,2\nbob,3,4\n", [[1.5, 2], [3, 4]], ("al", "bob"), None, "no header; column 1 names the rows"),
        ("id,1,2\nx,3,4\n", [[3, 4]], ("x",), ("1", "2"), "line 1 is the header; column 1 (id) names the rows"),
        ("land,1990,1991\nX,3,4\n", [[3, 4]], ("X",), ("1990", "1991"), "line 1 is the header; column 1 (land)"),
        ("007,1\n008,2\n110,3\n", [[1], [2], [3]], ("007", "008", "110"), None, "column 1 names the rows"),
        ("on,v\n2020-01-01,1\n2020-01-02,2\n", [[1], [2]], ("2020-01-01", "2020-01-02"), ("v",), "column 1 (on) names"),
        (",a\n7,1\n3,2\n", [[1], [2]], ("7", "3"), ("a",), "column 1 names the rows"),
        ("K,Na,Cl\n1,2,3\n", [[1, 2, 3]], None, ("K", "Na", "Cl"), "line 1 is the header"),
        ("a,,c\n1,2,3\n", [[1, 2, 3]], None, ("a", "column 2", "c"), "line 1 is the header"),
        ("a,b,\n1,2,\n", [[1, 2]], None, ("a", "b"), "blank columns at the end are left out"),
        ("\n\na,b\n1,2\n", [[1, 2]], None, ("a", "b"), "line 3 is the header"),
        ("a,b\r1,2\r", [[1, 2]], None, ("a", "b"), "line 1 is the header"),
    ],
)
def test_what_is_read_and_said(tmp_path, text, X, row_names, dim_names, said):
    found = table(tmp_path, text)
    np.testing.assert_array_equal(found.X, X)
    assert (found.row_names, found.dim_names) == (row_names, dim_names)
    assert said in "; ".join(found.reading)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("h,w\n1.7,7\nabc,6\n1.6,5\n", "line 3, column 1 ('h'): expected a number, found 'abc'"),
        ('h,w\n1.7,7\n"12,5",6\n1.6,5\n', "line 3, column 1 ('h'): expected a number, found '12,5', a decimal comma"),
        ('"12,5",7\n"13,5",6\n', "line 1, column 1: expected a number, found '12,5'"),
        ("1,abc,3\n4,5,6\n", "line 1, column 2: expected a number, found 'abc'"),
        ("g1,abc,3\ng2,4,5\n", "line 1, column 2: expected a number, found 'abc'"),
        ("al,abc,\nbob,4,5\n", "line 1, column 2: expected a number"),
        ("abc,2,3\n4,5,6\n", "line 1, column 1: expected a number"),
        ("a,1,2,3\nb,4,5,6\n", "line 1, column 1: cannot tell whether 'a,1,2,3' is a header or a row"),
        ("1.5,2\nx,3\ny,4\n", "line 1, column 1: cannot tell"),
        ("a,b\ncm,kg\n1,2\n3,4\n", "line 2, column 2 ('b'): expected a number, found 'kg'"),
        ("a\ncm\n1\n2\n", "line 2, column 1 ('a'): expected a number, found 'cm'"),
        ("a,b,a\n1,2,3\n", "line 1, column 3 ('a'): the name is that of column 1"),
        ("a\n1\n\n3\n", "line 3, column 1: the line is blank"),
        ("a,b\n# 1,2\n3,4\n5,6\n", "line 2, column 1 ('a'): expected a number, found '# 1'"),
        ("# made by\na,b\n1,2\n", "line 2: expected 1 cell as in line 1, found 2 (too much from column 2 on)"),
        ("3,14;2,5\n1,5;3,5\n", "line 2, column 2: expected a number, found '5;3', semicolons"),
        ("a,b\n1,-inf\n", "line 2, column 2 ('b'): an infinite"),
        ('a,b\n"1\n",x\n', "line 2, column 2 ('b')"),
    ],
)
def test_what_is_refused_and_where(tmp_path, text, where):
    with pytest.raises(InvalidDataError) as caught:
        table(tmp_path, text)
    assert where in str(caught.value)


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        ("id,v\n1,1.5\n2,2.5\n3,2\n", "column 1 (id) looks like row numbers; it is used as data"),
        ("id,v\n71,1.5\n32,2.5\n", "column 1 (id) looks like row numbers"),
        ("0,1.5\n1,2.5\n2,2\n", "column 1 looks like row numbers"),
        (",v\n0.5,1\n0.7,2\n", "column 1 has no name; it is used as data"),
        ("1999,2000\n5.5,6\n", "the first line (1999, 2000) is taken as a header of years"),
        ("0,1,2\n.5,.6,.7\n", "the first line (0, 1, 2) is taken as a header that counts the columns"),
        ("1,2,3\n4,5,6\n", "the first line (1, 2, 3) is read as a row; if it is a header"),
        ("a,b\n1,-999\n2,3\n3,4\n", "column 'b' holds -999 in a cell"),
    ],
)
def test_what_may_have_been_meant_otherwise_is_said(tmp_path, text, doubt):
    assert any(doubt in said for said in table(tmp_path, text).doubts)


def test_an_ordinary_table_raises_no_doubt(tmp_path):
    assert table(tmp_path, "gene,a,b\ng1,1.5,2\ng2,0,7\n").doubts == ()
    assert table(tmp_path, "1.5,2\n3,4.5\n").doubts == ()


# --- Parquet --------------------------------------------------------------------------------------


def test_parquet_by_the_same_rules(tmp_path):
    frame = pd.DataFrame({"a": ["1.5", "n/a", "3"], "b": ["-", "2", None]}, index=[5, 3, 4])
    frame.to_parquet(tmp_path / "x.parquet")
    found = read_table(tmp_path / "x.parquet")
    np.testing.assert_array_equal(found.X, [[1.5, NAN], [NAN, 2], [3, NAN]])
    assert found.row_names == ("5", "3", "4")
    assert found.reading == ("the index names the rows", "1 cell '-' and 1 cell 'n/a' are missing")


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pd.DataFrame({"a": [1.0, 2.0]}, index=[0.5, 0.7]), "the index is left out"),
        (pd.DataFrame({"a": [1.0, 2.0]}, index=pd.Index(["x", "x"], name="k")), "the index (k) is left out"),
        (pd.DataFrame({"who": ["ann", "bob"], "a": [1.0, 2.0]}), "column 1 (who) names the rows"),
    ],
)
def test_what_is_done_with_an_index_is_said(tmp_path, frame, said):
    frame.to_parquet(tmp_path / "x.parquet")
    assert said in "; ".join(read_table(tmp_path / "x.parquet").reading)


def test_text_in_a_parquet_column_of_numbers_is_refused_with_its_place(tmp_path):
    pd.DataFrame({"a": ["1.5", "abc", "3"], "b": [1, 2, 3]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(InvalidDataError, match=r"row 2, column 1 \('a'\): expected a number, found 'abc'"):
        read_table(tmp_path / "x.parquet")


# --- what is written reads back -------------------------------------------------------------------

WORDS = st.sampled_from(
    ["a", "b c", "x,y", "1990", "1991", "0", "1", "2", "n/a", "NA", "007", "1.5", "2,5", "g1", 'q"', "é"]
)
CELLS = st.sampled_from([NAN, 0.0, 1.0, 2.0, 1990.0, 1991.0, 0.1, -1e-300, 1 / 3, 1e17])


@st.composite
def tables(draw):
    n_rows, n_dims = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    X = np.array(draw(st.lists(CELLS, min_size=n_rows * n_dims, max_size=n_rows * n_dims))).reshape(n_rows, n_dims)
    names = draw(st.none() | st.lists(WORDS, min_size=n_rows, max_size=n_rows, unique=True))
    dims = draw(st.none() | st.lists(WORDS, min_size=n_dims, max_size=n_dims, unique=True))
    label = draw(st.sampled_from(["", "id", "g9", "1990"])) if names else ""
    return Table(X, names and tuple(names), dims and tuple(dims), "", label)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(written=tables(), suffix=st.sampled_from([".csv", ".tsv", ".npz"]))
def test_what_is_written_reads_back(tmp_path_factory, written, suffix):
    path = tmp_path_factory.mktemp("written") / f"x{suffix}"
    write_table(written, path)
    read = read_table(path)
    np.testing.assert_array_equal(read.X, written.X)
    assert (read.row_names is None) == (written.row_names is None)
    if written.row_names:  # with a word before those that are no names
        assert all(found.endswith(name) for found, name in zip(read.row_names, written.row_names, strict=True))
    if written.dim_names:
        assert all(found.endswith(name) for found, name in zip(read.dim_names, written.dim_names, strict=True))
    elif not written.row_names:
        assert read.dim_names is None
