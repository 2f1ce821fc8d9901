"""`thali simulate` and `thali bound`."""

import json
from pathlib import Path

import numpy as np
import pytest

from thali import IBP, BetaProcess, suggest_truncation, truncation_bounds
from thali.io import read_table

SMALL = ("--rows", 30, "--dims", 4, "--seed", 7)
PRIORS = {
    "ibp": ["--mass", 2, "--concentration", 3, "--discount", 0.2],
    "beta-bernoulli": ["--max-features", 5],
    "stick-breaking": ["--mass", 2, "--max-features", 6],
    "beta-process": ["--mass", 2, "--concentration", 2, "--rounds", 4],
    "distance-dependent": ["--mass", 2, "--decay", "window", "--decay-width", 3],
    "hierarchical": ["--mass", 2, "--group-concentration", 0.5, "--decay", "logistic"],
}


def plain(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


# --- simulate -------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", PRIORS)
def test_every_prior_can_be_simulated(thali, here: Path, prior: str) -> None:
    result = thali("simulate", *SMALL, "--prior", prior, *PRIORS[prior], "--noise-var", 0.25)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "30 rows x 4 dims" in result.stderr
    assert "seed 7" in result.stderr
    truth = plain(Path("simulated.npz"))
    n_features = truth["Z"].shape[1]
    assert (truth["X"].shape, truth["Z"].shape, truth["features"].shape) == ((30, 4), (30, n_features), (n_features, 4))
    assert set(np.unique(truth["Z"])) <= {0, 1}
    assert (truth["noise_var"], truth["seed"], str(truth["prior"])) == (0.25, 7, prior)
    assert truth["mass"] > 0
    left = truth["X"] - truth["Z"] @ truth["features"]
    assert 0.1 < left.var() < 0.5  # the noise and nothing else


def test_the_same_seed_gives_the_same_data(thali, here: Path) -> None:
    for name in ("a.npz", "b.npz"):
        assert thali("simulate", *SMALL, "-o", name, "--quiet").stderr == ""
    a, b = plain(Path("a.npz")), plain(Path("b.npz"))
    assert all(np.array_equal(a[name], b[name]) for name in a)
    thali("simulate", "--rows", 30, "--dims", 4, "--seed", 8, "-o", "c.npz")
    assert not np.array_equal(plain(Path("c.npz"))["X"], a["X"])


def test_csv_has_the_truth_beside_it(thali, here: Path) -> None:
    thali("simulate", *SMALL, "--mass", 2, "-o", "a.npz")
    result = thali("simulate", *SMALL, "--mass", 2, "-o", "a.csv", "--json")
    truth = plain(Path("a.npz"))
    assert np.array_equal(read_table(Path("a.csv")).X, truth["X"])
    assert np.array_equal(read_table(Path("a-Z.csv")).X, truth["Z"])
    assert np.array_equal(read_table(Path("a-features.csv")).X, truth["features"])
    parameters = json.loads(Path("a-parameters.json").read_text())
    assert (parameters["mass"], parameters["seed"], parameters["prior"]) == (2.0, 7, "ibp")
    assert parameters["noise_var"] == truth["noise_var"]
    about = json.loads(result.stdout)
    assert about["files"] == ["a.csv", "a-Z.csv", "a-features.csv", "a-parameters.json"]
    assert about["n_features"] == truth["Z"].shape[1]
    assert about["parameters"]["feature_var"] == truth["feature_var"]


def test_a_draw_without_features_is_written_too(thali, here: Path) -> None:
    for name in ("none.npz", "none.csv"):
        result = thali("simulate", *SMALL, "--mass", 1e-9, "-o", name)
        assert result.exit_code == 0, result.stderr
    assert plain(Path("none.npz"))["Z"].shape == (30, 0)


@pytest.mark.parametrize("taken", ["a.csv", "a-Z.csv", "a-parameters.json"])
def test_files_are_not_replaced_unasked(thali, here: Path, taken: str) -> None:
    Path(taken).write_text("mine")
    result = thali("simulate", *SMALL, "-o", "a.csv")
    assert result.exit_code == 1
    assert f"{taken} exists" in result.stderr
    assert "--overwrite" in result.stderr
    assert [path.name for path in here.iterdir()] == [taken]
    assert thali("simulate", *SMALL, "-o", "a.csv", "--overwrite").exit_code == 0
    assert Path(taken).read_text() != "mine"


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("a.xlsx", "must end in .npz or .csv"),
        ("a", "must end in"),
        ("no/a.npz", "there is no folder"),
        ("d.npz", "folder"),
    ],
)
def test_output_that_cannot_be_written_exits_1(thali, here: Path, output: str, words: str) -> None:
    Path("d.npz").mkdir()
    result = thali("simulate", *SMALL, "-o", output)
    assert result.exit_code == 1
    assert words in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dims", 3], "rows"),
        (["--rows", 3], "dims"),
        (["--rows", 0, "--dims", 3], "--rows"),
        (["--rows", 3.5, "--dims", 3], "--rows"),
        (["--rows", 10**9, "--dims", 10**9], "cells"),
        ([*SMALL, "--mass", -1], "IBP.mass must be a positive number"),
        ([*SMALL, "--mass", "nan"], "IBP.mass must be a positive number"),
        (["--rows", 10**8, "--dims", 1, "--mass", 5], "cells"),
        ([*SMALL, "--prior", "gaussian"], "--prior"),
        ([*SMALL, "--prior", "beta-bernoulli"], "needs --max-features"),
        ([*SMALL, "--rounds", 3], "--rounds is no option of --prior ibp"),
        ([*SMALL, "--prior", "distance-dependent", "--decay", "constant", "--decay-width", 3], "has no width"),
        ([*SMALL, "--prior", "distance-dependent", "--decay-width", 0], "--decay-width must be"),
        (
            ["--rows", 10**6, "--dims", 1, "--prior", "distance-dependent"],
            "too many. Use fewer rows, or --decay window",
        ),
        (["--rows", 10**5, "--dims", 1, "--prior", "hierarchical", "--decay", "window"], "too many. Use fewer rows."),
        (["--rows", 10**5, "--dims", 1, "--prior", "distance-dependent", "--decay", "window", "--mass", 2], "cells"),
        (["--rows", 10**8, "--dims", 1, "--prior", "stick-breaking", "--max-features", 50], "cells"),
        (["--rows", 10**8, "--dims", 1, "--prior", "beta-process", "--mass", 50], "cells"),
        ([*SMALL, "--noise-var", 0], "noise_var"),
        ([*SMALL, "--seed", -1], "--seed"),
    ],
)
def test_wrong_use_of_simulate_exits_2(thali, here: Path, arguments: list[object], words: str) -> None:
    result = thali("simulate", *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert list(here.iterdir()) == []


# --- bound ----------------------------------------------------------------------------------------


def test_bound_says_what_the_library_says(thali) -> None:
    result = thali("bound", "--rows", 30, "--mass", 5, "--truncation", 30, "--json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["probabilities"] == pytest.approx(dict(truncation_bounds(IBP(mass=5.0), 30, 30)))
    assert (answer["unit"], answer["truncation"], answer["validity"]) == ("features", 30, None)
    assert answer["suggested_truncation"] == suggest_truncation(IBP(mass=5.0), 30)


def test_bound_in_words(thali) -> None:
    result = thali("bound", "--rows", 5000, "--mass", 3, "--prior", "beta-process", "--concentration", 2,
                   "--truncation", 30, "--max-features", 100)  # fmt: skip
    lines = result.stdout.splitlines()
    assert lines[0] == "P(some of 5 000 rows has a feature beyond 30 rounds)"
    assert lines[1].split() == ["exact", "0.0684608"]
    assert "Theorem 1" in lines[6]
    validity = truncation_bounds(BetaProcess(mass=3.0, concentration=2.0, truncation=100), 5000, 30).validity
    assert lines[7] == f"100 features hold all of these rounds with probability {validity:.6g}"
    assert lines[8] == "enough for 0.01: 35 rounds"


def test_bound_without_truncation_is_that_of_the_suggestion(thali) -> None:
    answer = json.loads(thali("bound", "--rows", 1000, "--mass", 2, "--tolerance", 0.05, "--json").stdout)
    assert answer["truncation"] == answer["suggested_truncation"]
    assert answer["probabilities"]["exact"] <= 0.05


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mass", 1], "rows"),
        (["--rows", 10], "mass"),
        (["--rows", 0, "--mass", 1], "--rows"),
        (["--rows", 10, "--mass", 0], "mass must be a positive number"),
        (["--rows", 10, "--mass", 1, "--truncation", 0], "--truncation"),
        (["--rows", 10, "--mass", 1, "--truncation", 10**13], "from 1 to"),
        (["--rows", 10, "--mass", 1, "--tolerance", 1], "tolerance must be a number between 0 and 1"),
        (["--rows", 10, "--mass", 1, "--max-features", 5], "belongs to --prior beta-process"),
        (["--rows", 10, "--mass", 1, "--concentration", 2], "--concentration is no option of --prior stick-breaking"),
        (["--rows", 10, "--mass", 1, "--prior", "beta-bernoulli"], "--prior"),
    ],
)
def test_wrong_use_of_bound_exits_2(thali, arguments: list[object], words: str) -> None:
    result = thali("bound", *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


@pytest.mark.parametrize("verb", ["simulate", "bound"])
def test_help(thali, verb: str) -> None:
    result = thali(verb, "--help")
    assert result.exit_code == 0
    assert "--prior" in result.stdout
