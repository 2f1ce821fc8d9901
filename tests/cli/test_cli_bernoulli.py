"""Zeros and ones on the command line: a model is an option because it is exported."""

import json
from pathlib import Path

import numpy as np
import pytest

import thali as library
from thali import observations
from thali.cli.model_options import Observation, option_of

BITS = ("--observation", "bernoulli")


@pytest.fixture
def answers(here: Path, rng: np.random.Generator) -> Path:
    """40 rows of two features, some cells empty."""
    Z = rng.integers(2, size=(40, 2))
    X = np.where(rng.random((40, 6)) < np.where(Z @ np.kron(np.eye(2), np.ones(3)) > 0, 0.95, 0.1), "1", "0")
    X[0, 1] = X[7, 3] = ""
    Path("answers.csv").write_text("\n".join(["a,b,c,d,e,f", *map(",".join, X)]) + "\n")
    return Path("answers.csv")


def test_every_exported_model_is_an_option() -> None:
    assert {option.value for option in Observation} == {
        option_of(getattr(observations, name)()) for name in observations.__all__
    }
    assert all(option.make().words and option.kind is type(option.make()) for option in Observation)


def test_every_verb(thali, answers: Path) -> None:
    how = ("--chains", 2, "--warmup", 10, "--draws", 10, "--seed", 1, "--holdout", 0.1)
    result = thali("fit", answers, *BITS, *how, "--json", "-o", "fit.thali")
    assert result.exit_code in (0, 3), result.stderr
    assert "zeros and ones, 0.8 % missing" in result.stderr
    assert "-> zeros and ones" in result.stderr
    summary = json.loads(result.stdout)
    assert (summary["observation"], summary["noise_floor"]) == ("bernoulli", None)
    assert set(summary["hyperparameters"]) == {"mass", "feature_var", "offset"}
    assert summary["heldout"]["model"] < 0
    assert f"mean of each dim {summary['heldout']['mean']:.3f}" in result.stderr
    for verb in (("inspect", "fit.thali"), ("transform", "fit.thali", answers), ("impute", "fit.thali", answers)):
        result = thali(*verb)
        assert result.exit_code == 0, result.stderr
    filled = np.loadtxt(result.stdout.splitlines(), delimiter=",", skiprows=1)
    assert ((filled >= 0) & (filled <= 1)).all()
    assert 0 < filled[0, 1] < 1


def test_other_numbers_and_settings_of_noise_are_refused(thali, answers: Path) -> None:
    result = thali("fit", answers, *BITS, "--noise", "per-dim", "--noise-floor", 0.1)
    assert result.exit_code == 2
    words = " ".join(result.stderr.replace("│", " ").split())
    assert "--noise and --noise-floor are not for zeros and ones; leave them out." in words
    np.save("real.npy", np.array([[0.5, 1.0], [0.0, 1.0]]))
    result = thali("fit", "real.npy", *BITS)
    assert result.exit_code == 1
    assert "must hold zeros and ones" in result.stderr


def test_simulate_and_offset(thali, here: Path) -> None:
    result = thali("simulate", *BITS, "--rows", 12, "--dims", 4, "--seed", 1, "-o", "made.csv")
    assert result.exit_code == 0, result.stderr
    X = np.loadtxt("made.csv", delimiter=",", skiprows=1)
    assert np.isin(X, (0.0, 1.0)).all()
    result = thali("simulate", *BITS, "--rows", 12, "--dims", 4, "--noise-var", 2.0, "-o", "other.csv")
    assert result.exit_code != 0
    assert "not for zeros and ones" in " ".join(result.stderr.replace("│", " ").split())


def test_a_learned_offset_is_learned_in_the_models_own_way() -> None:
    from thali.cli.model_options import Offset, make_observation

    assert make_observation(Observation("bernoulli"), None, None, Offset.LEARNED) == library.Bernoulli()
    assert make_observation(Observation("bernoulli"), None, None, Offset.NONE).offset is None
