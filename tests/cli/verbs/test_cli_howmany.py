"""`thali howmany`."""

from pathlib import Path

import numpy as np
import pytest
from answers import QUICK, READ, refused, strict

import thali as library
from thali import CollapsedGibbs, LatentFeatures
from thali.io import read_table


def test_howmany_gives_the_answer_of_the_library(thali, survey: Path) -> None:
    X = read_table(survey).X
    found = library.how_many(X, inference=CollapsedGibbs(n_warmup=5, n_draws=10), n_chains=2, random_state=1)
    result = thali("howmany", survey, *QUICK, "--json")
    assert result.exit_code == 3
    answer = strict(result.stdout)
    assert answer["k"] == found.k
    assert tuple(answer["interval"]) == found.interval
    assert answer["probabilities"] == {str(k): p for k, p in found.probabilities.items()}
    assert answer["reason"] == found.reason
    assert (answer["file"], answer["seed"], answer["noise_floor"]) == ("survey.csv", 1, 0.0)
    assert answer["converged"] is False
    assert answer["interrupted"] is False
    assert sorted(path.name for path in Path().iterdir()) == ["survey.csv", "survey.thali"]


def test_howmany_in_words(thali, survey: Path) -> None:
    result = thali("howmany", survey, *QUICK, "--noise", "per-dim", "--noise-floor", 0.2, "--offset", "learned")
    assert result.stderr.splitlines() == [READ, "survey.csv  60 rows x 5 dims, real-valued, 0.7 % missing, seed 1"]
    first, second, *bars, reason = result.stdout.splitlines()
    assert first.startswith("features: ")
    assert second.startswith("in use at a time: ")
    assert sum(float(bar.split()[1]) for bar in bars) == pytest.approx(1, abs=0.01)
    assert "at noise floor 0.2" in reason
    assert thali("howmany", survey, *QUICK, "--quiet").stderr == ""


@pytest.mark.parametrize("kind", ["factor-analysis", "ica"])
def test_models_with_weights(thali, survey: Path, kind: str) -> None:
    result = thali("fit", survey, *QUICK, "--observation", kind, "-o", "weights.thali", "--json", "--holdout", 0.1)
    assert result.exit_code == 3, result.stderr
    assert all(0 < share < 1 for share in np.atleast_1d(strict(result.stdout)["noise_floor"]))
    assert thali("transform", "weights.thali", survey).exit_code == 0
    assert thali("impute", "weights.thali", survey).exit_code == 0
    assert "ICA(" in thali("inspect", "weights.thali").stdout or kind != "ica"
    answer = strict(thali("howmany", survey, *QUICK, "--observation", kind, "--noise-floor", 0.1, "--json").stdout)
    assert answer["noise_floor"] == 0.1


def test_howmany_exits_0_when_the_chains_agree(thali, survey: Path, monkeypatch) -> None:
    fit = LatentFeatures.fit

    def agree(self, X, y=None):
        fit(self, X, y).converged_ = True
        return self

    monkeypatch.setattr(LatentFeatures, "fit", agree)
    assert thali("howmany", survey, *QUICK).exit_code == 0


def test_howmany_stopped_before_the_first_draw(thali, survey: Path, monkeypatch) -> None:
    def stop(self, X, y=None):
        raise KeyboardInterrupt("interrupted before the first draw")

    monkeypatch.setattr(LatentFeatures, "fit", stop)
    result = thali("howmany", survey, *QUICK, "-q")
    assert result.exit_code == 130
    assert "interrupted before the first draw" in result.stderr


@pytest.mark.parametrize(
    "options", [["--noise-floor", "1.5"], ["--chains", "0"], ["--noise", "loud"], ["--seed", "-1"]]
)
def test_howmany_wrong_usage(thali, survey: Path, options: list[str]) -> None:
    assert thali("howmany", survey, *options).exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,\n2,\n", "observed cell"),
        ("", "empty"),
        ("a\nx\n", "line 2, column 1 ('a'): expected a number"),
        (None, "no file"),
    ],
)
def test_howmany_bad_data(thali, here: Path, text: str | None, words: str) -> None:
    if text is not None:
        Path("bad.csv").write_text(text)
    refused(thali("howmany", "bad.csv", "-q"), "bad.csv", words)
