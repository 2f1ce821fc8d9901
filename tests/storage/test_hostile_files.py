"""Files from strangers: whatever is in them, thali answers in words, at once, and within its memory.

Each is opened, and used if it opens, in a child process. The slow tests try 500 files with one wrong value and 1000
that are damaged at random; the fast ones a sample of both, and every bomb.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from hostile.bombs import craft
from hostile.child import open_file, use
from hostile.damage import JUNK, damaged, members, places, zipped
from hostile.opener import Opener, Outcome
from hostile.whole import FITS, RUNS, TABLES, make_all

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured by /proc")

FEW = ["bits", "point"]  # kinds of fits of the fast tests


def complain(outcomes: list[Outcome]) -> None:
    wrong = [outcome for outcome in outcomes if outcome.trouble]
    assert not wrong, f"{len(wrong)} of {len(outcomes)}:\n" + "\n".join(
        f"{outcome.path}: {outcome.trouble}" for outcome in wrong[:20]
    )


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> dict[str, Path]:
    return used(make_all(tmp_path_factory.mktemp("whole"), FEW, ["run"]))


def used(whole: dict[str, Path]) -> dict[str, Path]:
    """Once every whole file was opened here, so that what that needs is imported and compiled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in whole.values():
            if path.is_file():
                use(open_file(path), path)
    return whole


@pytest.fixture(scope="module")
def every(tmp_path_factory) -> dict[str, Path]:
    return used(make_all(tmp_path_factory.mktemp("every"), list(FITS), list(RUNS)))


def open_all(paths: list[Path]) -> list[Outcome]:
    with Opener() as opener:
        return [opener.open(path) for path in paths]


def at_random(rng: np.random.Generator, whole: dict[str, Path], kinds: list[str], n: int, folder: Path) -> list[Path]:
    """n damaged files, of each kind as many."""
    return [damaged(rng, whole[kinds[i % len(kinds)]], folder / f"{i:04}") for i in range(n)]


def with_one_wrong_value(
    rng: np.random.Generator, whole: dict[str, Path], kinds: list[str], n: int, folder: Path
) -> list[Path]:
    """n fits in which one value of meta.json is junk, of each kind as many, and nothing else is wrong."""
    made = []
    for i in range(n):
        kind = kinds[i % len(kinds)]
        parts = members(whole[kind].read_bytes())
        meta = json.loads(parts["meta.json"])
        spots = list(places(meta))
        holder, key = spots[int(rng.integers(len(spots)))]
        holder[key] = JUNK[int(rng.integers(len(JUNK)))]
        made.append(folder / f"{i:04}-{kind}.thali")
        made[-1].write_bytes(zipped(list((parts | {"meta.json": json.dumps(meta).encode()}).items())))
    return made


# --- the fast sample ------------------------------------------------------------------------------


def test_bombs_are_refused_and_damaged_files_answered(few, tmp_path, rng) -> None:
    bombs = craft(tmp_path, few["bits"], few["run"])
    kinds = [*FEW, "run", *TABLES]
    others = at_random(rng, few, kinds, 2 * len(kinds), tmp_path)
    outcomes = open_all([*bombs, *others])
    complain(outcomes)
    taken = {outcome.path.name for outcome in outcomes[: len(bombs)] if outcome.error is None}
    assert taken <= HARMLESS


HARMLESS = {"n_chains.thali", "n_rows"}  # numbers of which nothing is made


# --- all of it ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_every_bomb_at_its_full_size(every, tmp_path) -> None:
    complain(open_all(craft(tmp_path, every["bits"], every["run"], scale=50)))


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_500_files_with_one_wrong_value(every, tmp_path, rng) -> None:
    paths = with_one_wrong_value(rng, every, list(FITS), 500, tmp_path)
    complain(open_all(paths))


@pytest.mark.slow
@pytest.mark.timeout(6000)
def test_1000_files_damaged_at_random(every, tmp_path, rng) -> None:
    kinds = [*FITS, *RUNS, *TABLES]
    outcomes = open_all(at_random(rng, every, kinds, 1000, tmp_path))
    complain(outcomes)
    taken = sum(outcome.error is None for outcome in outcomes)
    assert 0 < taken < 500  # some damage is none, most is


# --- the harness can see --------------------------------------------------------------------------


def test_the_child_sees_what_is_wrong(tmp_path) -> None:
    """Raw errors, hours, gigabytes and signals are told apart."""
    path = tmp_path / "x"
    fine = {"error": None, "seconds": 0.1, "total": 0.1, "megabytes": 10.0}
    assert Outcome.of(path, fine, 1.0, 300.0).trouble is None
    assert Outcome.of(path, fine | {"error": "InvalidFileError: no"}, 1.0, 300.0).trouble is None
    for wrong in ({"error": "raw KeyError: 'x'"}, {"seconds": 2.0}, {"megabytes": 400.0}):
        assert Outcome.of(path, fine | wrong, 1.0, 300.0).trouble is not None
