"""A fit and its data, for the verbs that use them."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from answers import QUICK
from typer.testing import CliRunner

from thali.cli.main import app
from thali.io import Table, write_table


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with survey.csv and its fit: 60 rows with names x 5 dims with names, two cells missing."""
    folder = tmp_path_factory.mktemp("kept")
    rng = np.random.default_rng(0)
    Z = rng.integers(0, 2, (60, 2))
    X = (Z @ np.array([[3.0, 3, 0, 0, 0], [0, 0, 0, 3, 3]]) + rng.standard_normal((60, 5))).round(3)
    X[0, 1] = X[7, 3] = np.nan
    names = tuple(f"r{i}" for i in range(60))
    write_table(Table(X, names, tuple("abcde"), "", "id"), folder / "survey.csv")
    arguments = ["fit", folder / "survey.csv", "-o", folder / "survey.thali", "-q", *QUICK]
    assert CliRunner().invoke(app, list(map(str, arguments))).exit_code == 3
    return folder


@pytest.fixture
def survey(kept: Path, here: Path) -> Path:
    for path in kept.iterdir():
        shutil.copy(path, here)
    return Path("survey.csv")
