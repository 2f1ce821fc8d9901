"""Masks, text and the missing values of data frames: one rule wherever X is taken."""

import warnings

import numpy as np
import pandas as pd
import pytest

from thali import CollapsedGibbs, InvalidDataError, LatentFeatures, LinearGaussian, PoissonGamma
from thali.data.cell_text import MISSING, Kind, hint, is_missing, kind_of, number
from thali.data.plain_numbers import plain_numbers
from thali.data.row_blocks import RowBlocks, check_batch
from thali.metrics import split_tokens

NAN = float("nan")
HIDDEN = [[False, True], [False, False]]


def floats(X):
    return np.asarray(plain_numbers(X), dtype=float)


# --- the text of a cell ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*sorted(MISSING), "N/A", "NaN", "Null", "NONE", " n/a ", "\u00a0", "#DIV/0!", "-NaN"])
def test_what_is_missing(text):
    assert is_missing(text)
    assert np.isnan(number(text))
    assert kind_of(text) is Kind.MISSING


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-1.5", -1.5), ("+.5", 0.5), ("5.", 5), ("1e5", 1e5), ("1E-3", 1e-3), ("\u22125", -5), (" 7 ", 7),
        ("\u00a07", 7), ("٣", 3), ("True", 1), ("FALSE", 0), ("007", 7), ("1e400", np.inf), ("-Infinity", -np.inf),
    ],
)  # fmt: skip
def test_numbers(text, value):
    assert number(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3,14", "decimal comma"), ("1,234", "thousands"), ("1.234.567", "thousands"), ("1 000", "thousands"),
        ("1_000", "thousands"), ("5 %", "percent"), ("0x1F", "hexadecimal"), ("$5", "currency"), ("<0.1", "bound"),
        ("(5)", "brackets"), ("5*", "footnote"), ("1.5±2", "two numbers"), ("1d5", "with D"), ("\u20135", "minus"),
        ("1.5kg", "unit"), ("5 mg", "unit"), ("1,5;2", "semicolons"),
    ],
)  # fmt: skip
def test_numbers_in_other_forms_are_told_from_text(text, words):
    assert number(text) is None
    assert words in hint(text)
    assert kind_of(text) is Kind.LIKE_NUMBER


@pytest.mark.parametrize(
    "text", ["abc", "g1", "Na", "1_2", "2020-01-01", "12:30", "1a", "10.0.0.1", "yes", "x5", "7-up"]
)
def test_text(text):
    assert number(text) is None
    assert kind_of(text) is Kind.TEXT


# --- arrays and frames ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "X",
    [
        np.ma.array([[1, 2], [3, 4]], mask=HIDDEN),
        np.ma.array([[1.0, np.inf], [3, 4]], mask=HIDDEN),
        np.ma.array(np.array([[1, "x"], [3, 4]], dtype=object), mask=HIDDEN),
        [np.ma.array([1, 2], mask=[0, 1]), np.ma.array([3, 4])],
        [[1, np.ma.masked], [3, 4]],
        [[1, None], [3, 4]],
        [["1", ""], ["3", "4"]],
        np.array([["1", "nan"], ["3", "4"]]),
        np.array([[1, pd.NA], [3, 4]], dtype=object),
        np.array([[1, pd.NaT], [3, 4]], dtype=object),
        pd.DataFrame({"a": [1, 3], "b": [None, 4.0]}),
        pd.DataFrame({"a": [1, 3], "b": [pd.NA, 4]}),
        pd.DataFrame({"a": pd.array([1, 3], dtype="Int64"), "b": pd.array([None, 4], dtype="Int64")}),
        pd.DataFrame({"a": pd.array([1, 3], dtype="Float64"), "b": pd.array([None, 4.0], dtype="Float64")}),
        pd.DataFrame(
            {"a": pd.array([1, 3], dtype="int64[pyarrow]"), "b": pd.array([None, 4], dtype="double[pyarrow]")}
        ),
        pd.DataFrame({"a": ["1", "3"], "b": pd.array([None, "4"], dtype="string")}),
        pd.DataFrame({"a": pd.Categorical([1, 3]), "b": [NAN, 4]}),
    ],
    ids=lambda X: type(X).__name__,
)
def test_missing_without_a_word(X):
    np.testing.assert_array_equal(floats(X), [[1, NAN], [3, 4]])
    found = LatentFeatures()._validated(X, reset=True)
    np.testing.assert_array_equal(found, [[1, NAN], [3, 4]])


