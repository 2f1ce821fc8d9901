"""`thali resume`: a fit that is stopped at any moment, by whatever, ends in the same file."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from thinned import thinned
from typer.testing import CliRunner

import thali as library
from thali.cli.main import app
from thali.storage import checkpoint

# about two seconds of work, half of it to find starts, with many checkpoints
FIT = ("--seed", "3", "--chains", "3", "--warmup", "60", "--draws", "60", "--thin", "2", "--offset", "learned")
OFTEN = """
from thali.storage import checkpoint
checkpoint.EVERY, checkpoint._SHARE, checkpoint._COST = 0.03, 0.0, 0.0
from thali.cli.main import run
run()
"""


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OFTEN, *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def call(*arguments: object) -> int:
    return CliRunner().invoke(app, [str(argument) for argument in arguments]).exit_code


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, float]:
    """(data, the file of a fit that was never stopped, seconds from its first checkpoint to its end)"""
    folder = tmp_path_factory.mktemp("whole")
    rng = np.random.default_rng(1)
    X = rng.integers(2, size=(40, 2)) @ (3 * rng.standard_normal((2, 5))) + rng.standard_normal((40, 5))
    X[:, 1:][rng.random((40, 4)) < 0.1] = np.nan
    np.save(folder / "x.npy", X)
    with start("fit", folder / "x.npy", *FIT, "-o", folder / "x.thali") as process:
        began = when(folder / "x.thali.run" / "run.thali", process)
        assert process.stderr
        talk = process.stderr.read()
    assert process.returncode in (0, 3), talk
    return folder / "x.npy", (folder / "x.thali").read_bytes(), time.monotonic() - began


def when(path: Path, process: subprocess.Popen[str]) -> float:
    """Wait until this file is there, or all is over."""
    while not path.exists() and process.poll() is None:
        time.sleep(0.005)
    return time.monotonic()


def stop_once(data: Path, which: signal.Signals, delay: float) -> tuple[int, str]:
    """Stop a fit in the current folder that long after its first checkpoint."""
    with start("fit", data, *FIT, "--jobs", "2") as process:
        when(Path("x.thali.run", "run.thali"), process)
        time.sleep(delay)
        process.send_signal(which)
        assert process.stderr
        talk = process.stderr.read()
    return process.returncode, talk


def ends_well(whole: tuple[Path, bytes, float], which: signal.Signals, delay: float) -> None:
    data, content, _ = whole
    code, talk = stop_once(data, which, delay)
    assert "Traceback" not in talk
    if checkpoint.holds_run("x.thali.run"):
        assert code == (-9 if which is signal.SIGKILL else 130), talk
        if "go on with" in talk and "nothing to save yet" not in talk:
            assert library.load("x.thali").posterior_.n_draws <= 60
        assert call("resume", "x.thali", "--quiet") in (0, 3)
    assert Path("x.thali").read_bytes() == content
    assert not Path("x.thali.run").exists()


@pytest.mark.parametrize("which", thinned([signal.SIGKILL, signal.SIGTERM], signal.SIGKILL), ids=["kill -9", "SIGTERM"])
def test_a_stop_at_a_random_moment(whole, which, here: Path) -> None:
    ends_well(whole, which, np.random.default_rng().uniform(0, whole[2]))


@pytest.mark.slow
@pytest.mark.parametrize("which", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
@pytest.mark.parametrize("share", [(i + 0.5) / 20 for i in range(20)])
def test_a_stop_at_any_moment(whole, which, share, here: Path) -> None:
    """Twenty moments over the whole run, each a little off."""
    ends_well(whole, which, max(0.0, whole[2] * (share + np.random.default_rng().uniform(-0.025, 0.025))))


@pytest.mark.slow
def test_many_stops_of_one_run(whole, here: Path) -> None:
    data, content, seconds = whole
    rng = np.random.default_rng()
    stop_once(data, signal.SIGKILL, rng.uniform(0, seconds / 4))
    for which in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        with start("resume", "x.thali") as process:
            assert process.stderr
            for line in process.stderr:
                if "going on with" in line:
                    break
            time.sleep(rng.uniform(0, seconds / 2))
            process.send_signal(which)
            process.stderr.read()
    if checkpoint.holds_run("x.thali.run"):
        assert call("resume", "x.thali") in (0, 3)
    assert Path("x.thali").read_bytes() == content


# --- what it says, and what it refuses ------------------------------------------------------------


@pytest.fixture
def stopped(thali, survey: Path) -> Path:
    """A fit of the survey that ran out of time."""
    assert thali("fit", survey, "--chains", 2, "--warmup", 0, "--draws", 10**6, "--max-time", 1).exit_code in (0, 3)
    return survey


def test_it_says_what_it_does(thali, stopped: Path) -> None:
    before = library.load("survey.thali").posterior_.n_draws
    result = thali("resume", "survey.thali", "--max-time", 1, "--json")
    assert result.exit_code in (0, 3)
    lines = result.stderr.splitlines()
    assert lines[0] == "read 60 rows x 5 dims; line 1 is the header; no row names"
    assert lines[1:3] == ["survey.csv  60 rows x 5 dims, real-valued, 0.7 % missing", "going on with survey.thali.run"]
    assert lines[-1].endswith("go on with: thali resume survey.thali")
    assert f'"file": "{stopped}"' in result.stdout
    assert library.load("survey.thali").posterior_.n_draws > before
    assert list(library.load("survey.thali").feature_names_in_) == list("abcde")


def test_the_folder_may_be_named_too(thali, stopped: Path) -> None:
    assert thali("resume", "survey.thali.run", "--max-time", 1, "--quiet").exit_code in (0, 3)


def test_it_goes_on_from_another_folder(thali, stopped: Path, monkeypatch) -> None:
    """The path of the data was relative to where the fit began."""
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert thali("resume", "../survey.thali", "--max-time", 1, "--quiet").exit_code in (0, 3)


def test_held_out_cells_stay_hidden(thali, survey: Path) -> None:
    """Were other cells hidden, the data would be refused."""
    result = thali("fit", survey, "--holdout", 0.2, "--chains", 2, "--warmup", 0, "--draws", 10**6, "--max-time", 1)
    assert "cells held out" in result.stderr
    result = thali("resume", "survey.thali", "--max-time", 1)
    assert "cells held out" in result.stderr
    assert "held-out log score per cell" in result.stderr


@pytest.mark.parametrize("change", ["value", "row", "absent"])
def test_other_data_are_refused(thali, stopped: Path, change: str) -> None:
    text = stopped.read_text()
    lines = text.splitlines()
    if change == "absent":
        stopped.rename("moved.csv")
    else:
        lines[3] = lines[4]
        stopped.write_text("\n".join(lines[: -1 if change == "row" else None]) + "\n")
    result = thali("resume", "survey.thali")
    assert result.exit_code == 1
    assert ("there is no file" if change == "absent" else "X must be the data of the run") in result.stderr
    if change == "absent":
        assert thali("resume", "survey.thali", "--data", "moved.csv", "--max-time", 1).exit_code in (0, 3)


def test_what_is_not_there(thali, survey: Path) -> None:
    result = thali("resume", "absent.thali")
    assert result.exit_code == 1
    assert "no run to go on with in absent.thali.run: check the path" in result.stderr
    Path("survey.thali").write_text("")
    assert "survey.thali is finished" in thali("resume", "survey.thali").stderr


@pytest.mark.parametrize("name", ["run.thali", "chain-0.0.thali", "chain-1.state.thali"])
def test_damaged_runs_are_one_clear_line(thali, stopped: Path, name: str) -> None:
    path = Path("survey.thali.run", name)
    path.write_bytes(path.read_bytes()[:-30])
    result = thali("resume", "survey.thali", "--quiet")
    assert result.exit_code == 1
    assert name in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_run_from_python(thali, survey: Path, monkeypatch) -> None:
    """It does not know the file of its data."""
    from thali.io import read_table

    X = read_table(survey).X
    model = library.LatentFeatures(n_chains=1, random_state=0, max_time=0.1, checkpoint="api.thali.run")
    model.set_params(inference=library.CollapsedGibbs(n_warmup=0, n_draws=10**6)).fit(X)
    assert "--data" in thali("resume", "api.thali").stderr
    assert thali("resume", "api.thali", "--data", survey).exit_code in (0, 3)  # max_time is that of the run
    assert library.load("api.thali").n_features_in_ == 5


def test_interrupted_before_the_first_draw(thali, survey: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step: Callable[..., object] = library.CollapsedGibbs.step
    done = []

    def pressing(*arguments: object) -> object:
        done.append(1)
        if len(done) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.3)
        return step(*arguments)

    quick = ("--chains", 2, "--warmup", 20, "--draws", 5, "--seed", 2)
    thali("fit", survey, *quick, "-o", "whole.thali")
    monkeypatch.setattr(library.CollapsedGibbs, "step", pressing)
    result = thali("fit", survey, *quick)
    assert result.exit_code == 130
    said = "interrupted before the first draw; nothing to save yet; go on with: thali resume survey.thali"
    assert result.stderr.splitlines()[-1] == said
    assert not Path("survey.thali").exists()
    assert thali("resume", "survey.thali").exit_code == 3
    assert Path("survey.thali").read_bytes() == Path("whole.thali").read_bytes()
