"""What every test may use: one seeded random generator. And which tests are slow, beside those that say so."""

import os
from pathlib import Path

import numpy as np
import pytest

LISTED = Path(__file__).with_name("slow_tests.txt")
SEED = int(os.environ.get("THALI_TEST_SEED", "20260"))


def pytest_report_header() -> str:
    return f"THALI_TEST_SEED={SEED} (set it to try other random numbers)"


def listed() -> set[str]:
    """Slow tests by name."""
    return {line for line in LISTED.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")}


@pytest.hookimpl(tryfirst=True)  # before some of them are left out by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = listed()
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts afresh for each test: the same numbers alone and in company."""
    return np.random.default_rng(SEED)
