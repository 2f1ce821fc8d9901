"""What the fast suite leaves out and the slow one tries: some parameters of a test, and tests that are listed."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

_LIST = Path(__file__).with_name("slow_tests.txt")


def listed() -> list[str]:
    """Names of slow tests, beside those that carry the marker themselves."""
    return [line for line in _LIST.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def thinned(cases: Iterable[Any], *fast: Any) -> list[Any]:
    """The cases, those not named marked as slow. A tuple holds the values of several parameters."""
    listed = list(cases)
    assert all(case in listed for case in fast), "not one of the cases"
    marks = {True: (), False: pytest.mark.slow}
    return [pytest.param(*(c if isinstance(c, tuple) else (c,)), marks=marks[c in fast]) for c in listed]
