"""Where `transform` and `impute` write: checked before any work, whole or not there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from answers import READ, WRITES, refused
from thinned import thinned

import thali as library
from thali.io import read_table


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
