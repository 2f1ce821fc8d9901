"""The verbs that count and that use a fit: `howmany`, `inspect`, `transform`, `impute`."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from thinned import thinned
from typer.testing import CliRunner

import thali as library
from thali import CollapsedGibbs, LatentFeatures
from thali.cli.main import app
from thali.io import Table, print_table, read_table, write_table

QUICK = ("--chains", 2, "--warmup", 5, "--draws", 10, "--seed", 1)
READ = "read 60 rows x 5 dims; line 1 is the header; column 1 (id) names the rows"
LOADS = ["inspect {fit}", "transform {fit} survey.csv", "impute {fit} survey.csv"]
WRITES = ["transform survey.thali survey.csv -o {out}", "impute survey.thali survey.csv -o {out}"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with survey.csv and its fit: 60 rows with names x 5 dims with names, two cells missing."""
    folder = tmp_path_factory.mktemp("kept")
    rng = np.random.default_rng(0)
    Z = rng.integers(0, 2, (60, 2))
    X = (Z @ np.array([[3.0, 3, 0, 0, 0], [0, 0, 0, 3, 3]]) + rng.standard_normal((60, 5))).round(3)
    X[0, 1] = X[7, 3] = np.nan
    names = tuple(f"r{i}" for i in range(60))
    write_table(Table(X, names, tuple("abcde"), "", "id"), folder / "survey.csv")
    arguments = ["fit", folder / "survey.csv", "-o", folder / "survey.thali", "-q", *QUICK]
    assert CliRunner().invoke(app, list(map(str, arguments))).exit_code == 3
    return folder


@pytest.fixture
def survey(kept: Path, here: Path) -> Path:
    for path in kept.iterdir():
        shutil.copy(path, here)
    return Path("survey.csv")


def refused(result, *words: str, code: int = 1) -> None:
    """One line of talk with these words, after how the data were read if they were; nothing on standard output."""
    assert result.exit_code == code
    assert result.stdout == ""
    talk = [line for line in result.stderr.splitlines() if not line.startswith(("read ", "note: "))]
    assert len(talk) == 1
    assert talk[0].startswith("error: ")
    for word in words:
        assert word in result.stderr


def strict(text: str):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def table(text: str, tmp: Path) -> Table:
    path = tmp / "shown.csv"
    path.write_text(text)
    return read_table(path)


# --- howmany --------------------------------------------------------------------------------------


def test_howmany_gives_the_answer_of_the_library(thali, survey: Path) -> None:
    X = read_table(survey).X
    found = library.how_many(X, inference=CollapsedGibbs(n_warmup=5, n_draws=10), n_chains=2, random_state=1)
    result = thali("howmany", survey, *QUICK, "--json")
    assert result.exit_code == 3
    answer = strict(result.stdout)
    assert answer["k"] == found.k
    assert tuple(answer["interval"]) == found.interval
    assert answer["probabilities"] == {str(k): p for k, p in found.probabilities.items()}
    assert answer["reason"] == found.reason
    assert (answer["file"], answer["seed"], answer["noise_floor"]) == ("survey.csv", 1, 0.0)
    assert answer["converged"] is False
    assert answer["interrupted"] is False
    assert sorted(path.name for path in Path().iterdir()) == ["survey.csv", "survey.thali"]


def test_howmany_in_words(thali, survey: Path) -> None:
    result = thali("howmany", survey, *QUICK, "--noise", "per-dim", "--noise-floor", 0.2, "--offset", "learned")
    assert result.stderr.splitlines() == [READ, "survey.csv  60 rows x 5 dims, real-valued, 0.7 % missing, seed 1"]
    first, second, *bars, reason = result.stdout.splitlines()
    assert first.startswith("features: ")
    assert second.startswith("in use at a time: ")
    assert sum(float(bar.split()[1]) for bar in bars) == pytest.approx(1, abs=0.01)
    assert "at noise floor 0.2" in reason
    assert thali("howmany", survey, *QUICK, "--quiet").stderr == ""


@pytest.mark.parametrize("kind", ["factor-analysis", "ica"])
def test_models_with_weights(thali, survey: Path, kind: str) -> None:
    result = thali("fit", survey, *QUICK, "--observation", kind, "-o", "weights.thali", "--json", "--holdout", 0.1)
    assert result.exit_code == 3, result.stderr
    assert all(0 < share < 1 for share in np.atleast_1d(strict(result.stdout)["noise_floor"]))
    assert thali("transform", "weights.thali", survey).exit_code == 0
    assert thali("impute", "weights.thali", survey).exit_code == 0
    assert "ICA(" in thali("inspect", "weights.thali").stdout or kind != "ica"
    answer = strict(thali("howmany", survey, *QUICK, "--observation", kind, "--noise-floor", 0.1, "--json").stdout)
    assert answer["noise_floor"] == 0.1


