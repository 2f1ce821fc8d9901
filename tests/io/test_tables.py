"""Reading tables: what is in the file comes back, and what is wrong with it is said."""

import builtins
import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from thali.errors import InvalidDataError
from thali.io import read_table

NAN = float("nan")
JUNK = bytes(range(256)) * 4
MATRICES = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(allow_infinity=False) | st.just(NAN),
)


def write(folder: Path, text: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path: Path) -> str:
    """The message with which a file is refused."""
    with pytest.raises(InvalidDataError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


# --- text: what is read -----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=80, derandomize=True)
@given(
    X=MATRICES,
    kind=st.sampled_from([(".csv", ","), (".tsv", "\t"), (".txt", "\t"), (".csv.gz", ","), (".tsv.gz", "\t")]),
    header=st.booleans(),
    names=st.booleans(),
    missing=st.sampled_from(["", "NA", "NaN", "nan", "null", "?"]),
)
def test_round_trip(tmp_path_factory, X, kind, header, names, missing):
    suffix, delimiter = kind
    n_rows, n_dims = X.shape
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter)
    dim_names = tuple(f"dim {j}" for j in range(n_dims))
    row_names = tuple(f"row {i}" for i in range(n_rows))
    if header or names:
        writer.writerow((["id"] if names else []) + list(dim_names))
    for row_name, row in zip(row_names, X, strict=True):
        cells = [missing if np.isnan(value) else repr(float(value)) for value in row]
        writer.writerow(([row_name] if names else []) + cells)
    content = text.getvalue().encode()
    path = tmp_path_factory.mktemp("round") / f"data{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)

    table = read_table(path)
    np.testing.assert_array_equal(table.X, X)
    assert table.X.dtype == np.float64
    assert table.row_names == (row_names if names else None)
    assert table.dim_names == (dim_names if header or names else None)
    assert table.source == str(path)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(X=MATRICES, index=st.booleans())
def test_round_trip_of_pandas_exports(tmp_path_factory, X, index):
    path = tmp_path_factory.mktemp("pandas") / "data.csv"
    pd.DataFrame(X).add_prefix("d").to_csv(path, index=index)
    table = read_table(path)
    np.testing.assert_array_equal(table.X, X)
    assert table.dim_names == tuple(f"d{j}" for j in range(X.shape[1]))
    assert table.row_names == (tuple(str(i) for i in range(len(X))) if index else None)


@pytest.mark.parametrize(
    ("text", "X", "row_names", "dim_names"),
    [
        ("1,2\n3,4\n", [[1, 2], [3, 4]], None, None),
        ("1,NA\n3,?\n", [[1, NAN], [3, NAN]], None, None),
        ("a,b\n 1 , null\nNaN,4", [[1, NAN], [NAN, 4]], None, ("a", "b")),
        ("on,n\nTrue,1\nfalse,2\n,3\n", [[1, 1], [0, 2], [NAN, 3]], None, ("on", "n")),
        ("1,True\n2,False\n", [[1, 1], [2, 0]], None, None),
        ("id,a,b\nx,1,2\nNA,3,4\n", [[1, 2], [3, 4]], ("x", "NA"), ("a", "b")),
        (",0,1\n0,5,6\n1,7,8\n", [[5, 6], [7, 8]], ("0", "1"), ("0", "1")),
        (",a\n1,5\n1,6\n", [[1, 5], [1, 6]], None, ("column 1", "a")),
        ("a\n1\n2\n", [[1], [2]], None, ("a",)),
        ('"a, b",c\r\n"1",2\r\n', [[1, 2]], None, ("a, b", "c")),
        ("\n  \na,b\n\n1,2\n\n", [[1, 2]], None, ("a", "b")),
        ("\ufeffa,b\n1,2\n", [[1, 2]], None, ("a", "b")),
        ("a,b\n,\n1,2\n", [[NAN, NAN], [1, 2]], None, ("a", "b")),
        ("id,a\n1_2,5\n1_3,6\n", [[5], [6]], ("1_2", "1_3"), ("a",)),
    ],
)
def test_csv_conventions(tmp_path, text, X, row_names, dim_names):
    table = read_table(write(tmp_path, text))
    np.testing.assert_array_equal(table.X, np.array(X, dtype=float))
    assert table.row_names == row_names
    assert table.dim_names == dim_names


