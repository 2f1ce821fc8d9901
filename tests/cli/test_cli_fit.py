"""`thali fit`."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm, poisson
from thinned import thinned

import thali as library
from thali import CollapsedGibbs
from thali.errors import InvalidFileError
from thali.storage import archive as files

QUICK = ("--chains", 2, "--warmup", 5, "--draws", 10)


def test_it_says_what_it_does_on_stderr_and_saves(thali, survey: Path) -> None:
    result = thali("fit", survey, *QUICK, "--seed", 7)
    assert result.exit_code == 3
    assert result.stdout == ""
    read, first, second, third = result.stderr.splitlines()[:4]
    assert read == "read 60 rows x 5 dims; line 1 is the header; no row names"
    assert first == "survey.csv  60 rows x 5 dims, real-valued, 0.7 % missing  -> linear-Gaussian"
    assert second.startswith("inference: CollapsedGibbs")
    assert third == "2 chains of 5 warm-up sweeps and 10 draws, seed 7"
    assert "not converged" in result.stderr
    assert "features by chain: " in result.stderr
    assert re.search(r"features: \d+  \(\d+-\d+ in use, 90 %; \d+ persists?\)   noise var ", result.stderr)
    assert re.search(r"saved survey\.thali \(\d+ kB\)", result.stderr)
    fitted = library.load("survey.thali")
    assert fitted.posterior_.n_draws == 10
    assert list(fitted.feature_names_in_) == list("abcde")


def test_a_converged_run_exits_0(thali, here: Path, rng: np.random.Generator) -> None:
    np.save("noise.npy", rng.standard_normal((12, 2)))
    result = thali("fit", "noise.npy", "--mass", 0.1, "--warmup", 100, "--draws", 600, "--seed", 1)
    assert result.exit_code == 0, result.stderr
    assert "\nconverged" in result.stderr
    assert Path("noise.thali").exists()


def test_json_is_complete(thali, survey: Path) -> None:
    result = thali("fit", survey, *QUICK, "--seed", 7, "--noise-floor", 0.2, "--json", "-o", "out.thali")
    summary = json.loads(result.stdout)
    assert summary["file"] == str(survey)
    assert (summary["n_rows"], summary["n_dims"]) == (60, 5)
    assert summary["missing_share"] == pytest.approx(2 / 300)
    assert sum(summary["k_posterior"].values()) == pytest.approx(1)
    low, high = summary["n_features_interval_90"]
    assert low <= summary["n_features"] <= high
    assert summary["n_persistent"] == library.load("out.thali").n_components_
    assert len(summary["n_features_by_chain"]) == 2
    assert set(summary["hyperparameters"]) == {"mass", "noise_var", "feature_var"}
    assert all(set(value) == {"mean", "sd"} for value in summary["hyperparameters"].values())
    assert summary["converged"] is False
    assert set(summary["diagnostics"]) == {"n_features", "n_on", "log_joint", "mass", "noise_var", "feature_var"}
    assert summary["noise_floor"] == 0.2
    assert summary["seed"] == 7
    assert summary["seconds"] > 0
    assert summary["output"] == "out.thali"
    assert summary["interrupted"] is False
    assert summary["stopped_by"] is None
    assert summary["heldout"] is None
    assert (summary["observation"], summary["prior"]) == ("linear-gaussian", "ibp")
    assert "at noise floor 0.2" in result.stderr


def test_quiet_json_leaves_stderr_empty_and_has_no_nan(thali, survey: Path) -> None:
    result = thali("fit", survey, "--chains", 1, "--warmup", 0, "--draws", 2, "--quiet", "--json")
    assert result.stderr == ""
    summary = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert summary["diagnostics"]["log_joint"] == {"r_hat": None, "ess": None}


def test_the_same_seed_gives_the_same_bytes_for_any_number_of_threads(thali, survey: Path) -> None:
    thali("fit", survey, *QUICK, "--seed", 3, "-o", "one.thali", "--jobs", 1)
    thali("fit", survey, *QUICK, "--seed", 3, "-o", "two.thali", "--jobs", 2, "--quiet")
    thali("fit", survey, *QUICK, "--seed", 4, "-o", "other.thali")
    assert Path("one.thali").read_bytes() == Path("two.thali").read_bytes()
    assert Path("one.thali").read_bytes() != Path("other.thali").read_bytes()


def test_a_seed_that_was_drawn_repeats_the_run(thali, survey: Path) -> None:
    first = thali("fit", survey, *QUICK, "-o", "one.thali")
    seed = re.search(r"seed (\d+)", first.stderr)
    assert seed
    thali("fit", survey, *QUICK, "-o", "two.thali", "--seed", seed[1])
    assert Path("one.thali").read_bytes() == Path("two.thali").read_bytes()


def test_every_option_of_the_model_arrives(thali, survey: Path) -> None:
    model = ("--noise", "per-dim", "--noise-floor", 0.1, "--offset", "learned", "--mass", 1.5)
    thali("fit", survey, *QUICK, *model, "--thin", 3, "--prior", "beta-bernoulli", "--max-features", 4)
    fitted = library.load("survey.thali")
    assert isinstance(fitted.prior, library.BetaBernoulli)
    assert (fitted.prior.n_features, fitted.prior.mass) == (4, 1.5)
    assert isinstance(fitted.observation, library.LinearGaussian)
    assert isinstance(fitted.observation.noise_var, library.PerDim)
    assert isinstance(fitted.observation.offset, library.NormalOffset)
    assert fitted.observation.noise_floor == 0.1
    assert (fitted.inference.n_warmup, fitted.inference.n_draws, fitted.inference.thin) == (5, 10, 3)
    assert fitted.n_chains == 2


def test_mean_field(thali, survey: Path) -> None:
    done = thali("fit", survey, "--inference", "mean-field", "--seed", 1, "--holdout", 0.1, "--json")
    assert "5 restarts of at most 1000 passes" in done.stderr
    assert "log p(X) >=" in done.stderr
    assert json.loads(done.stdout)["heldout"]["model"] is not None
    fitted = library.load("survey.thali")
    assert isinstance(fitted.inference, library.MeanField)
    assert "MeanField(): as asked" in thali("inspect", "survey.thali").stdout
    for options in (["--warmup", "5"], ["--target-ess", "50"]):
        assert thali("fit", survey, "--inference", "mean-field", "--overwrite", *options).exit_code == 2


def test_a_sampler_whatever_the_size(thali, survey: Path) -> None:
    thali("fit", survey, *QUICK, "--inference", "sampler")
    assert isinstance(library.load("survey.thali").inference, CollapsedGibbs)


def test_defaults_in_the_help_are_those_of_the_library(thali) -> None:
    help_text = " ".join(thali("fit", "--help", env={"COLUMNS": "100"}).stdout.split())
    for words, value in (
        ("first draw", CollapsedGibbs().n_warmup),
        ("each chain", CollapsedGibbs().n_draws),
        ("draw to draw", CollapsedGibbs().thin),
    ):
        assert f"{words}; by default {value}." in help_text


@pytest.mark.parametrize(
    "options",
    [
        ["--noise-floor", "1.5"], ["--mass", "0"], ["--mass", "nan"], ["--holdout", "1"], ["--holdout", "nan"],
        ["--max-time", "0"], ["--target-ess", "0"],
    ],
)  # fmt: skip
def test_a_value_outside_its_domain_is_wrong_usage(thali, survey: Path, options: list[str]) -> None:
    result = thali("fit", survey, *options)
    assert result.exit_code == 2
    assert not Path("survey.thali").exists()


# --- stopping early, holding out ------------------------------------------------------------------


def test_max_time(thali, survey: Path) -> None:
    result = thali("fit", survey, "--warmup", 0, "--draws", 10**6, "--chains", 2, "--max-time", 1, "--json")
    assert result.exit_code in (0, 3)
    summary = json.loads(result.stdout)
    assert summary["stopped_by"] == "max_time"
    said = f"stopped after {summary['n_draws']} of 1 000 000 draws; go on with: thali resume survey.thali"
    assert result.stderr.splitlines()[-1] == said
    assert Path("survey.thali.run/run.thali").exists()
    assert library.load("survey.thali").posterior_.n_draws == summary["n_draws"]


def test_target_ess(thali, survey: Path) -> None:
    result = thali(
        "fit", survey, "--chains", 2, "--warmup", 20, "--draws", 10**6, "--target-ess", 20, "--seed", 1, "--json"
    )
    assert result.exit_code in (0, 3)
    summary = json.loads(result.stdout)
    assert summary["stopped_by"] == "target_ess"
    assert min(d["ess"] for d in summary["diagnostics"].values()) >= 20
    assert "were enough for an effective sample size of 20" in result.stderr
    assert not Path("survey.thali.run").exists()


def test_holdout(thali, survey: Path) -> None:
    options = ("--chains", 2, "--warmup", 20, "--draws", 20, "--seed", 1, "--holdout", 0.2, "--json")
    result = thali("fit", survey, *options)
    scores = json.loads(result.stdout)["heldout"]
    assert 30 < scores["n_cells"] < 90
    assert scores["model"] > scores["mean_and_variance"] + 0.1  # two clear features
    assert "cells held out" in result.stderr
    expected = f"thali {scores['model']:.3f}   mean and variance of each dim {scores['mean_and_variance']:.3f}"
    assert f"held-out log score per cell   {expected}" in result.stderr
    assert json.loads(thali("fit", survey, *options, "-o", "again.thali").stdout)["heldout"] == scores


@pytest.mark.parametrize(
    ("observation", "rival", "expected"),
    [
        (library.LinearGaussian(), "mean_and_variance", norm.logpdf(4, 1, (2 / 3) ** 0.5)),
        (library.PoissonGamma(), "mean", poisson.logpmf(4, 3.5 / 3.5)),
    ],
)
def test_the_score_to_compare_with(observation, rival: str, expected: float) -> None:
    from thali.cli.input import Data

    class Model:
        posterior_ = SimpleNamespace(model=SimpleNamespace(observation=observation))

        def heldout_score(self, X, mask):
            return -1.0

    hidden = np.array([[False], [False], [False], [True]])
    data = Data(Path("x.csv"), np.array([[0.0], [1.0], [2.0], [4.0]]), hidden, None)
    assert data.heldout(Model()) == {"n_cells": 1, "model": -1.0, rival: pytest.approx(expected)}


# --- the run --------------------------------------------------------------------------------------


def test_a_finished_run_leaves_nothing_but_its_file(thali, survey: Path, here: Path) -> None:
    thali("fit", survey, *QUICK)
    assert sorted(path.name for path in here.iterdir()) == ["survey.csv", "survey.thali"]


def test_the_file_does_not_depend_on_the_checkpoint(thali, survey: Path) -> None:
    thali("fit", survey, *QUICK, "--seed", 3, "-o", "with.thali", "--checkpoint")
    thali("fit", survey, *QUICK, "--seed", 3, "-o", "without.thali", "--no-checkpoint")
    assert Path("with.thali").read_bytes() == Path("without.thali").read_bytes()


def test_a_run_that_is_not_finished_is_kept_unless_asked(thali, survey: Path) -> None:
    thali("fit", survey, "--warmup", 0, "--draws", 10**6, "--max-time", 1)
    Path("survey.thali").unlink()
    before = {path.name: path.read_bytes() for path in Path("survey.thali.run").iterdir()}
    for options in ((), ("--no-checkpoint",)):
        result = thali("fit", survey, *QUICK, *options)
        assert result.exit_code == 1
        assert "survey.thali.run holds a run that is not finished" in result.stderr
        assert "thali resume survey.thali" in result.stderr
    assert {path.name: path.read_bytes() for path in Path("survey.thali.run").iterdir()} == before
    assert thali("fit", survey, *QUICK, "--overwrite").exit_code == 3
    assert not Path("survey.thali.run").exists()


def test_a_run_that_cannot_be_kept_is_refused_before_any_work(thali, survey: Path) -> None:
    Path("survey.thali.run").write_text("in the way")
    result = thali("fit", survey, "--warmup", 10**9)
    assert result.exit_code == 1
    assert "cannot make the folder survey.thali.run" in result.stderr
    assert "--no-checkpoint" in result.stderr
    assert thali("fit", survey, *QUICK, "--no-checkpoint").exit_code == 3
    assert Path("survey.thali.run").read_text() == "in the way"


def test_a_fit_that_cannot_be_saved_keeps_its_run(thali, survey: Path, monkeypatch) -> None:
    thali("fit", survey, *QUICK, "--seed", 3, "-o", "whole.thali")
    write = files.write

    def full(path, meta, arrays):
        if str(path) == "survey.thali":
            raise InvalidFileError("Cannot write survey.thali: No space left on device.")
        write(path, meta, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", full)
        result = thali("fit", survey, *QUICK, "--seed", 3)
    assert result.exit_code == 1
    assert "No space left on device. Nothing is lost: it is in the checkpoint survey.thali.run" in result.stderr
    assert thali("resume", "survey.thali").exit_code == 3
    assert Path("survey.thali").read_bytes() == Path("whole.thali").read_bytes()


# --- the output -----------------------------------------------------------------------------------


def test_an_existing_output_is_kept_unless_asked(thali, survey: Path) -> None:
    Path("survey.thali").write_text("precious")
    result = thali("fit", survey, *QUICK)
    assert result.exit_code == 1
    assert "survey.thali exists" in result.stderr
    assert Path("survey.thali").read_text() == "precious"
    assert thali("fit", survey, *QUICK, "--overwrite").exit_code == 3
    library.load("survey.thali")


def test_the_output_is_checked_before_any_work(thali, here: Path, monkeypatch) -> None:
    # the data file does not exist either: the complaint about the output comes first
    assert "no folder nowhere" in thali("fit", "x.csv", "-o", "nowhere/x.thali").stderr
    Path("folder").mkdir()
    assert "is a folder" in thali("fit", "x.csv", "-o", "folder").stderr
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    result = thali("fit", "x.csv")
    assert "no permission" in result.stderr
    assert result.exit_code == 1


def test_the_default_output_is_named_after_the_file_and_is_here(thali, survey: Path) -> None:
    Path("data").mkdir()
    packed = Path("data/run.1.csv.gz")
    with survey.open("rb") as source, gzip.open(packed, "wb") as target:
        shutil.copyfileobj(source, target)
    thali("fit", packed, *QUICK)
    assert Path("run.1.thali").exists()


# --- bad data -------------------------------------------------------------------------------------

BAD = {
    "strings.csv": ("a,b\n1,2\n3,x\n", "line 3, column 2 ('b'): expected a number"),
    "infinite.csv": ("a,b\n1,inf\n3,4\n", "line 2, column 2 ('b'): an infinite"),
    "empty.csv": ("", "empty"),
    "header.csv": ("a,b\n", "no rows"),
    "ragged.csv": ("a,b\n1,2\n3\n", "line 3"),
    "column.csv": ("a,b\n1,\n3,\n4,\n", "dim 2 (column 'b')"),
    "row.csv": ("a,b\n1,2\n\n,\n3,4\n", "line 4"),
    "table.xyz": ("1,2\n", "not a format"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_data_is_one_clear_line(thali, here: Path, name: str) -> None:
    text, expected = BAD[name]
    Path(name).write_text(text)
    result = thali("fit", name, "--quiet")
    assert result.exit_code == 1
    assert expected in result.stderr
    assert name in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in here.iterdir()] == [name]


def test_a_truncated_or_absent_file_is_one_clear_line(thali, here: Path) -> None:
    np.savez("whole.npz", X=np.ones((50, 4)))
    Path("half.npz").write_bytes(Path("whole.npz").read_bytes()[:300])
    result = thali("fit", "half.npz")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: half.npz is not a NumPy file")
    result = thali("fit", "absent.csv")
    assert result.exit_code == 1
    assert "there is no file absent.csv" in result.stderr


# --- a real process -------------------------------------------------------------------------------


@pytest.mark.parametrize("which", thinned([signal.SIGINT, signal.SIGTERM], signal.SIGTERM))
def test_a_signal_saves_what_was_drawn(here: Path, which: signal.Signals) -> None:
    np.save("bars.npy", library.datasets.bars(300).X)
    command = [sys.executable, "-m", "thali.cli.main", "fit", "bars.npy", "--chains", "2", "--jobs", "2", "--seed", "1"]
    command += ["--warmup", "1", "--thin", "3", "--draws", "1000000"]
    ask = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **ask) as process:
        assert process.stderr
        for line in process.stderr:
            if "K=" in line:  # it is sampling
                break
        process.send_signal(which)
        talk = process.stderr.read()
    assert process.returncode == 130
    assert "Interrupted: kept" in talk
    assert "saved bars.thali" in talk
    assert "go on with: thali resume bars.thali" in talk
    fitted = library.load("bars.thali")
    assert 0 < fitted.posterior_.n_draws < 1_000_000


@pytest.mark.slow
def test_it_says_when_it_compiles_and_only_then(survey: Path, tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "thali.cli.main", "fit", str(survey), "--overwrite", *map(str, QUICK)]
    first, second = (subprocess.run(command, capture_output=True, text=True, env=environment) for _ in range(2))
    assert "compiling kernels (once) ..." in first.stderr
    assert "compiling" not in second.stderr
