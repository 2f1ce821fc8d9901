"""Settings of quick fits, and what the verbs that use a fit say and write."""

import json
from pathlib import Path

import pytest

from thali.io import Table, read_table

QUICK = ("--chains", 2, "--warmup", 5, "--draws", 10, "--seed", 1)
READ = "read 60 rows x 5 dims; line 1 is the header; column 1 (id) names the rows"
LOADS = ["inspect {fit}", "transform {fit} survey.csv", "impute {fit} survey.csv"]
WRITES = ["transform survey.thali survey.csv -o {out}", "impute survey.thali survey.csv -o {out}"]


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
