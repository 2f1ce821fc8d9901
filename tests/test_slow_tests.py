"""The list of slow tests speaks of tests that there are."""

import subprocess
import sys
from pathlib import Path

import pytest
from thinned import listed

ROOT = Path(__file__).resolve().parents[1]


def test_files_and_functions_are_there():
    for name in listed():
        path, *_, function = name.partition("[")[0].split("::")
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), name


@pytest.mark.slow
def test_each_is_a_test():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert sorted(set(listed()) - set(result.stdout.splitlines())) == []


def test_each_is_listed_once_in_order_and_none_is_of_a_kernel():
    assert listed() == sorted(set(listed()))
    assert not [name for name in listed() if name.startswith("tests/kernels/")]
