"""What every test may use: one seeded random generator. Which tests are slow, beside those that say so. And the order
of the folders: two processes begin with a half of the tests each, and should not compile the same kernels at once."""

import os
from pathlib import Path

import numpy as np
import pytest
from thinned import listed

SEED = int(os.environ.get("THALI_TEST_SEED", "20260"))


def pytest_report_header() -> str:
    return f"THALI_TEST_SEED={SEED} (set it to try other random numbers)"


# those of the second half find most kernels compiled, the command line all of them
_LATER = ("observations", "inference", "posteriors", "running", "storage", "testing", "estimator", "whole", "cli")


def _place(item: pytest.Item) -> tuple[int, int]:
    """Kernels and their proofs first; models backwards, so as not to go through them beside the kernels."""
    folder = Path(item.nodeid).parts[1]
    if folder in _LATER:
        files = sorted(path.name for path in Path(__file__).with_name(folder).glob("*.py"))
        backwards = files.index(item.path.name) if folder == "observations" else 0
        return 2 + _LATER.index(folder), -backwards
    return (0, 0) if folder in ("kernels", "exactness") else (1, 0)


@pytest.hookimpl(tryfirst=True)  # before some of them are left out by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = set(listed())
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
    items.sort(key=_place)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts afresh for each test: the same numbers alone and in company."""
    return np.random.default_rng(SEED)