@pytest.mark.parametrize(
    "X",
    [
        [["n/a", 1.0], ["2", "-"]],
        np.array([["n/a", "1"], ["2", "-"]]),
        np.array([["n/a", 1], ["2", "-"]], dtype=object),
        pd.DataFrame({"a": ["n/a", "2"], "b": [1, "-"]}),
    ],
    ids=lambda X: type(X).__name__,
)
def test_spellings_are_counted_in_a_warning(X):
    with pytest.warns(UserWarning, match=r"1 cell '-' and 1 cell 'n/a', taken as missing"):
        np.testing.assert_array_equal(floats(X), [[NAN, 1], [2, NAN]])


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([[1, "abc"], [2, 3]], "'abc' in row 0 of column 1"),
        (np.array([["1", "2"], ["1_000", "3"]]), "'1_000' in row 1 of column 0: separators of thousands"),
        (pd.DataFrame({"x": [1.0, 2.0], "y": ["5", "3,5"]}), "'3,5' in row 1 of column 'y': a decimal comma"),
        (pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}), "dates or times in column 'when'"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), "dates or times"),
        (np.ma.array(np.ones((2, 2), dtype=complex), mask=HIDDEN), "complex"),
    ],
)
def test_what_is_no_number_is_refused_with_its_place(X, words):
    with pytest.raises(InvalidDataError, match="Got") as caught:
        LatentFeatures()._validated(X, reset=True)
    assert words in str(caught.value)


def test_plain_numbers_are_left_alone():
    for X in (np.ones((2, 2)), np.ones((2, 2), dtype=np.float32), [[1.0, NAN]], pd.DataFrame({"a": [1.0]}), None, 3):
        assert plain_numbers(X) is X


def test_names_of_a_frame_stay():
    model = LatentFeatures()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model._validated(pd.DataFrame({"b": ["n/a", "2"], "a": [1, 2]}, index=["r", "s"]), reset=True)
    assert list(model.feature_names_in_) == ["b", "a"]


def test_masks_are_missing_wherever_x_is_taken(rng):
    X = np.ma.array(rng.normal(size=(12, 3)).round(2), mask=rng.random((12, 3)) < 0.2)
    plain = X.filled(NAN)
    settings = {"inference": CollapsedGibbs(n_warmup=1, n_draws=2), "n_chains": 1, "random_state": 0, "n_jobs": 1}
    fits = [LatentFeatures(**settings).fit(data) for data in (X, plain)]
    assert fits[0].data_fingerprint_ == fits[1].data_fingerprint_
    for name in ("transform", "presence", "impute", "score_samples", "novelty"):
        np.testing.assert_array_equal(getattr(fits[0], name)(X), getattr(fits[1], name)(plain))
    mask = ~np.ma.getmaskarray(X) & (rng.random(X.shape) < 0.3)
    assert fits[0].heldout_score(X, mask) == fits[1].heldout_score(plain, mask)
    codes = np.ma.array(np.ones((2, fits[0].n_components_)), mask=True)
    if codes.size:
        with pytest.raises(InvalidDataError, match="NaN"):
            fits[0].inverse_transform(codes)


def test_masks_reach_the_parts(rng):
    counts = np.ma.array([[1, 2], [3, 4]], mask=HIDDEN)
    np.testing.assert_array_equal(PoissonGamma().check_data(counts), [[1, NAN], [3, 4]])
    np.testing.assert_array_equal(LinearGaussian().check_data(counts), [[1, NAN], [3, 4]])
    np.testing.assert_array_equal(check_batch(counts), [[1, NAN], [3, 4]])
    np.testing.assert_array_equal(RowBlocks(counts, 1).block(0), [[1, NAN]])
    with pytest.raises(InvalidDataError, match="none missing"):
        split_tokens(counts)


def test_a_masked_memory_map(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    X = np.ma.array(np.load(tmp_path / "x.npy", mmap_mode="r"), mask=[[0, 1], [0, 0], [1, 0]], copy=False)
    blocks = RowBlocks(X, 2)
    np.testing.assert_array_equal(blocks.block(0), [[0, NAN], [2, 3]])
    np.testing.assert_array_equal(blocks.block(1), [[NAN, 5]])


@pytest.mark.parametrize("cell", [(), [], (1.0,), [1.0, 2.0], {}, "x"], ids=repr)
def test_a_cell_that_holds_several_things_is_refused(cell):
    X = np.empty((2, 2), dtype=object)
    X[:] = 1.0
    X[0, 1] = cell
    with pytest.raises(InvalidDataError):
        LatentFeatures().fit(X)
