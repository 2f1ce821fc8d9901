"""Convergence verdicts."""

import math

import numpy as np
import pytest

from thali.diagnostics import Diagnosis, diagnose, verdict


def one(values):
    return diagnose({"x": np.asarray(values)})["x"]


def test_constant_chains_that_agree_are_good():
    d = one(np.full((4, 50), 3))
    assert d == Diagnosis(1.0, 200.0)
    assert d.good


def test_constant_chains_that_differ_are_not():
    d = one(np.repeat([[1], [1], [1], [2]], 50, axis=1))
    assert d.r_hat == math.inf
    assert not d.good


def test_independent_draws_are_good(rng):
    d = one(rng.standard_normal((4, 500)))
    assert d.good
    # the ESS of n independent draws is n up to the error of its own estimate, of order sqrt(n) times a few
    assert 1000 < d.ess < 4000


def test_one_chain_is_judged_by_its_halves(rng):
    assert one(rng.standard_normal((1, 500))).good
    assert not one(rng.standard_normal((1, 500)) + np.linspace(0, 5, 500)).good


@pytest.mark.parametrize("shift", [1.0, 5.0])
def test_chains_apart_are_not_good(rng, shift):
    d = one(rng.standard_normal((4, 200)) + shift * np.arange(4)[:, None])
    assert d.r_hat > 1.05
    assert not d.good


def test_one_stuck_chain_is_not_good(rng):
    values = rng.standard_normal((4, 200))
    values[0] = 0.0
    values[0] += 4.0
    assert not one(values).good


def test_a_sticky_chain_has_a_small_ess(rng):
    values = np.repeat(rng.standard_normal((2, 10)), 20, axis=1)
    d = one(values)
    assert d.ess < 100
    assert not d.good


@pytest.mark.parametrize("n_draws", [2, 3])
def test_too_few_draws_to_judge(rng, n_draws):
    d = one(rng.standard_normal((2, n_draws)))
    assert math.isnan(d.r_hat)
    assert not d.good


def test_integers_and_several_summaries(rng):
    found = diagnose({"n_features": rng.integers(3, 6, size=(4, 500)), "mass": rng.gamma(2.0, size=(4, 500))})
    assert list(found) == ["n_features", "mass"]
    assert all(d.good for d in found.values())


def test_words(rng):
    good = {"mass": Diagnosis(1.01, 400.0), "n_on": Diagnosis(1.0, 300.0)}
    assert verdict(good).startswith("converged")
    assert "1.01" in verdict(good)
    assert "300" in verdict(good)
    bad = verdict(good | {"n_features": Diagnosis(1.5, 20.0)})
    assert bad.startswith("not converged")
    for word in ("n_features", "1.50", "ESS 20", "What to do", "n_draws", "number of features"):
        assert word in bad
    assert "mass" not in bad
    assert "number of features" not in verdict({"mass": Diagnosis(1.5, 20.0)})
    assert "nan" in verdict({"mass": Diagnosis(math.nan, math.nan)})
