"""The command as a whole: help, version, and what happens when something goes wrong."""

import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from thali.cli.summary import plus_minus

HEAVY = ("numpy", "sklearn", "scipy", "numba", "pandas", "matplotlib", "arviz_stats")
COMMAND = (sys.executable, "-m", "thali.cli.main")


def test_help_is_quick() -> None:
    begin = time.monotonic()
    result = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True)
    assert time.monotonic() - begin < 2  # the aim is 0.3 s on an idle machine
    assert result.returncode == 0
    assert all(verb in result.stdout for verb in ("demo", "fit", "doctor"))


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["--version"], ["fit"]])
def test_nothing_heavy_is_imported_before_there_is_work(arguments: list[str]) -> None:
    code = f"""
import json, sys
from thali.cli.main import app
try:
    app({arguments!r})
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    modules = json.loads(result.stderr.splitlines()[-1])
    assert not set(HEAVY) & set(modules)


def test_version(thali) -> None:
    result = thali("--version")
    assert result.exit_code == 0
    assert result.stdout == f"thali {version('thali')}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fry"],
        ["fit"],
        ["fit", "x.csv", "--frobnicate"],
        ["fit", "x.csv", "--chains", "0"],
        ["fit", "x.csv", "--draws", "many"],
        ["fit", "x.csv", "--seed", "-1"],
        ["fit", "x.csv", "--prior", "gaussian"],
        ["fit", "x.csv", "--prior", "beta-bernoulli"],
        ["fit", "x.csv", "--max-features", "3"],
        ["demo", "--seed", "x"],
    ],
)
def test_wrong_usage_exits_2(thali, here: Path, arguments: list[str]) -> None:
    result = thali(*arguments)
    assert result.exit_code == 2
    assert "Usage" in result.stdout + result.stderr
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("words", ["Unable to allocate 7.45 GiB for an array", ""])
def test_too_little_memory_is_no_bug(thali, survey: Path, monkeypatch, words: str) -> None:
    def read(path: object) -> None:
        raise MemoryError(words)

    monkeypatch.setattr("thali.io.read_table", read)
    result = thali("fit", survey)
    assert result.exit_code == 1
    assert f"error: there is not enough memory: {words or 'MemoryError'}" in result.stderr
    assert "--chains" in result.stderr
    assert "bug" not in result.stderr


@pytest.mark.parametrize("said", ["", "interrupted before the first draw"])
@pytest.mark.parametrize("verb", ["fit", "howmany"])
def test_ctrl_c_before_the_first_draw(thali, survey: Path, monkeypatch, verb: str, said: str) -> None:
    def press(*_: object, **__: object) -> None:
        raise KeyboardInterrupt(said) if said else KeyboardInterrupt

    monkeypatch.setattr("thali.running.fitting.run", press)
    result = thali(verb, survey, "--draws", 1)
    assert result.exit_code == 130
    assert f"{said or 'interrupted'}; nothing to save yet" in result.stderr


def test_an_unexpected_error_is_short_and_says_how_to_report_it(thali, survey: Path, monkeypatch) -> None:
    def break_down(path: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("thali.io.read_table", break_down)
    result = thali("fit", survey)
    assert result.exit_code == 1
    assert "unexpected error: ZeroDivisionError: a bug" in result.stderr
    assert "report" in result.stderr
    assert "Traceback" not in result.stderr

    assert "Traceback" in thali("--debug", "fit", survey).stderr
    assert "Traceback" in thali("fit", survey, env={"THALI_DEBUG": "1"}).stderr


def test_an_interrupt_before_any_draw_exits_130(thali, survey: Path, monkeypatch) -> None:
    def interrupt(path: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("thali.io.read_table", interrupt)
    result = thali("fit", survey)
    assert result.exit_code == 130
    assert "interrupted" in result.stderr


def test_a_reader_that_leaves_early_is_no_drama(survey: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [*COMMAND, "fit", survey, "--warmup", "1", "--draws", "4", "--seed", "1", "--json", "--quiet"]
    result = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert result.returncode == 1
    assert result.stderr == ""
    assert Path("survey.thali").exists()


@pytest.mark.parametrize(
    ("mean", "sd", "text"),
    [
        (0.2431, 0.0082, "0.243 +- 0.008"),
        (1.31, 0.42, "1.3 +- 0.4"),
        (1.31, 0.132, "1.31 +- 0.13"),
        (1204.2, 31.0, "1204 +- 31"),
        (0.25, 0.0, "0.25"),
        (0.25, float("nan"), "0.25"),
    ],
)
def test_plus_minus_keeps_the_certain_digits(mean: float, sd: float, text: str) -> None:
    assert plus_minus(mean, sd) == text