def test_howmany_exits_0_when_the_chains_agree(thali, survey: Path, monkeypatch) -> None:
    fit = LatentFeatures.fit

    def agree(self, X, y=None):
        fit(self, X, y).converged_ = True
        return self

    monkeypatch.setattr(LatentFeatures, "fit", agree)
    assert thali("howmany", survey, *QUICK).exit_code == 0


def test_howmany_stopped_before_the_first_draw(thali, survey: Path, monkeypatch) -> None:
    def stop(self, X, y=None):
        raise KeyboardInterrupt("interrupted before the first draw")

    monkeypatch.setattr(LatentFeatures, "fit", stop)
    result = thali("howmany", survey, *QUICK, "-q")
    assert result.exit_code == 130
    assert "interrupted before the first draw" in result.stderr


@pytest.mark.parametrize(
    "options", [["--noise-floor", "1.5"], ["--chains", "0"], ["--noise", "loud"], ["--seed", "-1"]]
)
def test_howmany_wrong_usage(thali, survey: Path, options: list[str]) -> None:
    assert thali("howmany", survey, *options).exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,\n2,\n", "observed cell"),
        ("", "empty"),
        ("a\nx\n", "line 2, column 1 ('a'): expected a number"),
        (None, "no file"),
    ],
)
def test_howmany_bad_data(thali, here: Path, text: str | None, words: str) -> None:
    if text is not None:
        Path("bad.csv").write_text(text)
    refused(thali("howmany", "bad.csv", "-q"), "bad.csv", words)


# --- inspect --------------------------------------------------------------------------------------


def test_inspect_shows_all(thali, survey: Path) -> None:
    result = thali("inspect", "survey.thali")
    assert result.exit_code == 0
    assert result.stderr == ""
    model = library.load("survey.thali")
    for words in (
        f"60 rows x 5 dims, fingerprint {model.data_fingerprint_[:12]}",
        "LinearGaussian() x IBP()",
        "CollapsedGibbs(n_warmup=5, n_draws=10): as asked",
        "2 chains x 10 draws, seed 1",
        model.check(),
        f"features: {model.posterior_.k}",
        f"{model.n_components_} persist",
        "noise floor   0",
        "mass ",
        "noise_var ",
        "free energy",
        "stability",
    ):
        assert words in result.stdout


def test_inspect_json(thali, survey: Path) -> None:
    about = strict(thali("inspect", "survey.thali", "--json").stdout)
    model = library.load("survey.thali")
    assert about["run"] is None
    fit = about["fit"]
    assert (fit["n_rows"], fit["n_dims"], fit["dim_names"]) == (60, 5, list("abcde"))
    assert fit["data_fingerprint"] == model.data_fingerprint_
    assert fit["n_persistent"] == model.n_components_ == len(fit["features"])
    assert fit["n_features"] == model.posterior_.k
    assert fit["k_posterior"] == {str(k): p for k, p in model.k_posterior_.items()}
    assert [chain["n_features"] for chain in fit["chains"]] == model.agreement_.n_features.tolist()
    assert [chain["free_energy"] for chain in fit["chains"]] == pytest.approx(model.agreement_.free_energy)
    assert [chain["reported"] for chain in fit["chains"]].index(True) == model.agreement_.best
    for feature, row in zip(fit["features"], model.components_, strict=True):
        assert 0 < feature["frequency"] <= 1
        assert 0 < feature["stability"] <= 1
        assert feature["largest"][0] == {"dim": "abcde"[np.argmax(np.abs(row))], "value": row[np.argmax(np.abs(row))]}
    assert fit["inference"]["n_draws"] == fit["n_draws"] == fit["n_draws_asked"] == 10
    assert set(fit["hyperparameters"]) == {"mass", "noise_var", "feature_var"}


def test_inspect_names_what_was_asked_for(thali, here: Path, rng: np.random.Generator) -> None:
    np.save("x.npy", rng.standard_normal((20, 2)))
    thali("fit", "x.npy", *QUICK, "--noise", "per-dim", "--noise-floor", 0.2, "--mass", 1.5)
    talk = thali("inspect", "x.thali").stdout
    assert "LinearGaussian(noise_var=PerDim(), noise_floor=0.2) x IBP(mass=1.5)" in talk
    assert "noise floor   0.2" in talk
    about = strict(thali("inspect", "x.thali", "--json").stdout)
    assert about["fit"]["dim_names"] == ["dim_0", "dim_1"]


