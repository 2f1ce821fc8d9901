"""`thali doctor`."""

import json
from collections import Counter
from importlib import metadata
from math import lgamma

import numpy as np
import pytest

from thali.cli import known_answer
from thali.cli.verbs import doctor
from thali.kernels._cache_folders import Folders


def test_it_finds_this_installation_healthy(thali) -> None:
    result = thali("doctor")
    assert result.exit_code == 0, result.stdout
    for name in ("python", "thali", "numpy", "scipy", "scikit-learn", "numba", "arviz-stats", "cores", "BLAS"):
        assert f" {name} " in result.stdout
    assert "all is well" in result.stdout


def test_json_lists_every_finding(thali) -> None:
    report = json.loads(thali("doctor", "--json").stdout)
    assert report["healthy"] is True
    assert {"name", "value", "status", "remedy"} == set(report["findings"][0])
    assert "small fit" in {finding["name"] for finding in report["findings"]}


def test_a_wrong_number_is_a_problem(thali, monkeypatch) -> None:
    monkeypatch.setattr(known_answer, "_LOG_JOINT", -1.0)
    result = thali("doctor")
    assert result.exit_code == 1
    assert "PROBLEM small fit       log p(X, Z) is -114.06" in result.stdout
    assert "expected -1.0" in result.stdout


def test_what_is_missing_comes_with_its_remedy(thali, monkeypatch) -> None:
    version = metadata.version

    def without(package: str) -> str:
        if package in ("scipy", "matplotlib"):
            raise metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(metadata, "version", without)
    monkeypatch.setattr(known_answer, "check", list)
    result = thali("doctor")
    assert result.exit_code == 1
    assert "pip install scipy" in result.stdout
    assert 'pip install "thali[report]"' in result.stdout
    assert "--      matplotlib" in result.stdout


def test_an_absent_extra_alone_is_healthy(thali, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "_requirements", lambda: [("no-such-package", "report")])
    monkeypatch.setattr(known_answer, "check", list)
    assert thali("doctor").exit_code == 0


@pytest.mark.parametrize(("found", "text"), [(None, "compilation is off"), (Folders((), None), "no writable folder")])
def test_a_cache_that_cannot_be_written_is_a_problem(thali, monkeypatch, found: Folders | None, text: str) -> None:
    monkeypatch.setattr("thali.cli.warm_up.cache_folders", lambda: found)
    monkeypatch.setattr(known_answer, "check", list)
    result = thali("doctor")
    assert result.exit_code == 1
    assert text in result.stdout


def test_a_check_that_breaks_down_is_a_problem(thali, monkeypatch) -> None:
    def break_down() -> list[str]:
        raise OSError("no locator")

    monkeypatch.setattr(known_answer, "check", break_down)
    result = thali("doctor")
    assert result.exit_code == 1
    assert "OSError: no locator" in result.stdout


def test_the_known_answer_follows_from_the_definitions() -> None:
    from scipy.stats import multivariate_normal

    X, Z = known_answer.data()
    n_rows = len(Z)
    marginal = multivariate_normal(np.zeros(n_rows), 1.5 * np.eye(n_rows) + 4.0 * Z @ Z.T)
    likelihood = sum(marginal.logpdf(X[:, d]) for d in range(X.shape[1]))
    histories = Counter(map(tuple, Z.T))
    prior = -sum(1 / i for i in range(1, n_rows + 1)) - sum(lgamma(n + 1) for n in histories.values())
    prior += sum(lgamma(n_rows - m + 1) + lgamma(m) - lgamma(n_rows + 1) for m in Z.sum(axis=0))
    assert likelihood + prior == pytest.approx(known_answer._LOG_JOINT, rel=1e-12)
