"""Every shape of inference from the command line: killed at any moment, resumed, it ends in the same file."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

from thali.cli.main import app
from thali.cli.model_options import Inference
from thali.storage import checkpoint

KINDS = [str(kind) for kind in Inference if kind not in (Inference.AUTO, Inference.SAMPLER)]
FIT = ("--seed", "3", "--chains", "2")
OFTEN = """
from thali.storage import checkpoint
checkpoint.EVERY, checkpoint._SHARE, checkpoint._COST = 0.0, 0.0, 0.0
from thali.cli.main import run
run()
"""


class Whole(NamedTuple):
    """A fit that was never stopped."""

    data: Path
    kind: str
    content: bytes
    seconds: float  # from its first checkpoint to its end


def start(*arguments: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", OFTEN, *map(str, arguments)]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def when(path: Path, process: subprocess.Popen[str]) -> float:
    """Wait until this file is there, or all is over."""
    while not path.exists() and process.poll() is None:
        time.sleep(0.002)
    return time.monotonic()


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory):
    made: dict[str, Whole] = {}

    def whole(kind: str) -> Whole:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            rng = np.random.default_rng(1)
            X = rng.integers(2, size=(120, 3)) @ (3 * rng.standard_normal((3, 6))) + rng.standard_normal((120, 6))
            X[:, 1:][rng.random((120, 5)) < 0.1] = np.nan
            np.save(folder / "x.npy", X)
            output = folder / "x.thali"
            with start("fit", folder / "x.npy", *FIT, "--inference", kind, "-o", output) as process:
                began = when(folder / "x.thali.run" / "run.thali", process)
                assert process.stderr
                talk = process.stderr.read()
            assert process.returncode in (0, 3), talk
            made[kind] = Whole(folder / "x.npy", kind, output.read_bytes(), time.monotonic() - began)
        return made[kind]

    return whole


def ends_well(whole: Whole, delay: float) -> None:
    with start("fit", whole.data, *FIT, "--inference", whole.kind) as process:
        when(Path("x.thali.run", "run.thali"), process)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        assert process.stderr
        talk = process.stderr.read()
    assert "Traceback" not in talk
    if checkpoint.holds_run("x.thali.run"):
        assert CliRunner().invoke(app, ["inspect", "x.thali.run"]).exit_code == 0
        assert CliRunner().invoke(app, ["resume", "x.thali", "--quiet"]).exit_code in (0, 3)
    assert Path("x.thali").read_bytes() == whole.content
    assert CliRunner().invoke(app, ["inspect", "x.thali"]).exit_code == 0  # what a kill at the end left is gone
    assert not Path("x.thali.run").exists()
    Path("x.thali").unlink()


def test_a_kill_at_a_random_moment(wholes, here: Path) -> None:
    whole = wholes("stochastic-mean-field")
    ends_well(whole, np.random.default_rng().uniform(0, whole.seconds))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kills_at_ten_moments(kind: str, wholes, here: Path) -> None:
    whole = wholes(kind)
    for i in range(10):
        ends_well(whole, whole.seconds * (i + np.random.default_rng().uniform()) / 10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_says_what_it_does(kind: str, thali, survey: Path) -> None:
    result = thali("fit", survey, "--inference", kind, "--seed", 1, "--chains", 2, "--max-time", 20)
    assert result.exit_code in (0, 3), result.stderr
    plans = ("filters of", "restarts of at most", "passes over blocks", "one pass over the rows")
    assert any(words in result.stderr for words in plans), result.stderr
    assert "saved survey.thali" in result.stderr
    assert thali("inspect", "survey.thali").exit_code == 0
