"""Parameters of which the fast suite tries some, the slow one all."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], *fast: Any) -> list[Any]:
    """The cases, those not named marked as slow. A tuple holds the values of several parameters."""
    listed = list(cases)
    assert all(case in listed for case in fast), "not one of the cases"
    marks = {True: (), False: pytest.mark.slow}
    return [pytest.param(*(c if isinstance(c, tuple) else (c,)), marks=marks[c in fast]) for c in listed]
