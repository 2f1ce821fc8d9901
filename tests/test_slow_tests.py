"""The list of slow tests speaks of tests that there are."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def names() -> list[str]:
    lines = (ROOT / "tests" / "slow_tests.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_files_and_functions_are_there():
    for name in names():
        path, *_, function = name.partition("[")[0].split("::")
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), name


@pytest.mark.slow
def test_each_is_a_test():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert sorted(set(names()) - set(result.stdout.splitlines())) == []


def test_each_is_listed_once_in_order():
    assert names() == sorted(set(names()))