def test_a_line_of_tabs_is_a_row_of_missing_cells(tmp_path):
    table = read_table(write(tmp_path, "1\t2\n\t\n3\t4\n", "data.TSV"))
    np.testing.assert_array_equal(table.X, [[1, 2], [NAN, NAN], [3, 4]])


# --- text: what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["is empty"]),
        ("\n \n", ["no lines with text"]),
        ("a,b\n", ["header line but no rows"]),
        ("a,b\n1,2\n3\n", ["line 3", "expected 2 cells", "found 1", "column 2"]),
        ("a,b\n1,2,3\n", ["line 2", "expected 2 cells", "found 3", "column 3"]),
        ("a,town\n1,Rome\n", ["line 2, column 2 ('town')", "'Rome'", "0/1 column"]),
        ("1,2\n3,Rome\n", ["line 2, column 2:", "'Rome'"]),
        ("town,b\nRome,1\nRome,2\n", ["line 3, column 1 ('town')", "'Rome'", "that of line 2"]),
        ("town,b\nRome,1\n,2\nOslo,3\n", ["line 3, column 1 ('town')", "blank"]),
        ("a,b\n1,1_000\n", ["line 2, column 2 ('b')", "'1_000'", "thousands"]),
        ("a;b\n1;2\n3;4\n", ["no columns of numbers", "semicolons"]),
        ("name\nx\ny\n", ["line 2, column 1 ('name')", "'x'"]),
        ("a,b\n1,inf\n", ["infinite", "line 2, column 2 ('b')"]),
        ("1,1\n-1e999,2\n", ["infinite", "line 2, column 1:"]),
        ('a,b\n1,"2\n', ["line", "quotes"]),
        ("a,b\n1,\0\n", ["NUL byte"]),
        (JUNK, ["not UTF-8 text"]),
        ("a,b\n1,2\n".encode("utf-16"), ["not UTF-8 text", "Save it as UTF-8"]),
    ],
)
def test_bad_csv_is_refused_with_the_reason(tmp_path, text, words):
    message = refusal(write(tmp_path, text))
    for word in words:
        assert word in message


@pytest.mark.parametrize("content", [JUNK, gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-12]], ids=["junk", "cut off"])
def test_broken_gzip_is_refused(tmp_path, content):
    assert "gzip" in refusal(write(tmp_path, content, "data.csv.gz"))


def test_a_long_example_is_cut_short(tmp_path):
    assert len(refusal(write(tmp_path, "a,b\n1," + "x" * 5000))) < 600


# --- NumPy ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.float64, ">f4"])
def test_npy_becomes_float64(tmp_path, dtype):
    X = np.asfortranarray(np.array([[0, 1, 1], [1, 0, 1]], dtype=dtype))
    np.save(tmp_path / "data.npy", X)
    table = read_table(str(tmp_path / "data.npy"))
    np.testing.assert_array_equal(table.X, X.astype(float))
    assert table.X.dtype == np.float64
    assert table.row_names is None
    assert table.dim_names is None


@pytest.mark.parametrize(
    "arrays_in_file",
    [
        {"anything": np.ones((2, 3))},
        {"X": np.ones((2, 3)), "other": np.zeros((4, 4))},
        {"data": np.ones((2, 3)), "labels": np.zeros(2), "names": np.array(["a", "b"])},
        {"data": np.ones((2, 3)), "objects": np.array([None, {}], dtype=object)},
    ],
)
def test_npz_gives_the_matrix(tmp_path, arrays_in_file):
    np.savez(tmp_path / "data.npz", **arrays_in_file)
    np.testing.assert_array_equal(read_table(tmp_path / "data.npz").X, np.ones((2, 3)))


