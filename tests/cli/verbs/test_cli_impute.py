"""`thali impute`."""

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
from answers import QUICK, READ, refused, table

import thali as library
from thali.io import Table, read_table, write_table


def test_impute_fills_what_is_missing_and_nothing_else(thali, survey: Path, tmp_path: Path) -> None:
    result = thali("impute", "survey.thali", survey)
    assert result.exit_code == 0
    said = result.stderr.replace("compiling kernels (once) ...\n", "")
    assert said.splitlines() == [READ, "filled 2 cells in 2 dims"]
    model = library.load("survey.thali")
    X = pd.DataFrame(read_table(survey).X, columns=list("abcde"))
    shown = table(result.stdout, tmp_path)
    assert np.array_equal(shown.X, model.impute(X))
    before, after = (list(csv.reader(io.StringIO(text))) for text in (survey.read_text(), result.stdout))
    assert before[0] == after[0]
    changed = [(i, j) for i, row in enumerate(before) for j, cell in enumerate(row) if cell != after[i][j]]
    assert changed == [(1, 2), (8, 4)]


def test_impute_with_an_interval(thali, survey: Path, tmp_path: Path) -> None:
    result = thali("impute", "survey.thali", survey, "--interval", 0.8)
    shown = table(result.stdout, tmp_path)
    assert shown.dim_names == (*"abcde", "b_lower", "b_upper", "d_lower", "d_upper")
    X = pd.DataFrame(read_table(survey).X, columns=list("abcde"))
    filled, lower, upper = library.load("survey.thali").impute(X, interval=0.8)
    assert np.array_equal(shown.X[:, :5], filled)
    missing = np.isnan(X.to_numpy())
    for place, dim in enumerate((1, 3)):
        for end, values in enumerate((lower, upper)):
            expected = np.where(missing[:, dim], values[:, dim], np.nan)
            assert np.array_equal(shown.X[:, 5 + 2 * place + end], expected, equal_nan=True)
    assert thali("impute", "survey.thali", survey, "--interval", 1.0).exit_code == 2


def test_impute_keeps_a_file_without_header_without_one(thali, survey: Path, tmp_path: Path) -> None:
    Path("plain.csv").write_text("1,,3,4,5\n1,2,3,4,5\n")
    lines = thali("impute", "survey.thali", "plain.csv").stdout.splitlines()
    assert lines[1] == "1,2,3,4,5"
    assert len(lines) == 2
    header = thali("impute", "survey.thali", "plain.csv", "--interval", 0.5).stdout.splitlines()[0]
    assert header == "dim_0,dim_1,dim_2,dim_3,dim_4,dim_1_lower,dim_1_upper"


def test_a_column_that_the_interval_would_add(thali, here: Path, rng: np.random.Generator) -> None:
    X = rng.standard_normal((10, 2))
    X[0, 0] = np.nan
    write_table(Table(X, None, ("a", "a_lower"), ""), "x.csv")
    thali("fit", "x.csv", *QUICK)
    refused(thali("impute", "x.thali", "x.csv", "--interval", 0.5), "'a_lower' already")
