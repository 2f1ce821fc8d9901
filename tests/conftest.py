"""What every test may use: one seeded random generator. And which tests are slow, beside those that say so."""

import os

import numpy as np
import pytest
from thinned import listed

SEED = int(os.environ.get("THALI_TEST_SEED", "20260"))


def pytest_report_header() -> str:
    return f"THALI_TEST_SEED={SEED} (set it to try other random numbers)"


@pytest.hookimpl(tryfirst=True)  # before some of them are left out by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = set(listed())
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts afresh for each test: the same numbers alone and in company."""
    return np.random.default_rng(SEED)
