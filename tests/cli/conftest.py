"""What the tests of the command line share."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from thali.cli.main import app

Thali = Callable[..., Result]


@pytest.fixture(autouse=True)
def same_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `--seed`, verbs in this process still draw the same numbers in every run of the tests."""
    numbers = np.random.default_rng(0)
    monkeypatch.setattr("secrets.randbelow", lambda n: int(numbers.integers(n)))


@pytest.fixture
def thali() -> Thali:
    """Run `thali` with these arguments in this process."""

    def invoke(*arguments: object, **options: object) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)
        half = [line for line in result.stderr.splitlines() if line.lstrip()[:1] in set(";,.:!?)")]
        assert not half, f"the beginning of these messages is missing: {half}"
        return result

    return invoke


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def survey(here: Path, rng: np.random.Generator) -> Path:
    """60 rows x 5 dims with a header and two missing cells."""
    Z = rng.integers(0, 2, (60, 2))
    X = Z @ np.array([[3.0, 3, 0, 0, 0], [0, 0, 0, 3, 3]]) + rng.standard_normal((60, 5))
    lines = [[f"{value:.4f}" for value in row] for row in X]
    lines[0][1] = lines[7][3] = ""
    path = here / "survey.csv"
    path.write_text("\n".join(["a,b,c,d,e", *map(",".join, lines)]) + "\n")
    return path
