"""`thali transform`, and data for it and for `impute`."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from answers import READ, refused, table

import thali as library
from thali import CollapsedGibbs, LatentFeatures
from thali.io import read_table


def test_transform_writes_the_codes_of_the_library(thali, survey: Path, tmp_path: Path) -> None:
    model = library.load("survey.thali")
    X = pd.DataFrame(read_table(survey).X, columns=list("abcde"))
    result = thali("transform", "survey.thali", survey)
    assert result.exit_code == 0
    assert result.stderr.replace("compiling kernels (once) ...\n", "") == f"{READ}\n"
    header = ",".join(["id", *(f"feature_{k}" for k in range(model.n_components_))])
    assert result.stdout.splitlines()[0] == header
    shown = table(result.stdout, tmp_path)
    assert np.array_equal(shown.X, model.transform(X))
    assert shown.row_names == tuple(f"r{i}" for i in range(60))
    more = table(thali("transform", "survey.thali", survey, "--presence", "--novelty").stdout, tmp_path)
    assert more.dim_names is not None
    assert more.dim_names[-1] == "novelty"
    assert np.array_equal(more.X, np.column_stack([model.presence(X), model.novelty(X)]))


@pytest.mark.parametrize("verb", ["transform", "impute"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".npy", ".npz", ".parquet"])
def test_every_format_holds_the_same(thali, survey: Path, tmp_path: Path, verb: str, suffix: str) -> None:
    shown = table(thali(verb, "survey.thali", survey).stdout, tmp_path)
    result = thali(verb, "survey.thali", survey, "-o", f"out{suffix}")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert f"wrote out{suffix} (60 rows x " in result.stderr
    written = read_table(f"out{suffix}")
    assert np.array_equal(written.X, shown.X)
    if suffix not in (".npy", ".npz"):
        assert written[1:3] == shown[1:3]
        assert written.index_name == "id"
    if suffix == ".npz":
        with np.load("out.npz") as members:
            assert tuple(members["dim_names"]) == shown.dim_names
            assert tuple(members["row_names"]) == shown.row_names


def test_dims_are_matched_by_name(thali, survey: Path, tmp_path: Path) -> None:
    turned = pd.read_csv(survey)[["id", "e", "c", "a", "b", "d"]]
    turned.to_csv("turned.csv", index=False)
    straight = thali("transform", "survey.thali", survey).stdout
    assert thali("transform", "survey.thali", "turned.csv").stdout == straight
    filled = table(thali("impute", "survey.thali", "turned.csv").stdout, tmp_path)
    assert filled.dim_names == tuple("ecabd")
    straight = table(thali("impute", "survey.thali", survey).stdout, tmp_path)
    assert np.array_equal(filled.X, straight.X[:, [4, 2, 0, 1, 3]])


def test_dims_without_names_are_matched_by_place(thali, survey: Path, tmp_path: Path) -> None:
    np.save("plain.npy", read_table(survey).X)
    named, plain = (table(thali("transform", "survey.thali", data).stdout, tmp_path) for data in (survey, "plain.npy"))
    assert np.array_equal(named.X, plain.X)


@pytest.mark.parametrize("verb", ["transform", "impute"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,c,d\n1,2,3,4\n", "lacks 'e'"),
        ("a,b,c,d,e,f\n1,2,3,4,5,6\n", "has besides 'f'"),
        ("a,b,c,d,f\n1,2,3,4,5\n", "lacks 'e'; it has besides 'f'"),
        ("a,b,c,d,e,e\n1,2,3,4,5,6\n", "line 1, column 6 ('e')"),
        ("1,2,3,4\n", "4 dims"),
        ("1,2,3,4,5,6\n", "6 dims"),
        ("a,b,c,d,e\n", "no rows"),
        ("", "empty"),
        ("a,b,c,d,e\n1,2,3,4,x\n", "line 2, column 5 ('e'): expected a number"),
        ("a,b,c,d,e\n1,2,3,4,inf\n", "infinite"),
        (None, "no file"),
    ],
)
def test_wrong_data(thali, survey: Path, verb: str, text: str | None, words: str) -> None:
    if text is not None:
        Path("other.csv").write_text(text)
    refused(thali(verb, "survey.thali", "other.csv", "-o", "out.csv"), "other.csv", words)
    assert not Path("out.csv").exists()


def test_a_wholly_missing_row_and_a_single_row(thali, survey: Path, tmp_path: Path) -> None:
    Path("rows.csv").write_text("a,b,c,d,e\n,,,,\n1,2,3,4,5\n")
    codes = table(thali("transform", "survey.thali", "rows.csv", "--novelty").stdout, tmp_path).X
    assert codes.shape[0] == 2
    assert ((codes >= 0) & (codes <= 1)).all()
    filled = table(thali("impute", "survey.thali", "rows.csv").stdout, tmp_path).X
    assert np.isfinite(filled).all()
    Path("rows.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n")
    assert np.array_equal(
        table(thali("transform", "survey.thali", "rows.csv", "--novelty").stdout, tmp_path).X[0], codes[1]
    )


def test_a_fit_without_features(thali, here: Path, rng: np.random.Generator) -> None:
    X = rng.standard_normal((20, 2))
    settings = {"n_chains": 1, "random_state": 0, "inference": CollapsedGibbs(n_warmup=5, n_draws=10)}
    observation = library.LinearGaussian(noise_var=4.0, feature_var=25.0)
    model = LatentFeatures(observation, library.IBP(mass=1e-6), **settings).fit(X)
    assert model.n_components_ == 0
    model.save("none.thali")
    np.save("x.npy", X)
    result = thali("transform", "none.thali", "x.npy", "-o", "codes.npy")
    assert result.exit_code == 0
    assert "no features" in result.stderr
    assert np.load("codes.npy").shape == (20, 0)
    assert thali("transform", "none.thali", "x.npy").stdout.count("\n") == 21
    assert "features: 0" in thali("inspect", "none.thali").stdout
