"""`thali fit` with times, coordinates or distances of the rows."""

from pathlib import Path

import numpy as np
import pytest

import thali as library
from thali import Coordinates, DistanceDependentIBP, HierarchicalBetaProcess, Times

QUICK = ("--chains", 1, "--warmup", 3, "--draws", 4, "--seed", 7)


@pytest.fixture
def walk(here: Path) -> Path:
    """30 rows with a time, and two features each on for a stretch."""
    rng = np.random.default_rng(0)
    Z = np.zeros((30, 2))
    Z[:18, 0] = Z[12:, 1] = 1
    X = Z @ (2 * rng.standard_normal((2, 4))) + 0.3 * rng.standard_normal((30, 4))
    lines = [",".join(f"{v:.4f}" for v in (i * 0.5, *row)) for i, row in enumerate(X)]
    (here / "walk.csv").write_text("\n".join(["t,a,b,c,d", *lines]) + "\n")
    np.savetxt(here / "apart.csv", np.abs(np.subtract.outer(np.arange(30), np.arange(30))) * 0.5, delimiter=",")
    return here / "walk.csv"


@pytest.mark.slow
def test_rows_near_each_other(thali, walk: Path) -> None:
    found = []
    for option in (("--times", "t"), ("--times", "1"), ("--coordinates", "t")):
        result = thali("fit", walk, *QUICK, *option, "--overwrite")
        assert result.exit_code in (0, 3), result.stderr
        assert "DistanceDependentGibbs" in result.stderr
        found.append(library.load("walk.thali"))
        assert found[-1].n_features_in_ == 4
        assert list(found[-1].feature_names_in_) == list("abcd")
    kinds = [type(fit.posterior_.model.prior.distances) for fit in found]
    assert kinds == [Times, Times, Coordinates]
    assert isinstance(found[0].posterior_.model.prior, DistanceDependentIBP)
    assert np.array_equal(found[0].history_["log_joint"], found[1].history_["log_joint"])
    result = thali("fit", walk, *QUICK, "--distances", "apart.csv", "--overwrite")
    assert result.exit_code in (0, 3), result.stderr


@pytest.mark.slow
def test_rows_that_follow_groups(thali, walk: Path) -> None:
    result = thali("fit", walk, *QUICK, "--times", "t", "--prior", "hierarchical")
    assert result.exit_code in (0, 3), result.stderr
    assert "HierarchicalGibbs" in result.stderr
    fit = library.load("walk.thali")
    assert isinstance(fit.posterior_.model.prior, HierarchicalBetaProcess)
    assert isinstance(fit.posterior_.model.prior.distances, Times)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--times", "when"), "no column of the data"),
        (("--times", "t", "--coordinates", "a,b"), "Give one of"),
        (("--times", "t", "--prior", "beta-bernoulli", "--max-features", 3), "leave --prior out"),
        (("--prior", "hierarchical"), "needs one of --times"),
    ],
)
def test_what_cannot_be_is_said(thali, walk: Path, options: tuple[str, ...], words: str) -> None:
    result = thali("fit", walk, *QUICK, *options)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())
