"""`thali inspect`, and files that are no fit."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from answers import LOADS, QUICK, refused, strict

import thali as library
from thali import CollapsedGibbs, LatentFeatures
from thali.io import read_table


def test_inspect_shows_all(thali, survey: Path) -> None:
    result = thali("inspect", "survey.thali")
    assert result.exit_code == 0
    assert result.stderr == ""
    model = library.load("survey.thali")
    for words in (
        f"60 rows x 5 dims, fingerprint {model.data_fingerprint_[:12]}",
        "LinearGaussian() x IBP()",
        "CollapsedGibbs(n_warmup=5, n_draws=10): as asked",
        "2 chains x 10 draws, seed 1",
        model.check(),
        f"features: {model.posterior_.k}",
        f"{model.n_components_} persist",
        "noise floor   0",
        "mass ",
        "noise_var ",
        "free energy",
        "stability",
    ):
        assert words in result.stdout


def test_inspect_json(thali, survey: Path) -> None:
    about = strict(thali("inspect", "survey.thali", "--json").stdout)
    model = library.load("survey.thali")
    assert about["run"] is None
    fit = about["fit"]
    assert (fit["n_rows"], fit["n_dims"], fit["dim_names"]) == (60, 5, list("abcde"))
    assert fit["data_fingerprint"] == model.data_fingerprint_
    assert fit["n_persistent"] == model.n_components_ == len(fit["features"])
    assert fit["n_features"] == model.posterior_.k
    assert fit["k_posterior"] == {str(k): p for k, p in model.k_posterior_.items()}
    assert [chain["n_features"] for chain in fit["chains"]] == model.agreement_.n_features.tolist()
    assert [chain["free_energy"] for chain in fit["chains"]] == pytest.approx(model.agreement_.free_energy)
    assert [chain["reported"] for chain in fit["chains"]].index(True) == model.agreement_.best
    for feature, row in zip(fit["features"], model.components_, strict=True):
        assert 0 < feature["frequency"] <= 1
        assert 0 < feature["stability"] <= 1
        assert feature["largest"][0] == {"dim": "abcde"[np.argmax(np.abs(row))], "value": row[np.argmax(np.abs(row))]}
    assert fit["inference"]["n_draws"] == fit["n_draws"] == fit["n_draws_asked"] == 10
    assert set(fit["hyperparameters"]) == {"mass", "noise_var", "feature_var"}


def test_inspect_names_what_was_asked_for(thali, here: Path, rng: np.random.Generator) -> None:
    np.save("x.npy", rng.standard_normal((20, 2)))
    thali("fit", "x.npy", *QUICK, "--noise", "per-dim", "--noise-floor", 0.2, "--mass", 1.5)
    talk = thali("inspect", "x.thali").stdout
    assert "LinearGaussian(noise_var=PerDim(), noise_floor=0.2) x IBP(mass=1.5)" in talk
    assert "noise floor   0.2" in talk
    about = strict(thali("inspect", "x.thali", "--json").stdout)
    assert about["fit"]["dim_names"] == ["dim_0", "dim_1"]


def test_inspect_a_run_that_was_stopped(thali, survey: Path) -> None:
    thali("fit", survey, *QUICK, "--draws", 10**7, "--max-time", 1, "-o", "long.thali")
    both = thali("inspect", "long.thali")
    assert "10000000" in both.stdout
    assert "long.thali.run: a run that is not finished" in both.stdout
    assert "go on with it: thali resume long.thali" in both.stdout
    Path("long.thali").unlink()
    for name in ("long.thali", "long.thali.run", "long.thali.run/run.thali", "long.thali.run/chain-0.state.thali"):
        about = strict(thali("inspect", name, "--json").stdout)
        assert about["fit"] is None
        assert about["run"]["go_on_with"] == "thali resume long.thali"
        assert about["run"]["data_file"] == str(survey.resolve())
        assert [chain["n_draws"] > 0 for chain in about["run"]["chains"]] == [True, True]
    refused(thali("transform", "long.thali", survey), "thali resume long.thali")
    Path("long.thali.run/chain-1.state.thali").write_text("damaged")
    refused(thali("inspect", "long.thali"), "chain-1.state.thali")
    shutil.copy("survey.thali", "long.thali")
    beside = thali("inspect", "long.thali")
    assert beside.exit_code == 0
    assert "chain-1.state.thali" in beside.stderr
    assert "2 chains x 10 draws" in beside.stdout


def test_inspect_a_run_begun_from_python(thali, survey: Path) -> None:
    X = read_table(survey).X
    settings = {"n_chains": 1, "random_state": 0, "checkpoint": "kept", "max_time": 0.1}
    LatentFeatures(inference=CollapsedGibbs(n_warmup=0, n_draws=10**7), **settings).fit(X)
    assert "thali.resume('kept', X)" in thali("inspect", "kept").stdout


# --- a file that is no fit ------------------------------------------------------------------------


@pytest.mark.parametrize("verb", LOADS)
def test_not_a_fit(thali, survey: Path, verb: str) -> None:
    Path("empty.thali").touch()
    Path("cut.thali").write_bytes(Path("survey.thali").read_bytes()[:1000])
    Path("folder.thali").mkdir()
    before = sorted(Path().iterdir())
    for fit in ("survey.csv", "empty.thali", "cut.thali", "folder.thali", "absent.thali", "x" * 300):
        refused(thali(*verb.format(fit=fit).split()), fit)
    assert sorted(Path().iterdir()) == before
    assert "Traceback" in thali("--debug", *verb.format(fit="cut.thali").split()).stderr
