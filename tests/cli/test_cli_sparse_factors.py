"""Sparse factors on the command line: every verb, and what dims that own features change."""

import json
from pathlib import Path

import numpy as np
import pytest

SPARSE = ("--observation", "sparse-factors")


@pytest.fixture
def genes(here: Path, rng: np.random.Generator) -> Path:
    """Two factors of 8 dims in 40 rows, in odd units, one dim constant, some cells empty."""
    G = np.kron(np.eye(2), np.ones(4)) * rng.uniform(1.0, 2.0, (2, 8))
    X = (rng.standard_normal((40, 2)) @ G + 0.3 * rng.standard_normal((40, 8))) * 10.0 ** np.arange(-4, 4) + 5.0
    cells = np.column_stack([X, np.full(40, 7.0)]).astype(str)
    cells[0, 1] = cells[7, 3] = ""
    Path("genes.csv").write_text("\n".join(["a,b,c,d,e,f,g,h,same", *map(",".join, cells)]) + "\n")
    return Path("genes.csv")


@pytest.mark.parametrize(
    "how",
    [
        ("--chains", 2, "--warmup", 20, "--draws", 20),
        pytest.param(("--inference", "mean-field"), marks=pytest.mark.slow),
    ],
)
def test_every_verb(thali, genes: Path, how) -> None:
    result = thali("fit", genes, *SPARSE, *how, "--seed", 1, "--holdout", 0.1, "--json", "-o", "fit.thali")
    assert result.exit_code in (0, 3), result.stderr
    summary = json.loads(result.stdout)
    assert summary["observation"] == "sparse-factors"
    for verb in (("transform", "fit.thali", genes), ("impute", "fit.thali", genes)):
        result = thali(*verb)
        assert result.exit_code == 0, result.stderr
    filled = np.loadtxt(result.stdout.splitlines(), delimiter=",", skiprows=1)
    assert np.isfinite(filled).all()
    assert (filled[:, 8] == 7.0).all()
    shown = json.loads(thali("inspect", "fit.thali", "--json").stdout)["fit"]
    for feature in shown["features"]:
        assert set(feature["presence"]) == set(shown["dim_names"])
        assert feature["presence"]["same"] < 0.5 < feature["presence"][feature["largest"][0]["dim"]]


def test_presence_of_rows_is_refused(thali, genes: Path) -> None:
    how = ("--chains", 1, "--warmup", 2, "--draws", 2, "--seed", 1)
    assert thali("fit", genes, *SPARSE, *how, "-o", "fit.thali").exit_code in (0, 3)
    result = thali("transform", "fit.thali", genes, "--presence")
    assert result.exit_code == 2
    words = " ".join(result.stderr.replace("│", " ").split())
    assert "rows have a score of each" in words
    assert "inspect fit.thali --json" in words
