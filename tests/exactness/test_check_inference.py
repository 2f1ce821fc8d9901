"""The contract of a sampler is only certified by data that a wrong sampler would fail on."""

import numpy as np
import pytest
from tiny import data

from thali import IBP, CollapsedGibbs, LinearGaussian
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.observations.gaussian.rows import BitRows
from thali.testing import check_inference

QUICK = {"n_steps": 60, "max_features": 6}
PRIOR = IBP(mass=0.8)
FIXED = {"noise_var": 0.25, "feature_var": 1.0}


class SizesOnly(BitRows):
    def prepare(self, X):
        return super().prepare(np.abs(X))


class FirstDimOnly(BitRows):
    def prepare(self, X):
        return super().prepare(np.where(np.arange(X.shape[1]) > 0, 0.0, X))


class SignForgotten(LinearGaussian):
    """Takes each cell for its size."""

    engines = LinearGaussian.engines | {ChainRows: SizesOnly}


class OneDim(LinearGaussian):
    """Sees the first dim only, the others as zeros."""

    engines = LinearGaussian.engines | {ChainRows: FirstDimOnly}


def check(kind, X, rng):
    check_inference(CollapsedGibbs(start="empty", moves=0.0), Model(PRIOR, kind(**FIXED)), X, rng, **QUICK)


def test_a_right_sampler_passes_on_data_that_say_something(rng):
    check(LinearGaussian, data(), rng)


@pytest.mark.parametrize("wrong", [pytest.param(SignForgotten, marks=pytest.mark.slow), OneDim])
def test_a_wrong_one_fails_on_them(wrong, rng):
    with pytest.raises(AssertionError, match="off by z"):
        check(wrong, data(), rng)


@pytest.mark.parametrize(
    "wrong",
    [pytest.param(LinearGaussian, marks=pytest.mark.slow), pytest.param(OneDim, marks=pytest.mark.slow), SignForgotten],
)
def test_nothing_is_certified_on_zeros(wrong, rng):
    """All of them pass the comparison there, the wrong ones too."""
    with pytest.raises(AssertionError, match="X says too little: a sampler that takes X for zeros"):
        check(wrong, np.zeros((3, 2)), rng)


@pytest.mark.slow
def test_every_dim_must_count(rng):
    X = data()
    X[:, 1] = 0.0
    with pytest.raises(AssertionError, match="X says too little: a sampler that takes the odd dims for zeros"):
        check(OneDim, X, rng)
