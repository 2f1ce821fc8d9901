"""how_many: one call, one answer, with its reason."""

import numpy as np
import pytest

from thali import CollapsedGibbs, HowMany, InvalidDataError, LinearGaussian, how_many


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