@pytest.mark.parametrize(
    ("arrays_in_file", "words"),
    [
        ({"a": np.ones((2, 2)), "b": np.ones((3, 2))}, ["a (float64, shape (2, 2))", "b (", "numpy.savez"]),
        ({"a": np.ones(3), "o": np.array([None])}, ["a (float64, shape (3,))", "o (Python objects)"]),
        ({"X": np.array([[None, 1]])}, ["pickle"]),
        ({"X": np.ones(3)}, ["shape (3,)", "reshape(-1, 1)"]),
        ({}, ["no arrays"]),
    ],
)
def test_npz_without_one_matrix_is_refused(tmp_path, arrays_in_file, words):
    np.savez(tmp_path / "data.npz", **arrays_in_file)
    message = refusal(tmp_path / "data.npz")
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.array([[1, "a"]], dtype=object), "pickle"),
        (np.ones((2, 2, 2)), "shape (2, 2, 2)"),
        (np.ones((2, 2), dtype=complex), "complex128"),
        (np.array([["a", "b"]]), "<U1"),
        (np.ones((0, 2)), "no rows"),
        (np.ones((2, 0)), "no columns"),
        (np.array([[1, np.inf]]), "infinite"),
    ],
)
def test_bad_npy_is_refused(tmp_path, X, words):
    np.save(tmp_path / "data.npy", X)
    assert words in refusal(tmp_path / "data.npy")


@pytest.mark.parametrize("name", ["data.npy", "data.npz"])
@pytest.mark.parametrize("content", [JUNK, b"\x93NUMPY", b"PK\x03\x04junk", b"\x80\x04N."])
def test_damaged_numpy_files_are_refused(tmp_path, name, content):
    assert "NumPy file" in refusal(write(tmp_path, content, name))


# --- Parquet ----------------------------------------------------------------------------------------------


def test_parquet_columns_become_float64(tmp_path):
    frame = pd.DataFrame(
        {
            "who": ["ann", "bob", "cy"],
            "real": [1.5, NAN, 2.0],
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "flag": pd.array([True, None, False], dtype="boolean"),
            "yes": [True, False, True],
            "nothing": [None, None, None],
        }
    )
    frame.to_parquet(tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet")
    expected = [[1.5, 1, 1, 1, NAN], [NAN, NAN, NAN, 0, NAN], [2, 3, 0, 1, NAN]]
    np.testing.assert_array_equal(table.X, expected)
    assert table.row_names == ("ann", "bob", "cy")
    assert table.dim_names == ("real", "whole", "flag", "yes", "nothing")


def test_parquet_text_index_names_the_rows(tmp_path):
    pd.DataFrame({"a": [1, 2]}, index=["r1", "r2"]).to_parquet(tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet")
    assert table.row_names == ("r1", "r2")
    np.testing.assert_array_equal(table.X, [[1], [2]])


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pd.DataFrame({"a": [1, 2], "town": ["Rome", None]}), ["row 1, column 2 ('town')", "'Rome'"]),
        (pd.DataFrame({"town": ["Rome", "Rome"], "a": [1, 2]}), ["row 2, column 1 ('town')", "'Rome'"]),
        (pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}), ["row 1, column 1 ('when')", "2020"]),
        (pd.DataFrame({"town": ["Rome", "Oslo"]}), ["no columns of numbers"]),
        (pd.DataFrame({"a": np.empty(0)}), ["no rows"]),
        (pd.DataFrame({"a": [1, np.inf]}), ["infinite", "row 2, column 1 ('a')"]),
    ],
)
def test_bad_parquet_is_refused(tmp_path, frame, words):
    frame.to_parquet(tmp_path / "data.parquet")
    message = refusal(tmp_path / "data.parquet")
    for word in words:
        assert word in message


def test_parquet_junk_is_refused(tmp_path):
    assert "not a Parquet file" in refusal(write(tmp_path, JUNK, "data.parquet"))


def test_parquet_without_pyarrow_names_the_remedy(tmp_path, monkeypatch):
    real_import = builtins.__import__

    def no_pyarrow(name, *args, **kwargs):
        if name == "pyarrow":
            raise ImportError("no pyarrow", name=name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_pyarrow)
    assert 'pip install "thali[data]"' in refusal(write(tmp_path, JUNK, "data.parquet"))


# --- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".npy", ".npz", ".parquet", ".csv.gz"])
def test_every_format_answers_alike_to_what_cannot_be_opened(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"data{suffix}"
    assert "there is no file" in refusal(path)
    path.touch()
    assert "is empty" in refusal(path)
    path.unlink()
    path.mkdir()
    assert "is a directory" in refusal(path)

    def forbidden(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)
    assert "no permission" in refusal(tmp_path / f"secret{suffix}")


@pytest.mark.parametrize("name", ["data.xlsx", "data", "data.npy.gz", "data.gz"])
def test_unknown_formats_are_refused(tmp_path, name):
    message = refusal(write(tmp_path, "1,2\n", name))
    assert "not a format thali reads" in message
    assert ".parquet" in message
