"""Fits to the same bits as before: every prior, observation model and inference that fit together, and all they say."""

import json

import pytest
from fingerprints import GOLDEN, Case, cases, fingerprint, fingerprints, is_quick, machine

GOLD = json.loads(GOLDEN.read_text())
CASES = cases()


def test_the_table_is_whole() -> None:
    assert set(GOLD["fits"]) == {"; ".join(case) for case in CASES}


@pytest.mark.skipif(machine() != GOLD["machine"], reason="another processor or other libraries, hence other bits")
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id="; ".join(case), marks=() if is_quick(case) else pytest.mark.slow) for case in CASES],
)
def test_nothing_has_changed(case: Case) -> None:
    assert fingerprints(case) == GOLD["fits"]["; ".join(case)]


def test_a_change_is_seen() -> None:
    assert fingerprint({"a": [1.0, 2.0]}) == fingerprint({"a": [1.0, 2.0]}) != fingerprint({"a": [1.0, 2.0 + 1e-15]})
