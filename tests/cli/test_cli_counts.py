"""Counts on the command line: every verb, dense and sparse files, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import thali as library
from thali.io import read_table

COUNTS = ("--observation", "poisson-gamma")


@pytest.fixture
def words(here: Path) -> Path:
    """Counts of two features, some cells empty."""
    X = library.datasets.counts(40, random_state=0).X[:, :12]
    X = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=float)
    np.save("words.npy", np.where(np.arange(X.size).reshape(X.shape) % 50 == 7, np.nan, X))
    return Path("words.npy")


@pytest.mark.parametrize("how", [("--chains", 2, "--warmup", 5, "--draws", 10), ("--inference", "mean-field")])
def test_every_verb(thali, words: Path, how) -> None:
    result = thali("fit", words, *COUNTS, *how, "--seed", 1, "--holdout", 0.1, "--json", "-o", "fit.thali")
    assert result.exit_code in (0, 3), result.stderr
    assert "whole numbers, 2.1 % missing" in result.stderr
    assert "-> counts" in result.stderr
    summary = json.loads(result.stdout)
    assert (summary["observation"], summary["noise_floor"]) == ("poisson-gamma", None)
    assert set(summary["hyperparameters"]) == {"mass", "weight_rate"}
    assert f"mean of each dim {summary['heldout']['mean']:.3f}" in result.stderr
    for verb in (("inspect", "fit.thali"), ("transform", "fit.thali", words), ("impute", "fit.thali", words)):
        result = thali(*verb)
        assert result.exit_code == 0, result.stderr
        assert "noise floor" not in result.stdout
    assert not np.isnan(np.loadtxt(result.stdout.splitlines(), delimiter=",", skiprows=1)).any()


def test_howmany(thali, words: Path) -> None:
    result = thali("howmany", words, *COUNTS, "--chains", 2, "--warmup", 5, "--draws", 10, "--json", "--seed", 1)
    assert result.exit_code in (0, 3), result.stderr
    assert json.loads(result.stdout)["noise_floor"] is None


def test_real_numbers_and_settings_of_noise_are_refused(thali, words: Path) -> None:
    result = thali("fit", words, *COUNTS, "--noise", "per-dim")
    assert result.exit_code == 2
    assert "not for counts" in result.stderr
    np.save("real.npy", np.full((3, 3), 0.5))
    result = thali("fit", "real.npy", *COUNTS)
    assert result.exit_code == 1
    assert "must hold counts" in result.stderr


def test_sparse_files_are_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = sparse.random_array((20, 7), density=0.3, rng=np.random.default_rng(0), format="csr")
    sparse.save_npz("some.npz", X)
    np.testing.assert_array_equal(read_table("some.npz").X, X.toarray())
    monkeypatch.setattr("thali.io.arrays._MOST_CELLS", 100)
    with pytest.raises(library.InvalidDataError, match="load it with scipy"):
        read_table("some.npz")


@pytest.mark.parametrize("kind", ["linear-gaussian", "factor-analysis", "ica", "poisson-gamma"])
def test_every_model_is_simulated(thali, here: Path, kind: str) -> None:
    result = thali("simulate", "--rows", 30, "--dims", 4, "--observation", kind, "--seed", 1, "-o", "made.npz")
    assert result.exit_code == 0, result.stderr
    X = read_table("made.npz").X
    assert X.shape == (30, 4)
    assert (np.all(np.round(X) == X) and X.min() >= 0) == (kind == "poisson-gamma")


def test_counts_have_no_noise(thali, here: Path) -> None:
    result = thali("simulate", "--rows", 3, "--dims", 4, *COUNTS, "--noise-var", 0.1)
    assert result.exit_code == 2
    assert "not for counts" in result.stderr
