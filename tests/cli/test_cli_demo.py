"""`thali demo`."""

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import thali as library
from thali.cli.recovery import recovery

PICTURES = ("k-posterior", "features", "presence", "traces", "rows")


def test_it_draws_everything_and_says_what_it_found(thali, here: Path) -> None:
    result = thali("demo", "--quick", "--output-dir", "a/b")
    assert result.exit_code == 0, result.stderr
    for name in ("bars", "digits"):
        for picture in PICTURES:
            assert Path(f"a/b/{name}-{picture}.png").read_bytes().startswith(b"\x89PNG")
        assert library.load(f"a/b/{name}.thali").random_state == 0
    assert len(list(Path("a/b").iterdir())) == 12
    assert result.stdout == ""
    assert "true K = 4, found " in result.stderr
    assert "at noise floor 0.3" in result.stderr
    assert result.stderr.count("converged") >= 2


def test_what_it_says_to_do_next_works(here: Path) -> None:
    from thali.cli.verbs.demo import _NEXT

    X = library.datasets.bars(20).X
    m = library.LatentFeatures(inference=library.CollapsedGibbs(n_warmup=1, n_draws=5), n_chains=1, random_state=0)
    m.fit(X).save("x.thali")
    code = _NEXT.format(file="x.thali").partition("\n\n")[2]
    assert len(code.splitlines()) == 5
    exec("\n".join(line.strip() for line in code.splitlines()))


def test_it_does_without_matplotlib(thali, here: Path, monkeypatch) -> None:
    monkeypatch.setattr("thali.cli.verbs.demo.find_spec", lambda name: None)
    tiny = library.LatentFeatures(inference=library.CollapsedGibbs(n_warmup=1, n_draws=5), n_chains=1, random_state=0)
    monkeypatch.setattr("thali.cli.verbs.demo._bars_model", lambda seed, quick: tiny)
    monkeypatch.setattr("thali.cli.verbs.demo._digits_model", lambda seed, quick: tiny)
    result = thali("demo", "--quick")
    assert result.exit_code == 0
    assert 'pip install "thali[report]"' in result.stderr
    assert sorted(path.name for path in Path("thali-demo").iterdir()) == ["bars.thali", "digits.thali"]


def test_a_folder_that_cannot_be_made_is_an_error(thali, here: Path) -> None:
    Path("taken").write_text("")
    result = thali("demo", "--output-dir", "taken/deeper")
    assert result.exit_code == 1
    assert "--output-dir" in result.stderr


@pytest.mark.parametrize("extra", [0, 1])
def test_recovery_matches_features_one_to_one(extra: int) -> None:
    data = library.datasets.bars(40)
    assert data.features is not None
    assert data.Z is not None
    order = [2, 0, 3, 1]
    found = np.vstack([1.1 * data.features[order], np.zeros((extra, 36))])
    presence = np.hstack([data.Z[:, order], np.zeros((40, extra))])
    model = SimpleNamespace(components_=found, n_components_=len(found), presence=lambda X: presence)
    assert recovery(model, data) == (
        f"true K = 4, found {4 + extra}; relative error of the features at most 10 %; "
        "right about who has them in 100.0 % of cases"
    )


def test_recovery_of_nothing() -> None:
    model = SimpleNamespace(components_=np.zeros((0, 36)), n_components_=0)
    assert recovery(model, library.datasets.bars(5)) == "true K = 4, found 0"


@pytest.mark.slow
def test_the_whole_demo_takes_about_a_minute(thali, here: Path) -> None:
    begin = time.monotonic()
    assert thali("demo").exit_code == 0
    assert time.monotonic() - begin < 180  # the aim is 60 s on two idle cores
