"""What every test may use: one seeded random generator."""

import os

import numpy as np
import pytest

SEED = int(os.environ.get("THALI_TEST_SEED", "20260"))


def pytest_report_header() -> str:
    return f"THALI_TEST_SEED={SEED} (set it to try other random numbers)"


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts afresh for each test: the same numbers alone and in company."""
    return np.random.default_rng(SEED)
