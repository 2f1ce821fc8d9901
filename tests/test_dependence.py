"""dependence_pays: one call, one table, and a sentence that says no more than the table does."""

import numpy as np
import pytest
import scipy.sparse as sp

from thali import (
    Bernoulli,
    Dependence,
    IncompatibleModelError,
    InvalidDataError,
    InvalidParameterError,
    WindowDecay,
    dependence_pays,
)
from thali.dependence import EXCHANGEABLE, Score, judged

QUICK = {"n_warmup": 10, "n_draws": 10, "n_chains": 1}


def stretches(rng, n_rows=40):
    """Three features, each on for a stretch of rows."""
    Z = np.zeros((n_rows, 3))
    for k, (first, last) in enumerate([(0, 18), (10, 30), (24, 40)]):
        Z[first:last, k] = 1
    return Z @ rng.normal(size=(3, 6)) + 0.8 * rng.normal(size=(n_rows, 6))


def score(gain, error, name="window", converged=True):
    return Score(name, None, gain - 1.0, gain, error, 1.0, 3, converged)


def test_one_call_one_table(rng):
    X = stretches(rng)
    X[3, 2] = np.nan
    found = dependence_pays(X, times=np.arange(40) * 5.0, hidden=0.2, **QUICK)
    assert isinstance(found, Dependence)
    names = [line.name for line in found.table]
    assert names == [EXCHANGEABLE, "exponential over 5", "exponential over 20", "exponential over 80"]
    assert found.best == max(found.table, key=lambda line: line.log_density).name
    assert (found.table[0].gain, found.table[0].gain_error) == (0.0, 0.0)
    for line in found.table[1:]:
        assert line.gain == pytest.approx(line.log_density - found.table[0].log_density)
        assert 0 < line.gain_error < 1
        assert 0.5 < line.rmse < 2.0
    text = str(found)
    assert all(name in text for name in names)
    assert text.endswith(found.reason)
    again = dependence_pays(X, coordinates=np.arange(40)[:, None] * 5.0, hidden=0.2, **QUICK)
    assert [line[2:] for line in again.table] == [line[2:] for line in found.table]


def test_decays_and_distances_of_ones_own(rng):
    X = stretches(rng)
    apart = np.abs(np.subtract.outer(np.arange(40.0), np.arange(40.0)))
    near = sp.csr_array(np.where(apart <= 3, apart, 0))
    tried = {"wide": WindowDecay(3.0), "bare": lambda d: np.exp(-d)}
    found = dependence_pays(X, distances=near, decays=tried, **QUICK)
    assert [line.name for line in found.table] == [EXCHANGEABLE, "wide", "bare"]
    assert found.table[1].prior.decay == WindowDecay(3.0)


@pytest.mark.parametrize(
    ("gains", "pays", "words"),
    [
        ([0.05, 0.2], True, r"Dependence pays: 'b' predicts hidden cells better by 0\.2000"),
        ([-0.3, -0.2], False, r"does not pay: every decay predicts hidden cells worse, the best of them by 0\.2000"),
        ([-0.3, 0.015], None, r"Cannot tell: the best decay, 'b', is better by 0\.0150"),
        ([-0.3, -0.015], None, r"Cannot tell: the best decay, 'b', is worse by 0\.0150"),
        ([-0.3, 0.0211], None, "Cannot tell"),  # 2.11 errors: the better of two looks so by chance
    ],
)
def test_the_sentence_is_that_of_the_table(gains, pays, words):
    table = (score(0.0, 0.0, EXCHANGEABLE), score(gains[0], 0.01, "a"), score(gains[1], 0.01, "b"))
    found = judged(table)
    assert found.pays is pays
    assert found.best == ("b" if gains[1] > 0 else EXCHANGEABLE)
    import re

    assert re.search(words, found.reason)
    assert "converged" not in found.reason


def test_fits_that_have_not_converged_are_counted():
    found = judged((score(0.0, 0.0, EXCHANGEABLE), score(0.5, 0.01, converged=False)))
    assert "1 of 2 fits has not converged" in found.reason


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"times": None}, InvalidParameterError, "how far rows are"),
        ({"times": np.zeros(40)}, InvalidParameterError, "Give decays"),
        ({"times": np.arange(7.0)}, InvalidDataError, "those of 7 rows"),
        ({"decays": {}}, InvalidParameterError, "decays must map"),
        ({"decays": {EXCHANGEABLE: "window"}}, InvalidParameterError, "is taken"),
        ({"decays": {"a": "linear"}}, InvalidParameterError, "decay must be one of"),
        ({"hidden": 1.0}, InvalidParameterError, "above 0 and below 1"),
        ({"hidden": 1e-9}, InvalidDataError, "hide more"),
        ({"observation": Bernoulli(), "X": np.eye(40)}, IncompatibleModelError, "No sampler serves Dist"),
    ],
)
def test_what_cannot_be_is_said(rng, changes, error, words):
    given = {"X": stretches(rng), "times": np.arange(40.0), **QUICK} | changes
    with pytest.raises(error, match=words):
        dependence_pays(given.pop("X"), **given)
