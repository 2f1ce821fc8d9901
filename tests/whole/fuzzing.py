"""How anything is fuzzed: a sample of each kind of input in the fast tests, a thousand in those marked slow.

Whatever comes in: a right result, or one of thali's own errors with words in it (`right_results.py`). Never another
exception, a foreign warning (`filterwarnings = error` makes it an exception), a hang, or a file left half written.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

Fuzz = tuple[int, Callable[..., None], dict[str, Any]]  # examples, what is tried, and with what
OPTIONS: dict[str, Any] = {
    "derandomize": True,
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
}
BRIEF = pytest.param(False, marks=pytest.mark.timeout(300))
THOROUGH = pytest.param(True, marks=[pytest.mark.slow, pytest.mark.timeout(3000)])


def each_of(fuzz: dict[str, Fuzz]) -> Callable[[Any], Any]:
    """Parametrise a test by the name of a fuzz and whether it is thorough."""

    def decorate(test: Any) -> Any:
        return pytest.mark.parametrize("name", fuzz)(pytest.mark.parametrize("thorough", [BRIEF, THOROUGH])(test))

    return decorate


def run(fuzz: Fuzz, thorough: bool) -> None:
    """Try a thousand examples, or half of as many as the fuzz says; always the same ones."""
    n, body, strategies = fuzz
    settings(max_examples=1000 if thorough else n // 2, **OPTIONS)(given(**strategies)(body))()
