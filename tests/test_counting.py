"""how_many: one call, one answer, with its reason."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thali import (
    IBP,
    BetaBernoulli,
    BPMeans,
    CollapsedGibbs,
    HowMany,
    InvalidDataError,
    LinearGaussian,
    MeanField,
    how_many,
)
from thali.posteriors.variational import Variational


@pytest.fixture
def X(rng):  # noqa: N802 (the matrix has this name)
    A = np.array([[4.0, 4.0, 0, 0, 0], [0, 0, 4.0, 4.0, 0], [4.0, 0, 0, 0, -4.0]])
    return rng.integers(2, size=(80, 3)) @ A + 0.3 * rng.standard_normal((80, 5))


SETTINGS = {"inference": CollapsedGibbs(n_warmup=100, n_draws=60), "n_chains": 2, "random_state": 0}


def test_it_counts_what_persists(X):
    found = how_many(X, **SETTINGS)
    assert isinstance(found, HowMany)
    assert found.k == 3
    low, high = found.interval
    assert low <= 3 <= high
    assert sum(p for k, p in found.probabilities.items() if low <= k <= high) >= 0.9
    assert sum(found.probabilities.values()) == pytest.approx(1)
    assert found.reason.startswith("3 features persist and ")
    assert "more come and go on average; " in found.reason
    assert "converged" in found.reason


class Handmade(Variational):
    """A posterior of which only the law of K and the number of persistent features are known."""

    def __init__(self, law, n_persistent):
        self._law, self._n_persistent = law, n_persistent

    k_posterior = property(lambda self: self._law)
    consensus = property(lambda self: SimpleNamespace(columns=np.arange(self._n_persistent)))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.integers(0, 60), st.floats(1e-6, 1.0), min_size=1, max_size=40),
    st.integers(0, 70),
)
def test_the_number_always_lies_in_its_interval(weights, n_persistent):
    total = sum(weights.values())
    law = {k: w / total for k, w in weights.items()}
    posterior = Handmade(law, n_persistent)
    low, high = posterior.k_interval
    assert low <= posterior.k <= high
    assert sum(p for k, p in law.items() if low <= k <= high) >= 0.9 - 1e-9
    assert {low, high} <= set(law)
    if low <= n_persistent <= high:
        assert posterior.k == n_persistent
    else:
        assert posterior.k in (low, high)


@pytest.mark.parametrize(
    ("prior", "observation", "inference"),
    [
        (BetaBernoulli(mass=1.0, n_features=4), None, CollapsedGibbs(n_warmup=10, n_draws=20)),
        (None, None, MeanField(n_restarts=1)),
        (None, None, BPMeans(n_restarts=1)),
        (IBP(mass=1e-6), LinearGaussian(noise_var=50.0, feature_var=1e-3), CollapsedGibbs(n_warmup=5, n_draws=5)),
    ],
    ids=["finite", "variational", "point", "none"],
)
def test_one_story_for_every_posterior(X, prior, observation, inference):
    found = how_many(X, prior=prior, observation=observation, inference=inference, n_chains=2, random_state=0)
    low, high = found.interval
    assert low <= found.k <= high
    assert sum(p for k, p in found.probabilities.items() if low <= k <= high) >= 0.9
    if prior is not None and prior.replace(mass=1.0) == IBP(mass=1.0):
        assert (found.k, found.interval) == (0, (0, 0))


def test_the_noise_floor_is_named(X):
    found = how_many(X, observation=LinearGaussian(noise_floor=0.01), **SETTINGS)
    assert "persist at noise floor 0.01 and" in found.reason


def test_one_feature_and_none(rng):
    certain = LinearGaussian(noise_var=1.0, feature_var=25.0)
    one = how_many(10.0 * rng.integers(2, size=(30, 1)) + rng.standard_normal((30, 3)), observation=certain, **SETTINGS)
    assert (one.k, one.reason[:19]) == (1, "1 feature persists ")
    none = how_many(rng.standard_normal((30, 3)), observation=certain, **SETTINGS)
    assert (none.k, none.reason[:19]) == (0, "0 features persist ")


def test_settings_and_errors_are_those_of_the_estimator(X):
    with pytest.raises(InvalidDataError):
        how_many("text")
    with pytest.raises(TypeError, match="colour"):
        how_many(X, colour=3)


def test_the_name_stays_a_function():
    import thali.counting  # the module must not take the function's place

    assert thali.how_many is how_many
