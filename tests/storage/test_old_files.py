"""Files that an older version wrote load as they did then, and its runs go on to the bits that they would have had.

`fixtures/format-1` was written by the version before types had tags in files; `hostile/whole.py` says what is in it.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fingerprints import GOLDEN, machine
from hostile.whole import FITS, RUNS, data_of

import thali

OLD = Path(__file__).parents[1] / "fixtures" / "format-1"
EXPECTED = json.loads((OLD / "expected.json").read_text())
OLD_FITS = [name for name in FITS if name in EXPECTED]  # models that there were
SAME_BITS = machine() == json.loads(GOLDEN.read_text())["machine"]


def test_all_of_them_are_there() -> None:
    assert EXPECTED.keys() <= FITS.keys() | RUNS.keys()
    assert RUNS.keys() <= EXPECTED.keys()


def said(name: str, m: Any) -> dict[str, Any]:
    X = data_of(name)
    return {
        "n_components": m.n_components_,
        "transform": m.transform(X),
        "score_samples": m.score_samples(X),
        "presence": m.presence(X + (1 if "counts" in name else 0.25)),
        "impute": m.impute(X),
        "check": m.check(),
        "k": {str(k): share for k, share in m.k_posterior_.items()},
    }


@pytest.mark.parametrize("name", OLD_FITS)
def test_fits_load(name: str) -> None:
    found, wanted = said(name, thali.load(OLD / f"{name}.thali")), EXPECTED[name]
    assert found.keys() == wanted.keys()
    for what, value in wanted.items():
        if isinstance(value, list):
            assert np.allclose(found[what], value, rtol=1e-7, atol=1e-9, equal_nan=True), what
        else:
            assert found[what] == value, what


@pytest.mark.parametrize("name", OLD_FITS)
def test_fits_can_be_written_again(name: str, tmp_path: Path) -> None:
    again = tmp_path / "again.thali"
    thali.load(OLD / f"{name}.thali").save(again)
    assert np.array_equal(
        thali.load(again).transform(data_of(name)), thali.load(OLD / f"{name}.thali").transform(data_of(name))
    )


@pytest.mark.parametrize("name", RUNS)
def test_runs_go_on(name: str, tmp_path: Path) -> None:
    shutil.copytree(OLD / name, tmp_path / "old.run")
    draws = thali.resume(tmp_path / "old.run", data_of(name), verbose=False).posterior_.draws
    assert draws.keys() == EXPECTED[name].keys()
    for what, values in EXPECTED[name].items():
        assert draws[what].shape == np.shape(values), what
        assert not SAME_BITS or draws[what].tolist() == values, what
