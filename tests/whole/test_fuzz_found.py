"""Inputs that fuzzing found: each has its own test."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from fuzzed_fits import fit_model_to_data, fitted, fitted_data
from right_results import QUICK, check_use

import thali
from thali import IBP, Beta, BetaBernoulli, Gamma, LatentFeatures, LinearGaussian, LogNormal


@pytest.mark.timeout(60)
@pytest.mark.parametrize("size", [1e6, 1e30, 1e140])
def test_an_outlier_is_encoded_in_no_time(size: float) -> None:
    """It asks for as many unknown features as it has standard deviations."""
    X = np.array([[size, -size, 0.0]])
    check_use(fitted(), X, X)
    assert fitted().novelty(X) == pytest.approx(1)


@pytest.mark.timeout(60)
def test_numbers_whose_squares_vanish_are_refused() -> None:
    X = np.zeros((7, 4))
    X[4, 0] = 3e-155
    with pytest.raises(thali.InvalidDataError, match="multiply X by a constant"):
        LatentFeatures(inference=QUICK.replace(start="spectral")).fit(X)


def test_presence_with_hardly_any_noise() -> None:
    """Features that no row tells apart make their posterior ill-conditioned."""
    X = np.full((6, 4), -3.65600875)
    X[2, 0], X[4, 1] = -0.5, 0.09375
    observation = LinearGaussian(noise_var=LogNormal(0.0, 9.0), feature_var=1.0)
    fit_model_to_data(X, observation, IBP(1.0, 2.0, 0.5))


def test_a_beta_distribution_may_stand_for_any_positive_number() -> None:
    observation = LinearGaussian(noise_var=Beta(2, 2), feature_var=Beta(1, 1))
    fit_model_to_data(fitted_data(), observation, IBP(concentration=Beta(1, 1)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("observation", "prior"),
    [
        (LinearGaussian(noise_var=1e-300), BetaBernoulli(n_features=5)),
        (LinearGaussian(feature_var=1e-8, noise_var=1e-8), IBP()),
        (LinearGaussian(), IBP(mass=1e6)),
        (LinearGaussian(), IBP(mass=Gamma(1e9, 1.0))),
    ],
    ids=["noise", "tiny features", "mass", "learned mass"],
)
def test_a_model_that_cannot_suit_the_data_says_so(observation: LinearGaussian, prior: Any) -> None:
    with pytest.raises(thali.InvalidParameterError, match=r"must suit the scale of X|up to 1e6"):
        LatentFeatures(observation, prior, QUICK, n_chains=1, n_jobs=1, random_state=0).fit(100 * fitted_data())


@pytest.mark.parametrize("value", [10**400, Fraction(1, 2), 1e7], ids=["beyond floats", "fraction", "large"])
def test_a_mass_that_is_no_plain_number(value: Any) -> None:
    with pytest.raises(thali.InvalidParameterError, match=r"IBP\.mass must be a positive number up to 1e6"):
        IBP(mass=value)
