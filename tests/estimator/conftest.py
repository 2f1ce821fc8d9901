"""Data and a fit for the tests of the estimator."""

import pytest
from short_fits import estimator, make


@pytest.fixture
def X(rng):  # noqa: N802 (the matrix has this name)
    return make(40, rng)[0]


@pytest.fixture
def m(X):
    return estimator().fit(X)