def test_inspect_a_run_that_was_stopped(thali, survey: Path) -> None:
    thali("fit", survey, *QUICK, "--draws", 10**7, "--max-time", 1, "-o", "long.thali")
    both = thali("inspect", "long.thali")
    assert "10000000" in both.stdout
    assert "long.thali.run: a run that is not finished" in both.stdout
    assert "go on with it: thali resume long.thali" in both.stdout
    Path("long.thali").unlink()
    for name in ("long.thali", "long.thali.run", "long.thali.run/run.thali", "long.thali.run/chain-0.state.thali"):
        about = strict(thali("inspect", name, "--json").stdout)
        assert about["fit"] is None
        assert about["run"]["go_on_with"] == "thali resume long.thali"
        assert about["run"]["data_file"] == str(survey.resolve())
        assert [chain["n_draws"] > 0 for chain in about["run"]["chains"]] == [True, True]
    refused(thali("transform", "long.thali", survey), "thali resume long.thali")
    Path("long.thali.run/chain-1.state.thali").write_text("damaged")
    refused(thali("inspect", "long.thali"), "chain-1.state.thali")
    shutil.copy("survey.thali", "long.thali")
    beside = thali("inspect", "long.thali")
    assert beside.exit_code == 0
    assert "chain-1.state.thali" in beside.stderr
    assert "2 chains x 10 draws" in beside.stdout


def test_inspect_a_run_begun_from_python(thali, survey: Path) -> None:
    X = read_table(survey).X
    settings = {"n_chains": 1, "random_state": 0, "checkpoint": "kept", "max_time": 0.1}
    LatentFeatures(inference=CollapsedGibbs(n_warmup=0, n_draws=10**7), **settings).fit(X)
    assert "thali.resume('kept', X)" in thali("inspect", "kept").stdout


# --- a file that is no fit ------------------------------------------------------------------------


@pytest.mark.parametrize("verb", LOADS)
def test_not_a_fit(thali, survey: Path, verb: str) -> None:
    Path("empty.thali").touch()
    Path("cut.thali").write_bytes(Path("survey.thali").read_bytes()[:1000])
    Path("folder.thali").mkdir()
    before = sorted(Path().iterdir())
    for fit in ("survey.csv", "empty.thali", "cut.thali", "folder.thali", "absent.thali", "x" * 300):
        refused(thali(*verb.format(fit=fit).split()), fit)
    assert sorted(Path().iterdir()) == before
    assert "Traceback" in thali("--debug", *verb.format(fit="cut.thali").split()).stderr


# --- transform ------------------------------------------------------------------------------------


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


# --- impute ---------------------------------------------------------------------------------------


def test_impute_fills_what_is_missing_and_nothing_else(thali, survey: Path, tmp_path: Path) -> None:
    result = thali("impute", "survey.thali", survey)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [READ, "filled 2 cells in 2 dims"]
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


# --- the output -----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", WRITES)
def test_the_output_is_checked_before_any_work(thali, survey: Path, verb: str, monkeypatch) -> None:
    monkeypatch.setattr(library, "load", lambda path: pytest.fail("work was done"))
    Path("taken.csv").write_text("precious")
    Path("folder.csv").mkdir()

    def call(out: str):
        return thali(*verb.format(out=out).split())

    refused(call("taken.csv"), "taken.csv exists", "--overwrite")
    assert Path("taken.csv").read_text() == "precious"
    refused(call("folder.csv"), "is a folder")
    refused(call("nowhere/out.csv"), "no folder nowhere")
    refused(call("out.xlsx"), "'.xlsx'", ".parquet")
    refused(call("out"), "no suffix")
    refused(call(f"nowhere/{'x' * 300}.csv"), "no folder nowhere")
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    refused(call("out.csv"), "no permission")


@pytest.mark.parametrize("verb", WRITES)
def test_overwrite(thali, survey: Path, verb: str) -> None:
    Path("out.csv").write_text("old")
    assert thali(*verb.format(out="out.csv").split(), "--overwrite").exit_code == 0
    assert len(read_table("out.csv").X) == 60


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz", ".parquet"])
def test_a_full_disk_leaves_nothing_behind(thali, survey: Path, verb: str, suffix: str, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    Path(f"out{suffix}").write_text("old")
    before = sorted(Path().iterdir())
    monkeypatch.setattr(os, "fsync", full)
    refused(thali(*verb.format(out=f"out{suffix}").split(), "--overwrite"), f"out{suffix}", "No space left")
    assert sorted(Path().iterdir()) == before
    assert Path(f"out{suffix}").read_text() == "old"


@pytest.mark.parametrize(
    "verb", thinned(["transform survey.thali survey.csv", "inspect survey.thali"], "inspect survey.thali")
)
def test_a_reader_that_leaves_early(survey: Path, verb: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "thali.cli.main", *verb.split()]
    result = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (result.returncode, result.stderr) == (1, f"{READ}\n" if verb.startswith("transform") else "")


def test_a_pipe_carries_names_in_any_script(survey: Path) -> None:
    survey.write_text(survey.read_text().replace("r3,", "Grüße 日本,"))
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "thali.cli.main", "transform", "survey.thali", "survey.csv"]
    result = subprocess.run(command, capture_output=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert "Grüße 日本," in result.stdout.decode()


# --- the writer -----------------------------------------------------------------------------------


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
