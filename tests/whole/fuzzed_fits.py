"""Fits, models, settings and junk for fuzzing."""

import math
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from right_results import QUICK, accepted, check_fit, check_use

from thali import (
    IBP,
    Beta,
    BetaBernoulli,
    CollapsedGibbs,
    Gamma,
    InverseGamma,
    LatentFeatures,
    LinearGaussian,
    LogNormal,
    NormalOffset,
    PerDim,
)


def fit_model_to_data(X: np.ndarray, observation: LinearGaussian, prior: Any) -> None:
    model = LatentFeatures(observation, prior, QUICK, n_chains=1, n_jobs=1, random_state=1)
    if accepted(lambda: model.fit(X)):
        check_fit(model, *X.shape)
        check_use(model, X, X)


OBSERVATIONS = st.builds(
    LinearGaussian,
    noise_var=st.sampled_from([1.0, InverseGamma(1.0, 0.1, relative=True), PerDim(), Gamma(2.0, 1.0), LogNormal()]),
    feature_var=st.sampled_from([None, 1.0, InverseGamma(2.0, 1.0), Gamma(1.0, 1.0, relative=True)]),
    offset=st.sampled_from([None, NormalOffset()]),
)
PRIORS = st.sampled_from(
    [IBP(), IBP(Gamma(2, 1), Gamma(1, 1), Beta(1, 3)), IBP(1.0, 2.0, 0.5), BetaBernoulli(), BetaBernoulli(1.0, 2)]
)


def fitted_data() -> np.ndarray:
    """12 x 3, a cell missing."""
    rng = np.random.default_rng(0)
    X = rng.integers(2, size=(12, 2)) @ np.array([[4.0, 4, 0], [0, 0, 4]]) + 0.3 * rng.standard_normal((12, 3))
    X[0, 1] = np.nan
    return X


@cache
def fitted() -> LatentFeatures:
    options = {"n_chains": 2, "n_jobs": 1, "random_state": 0}
    return LatentFeatures(inference=CollapsedGibbs(n_warmup=5, n_draws=4), **options).fit(fitted_data())


JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 10**400, 0.0, -0.0, 0.5, 1.0, 1.5, -1.0, 1e-300, 1e300, math.nan, math.inf, 1j,
    "", "1", "auto", b"x", np.float32(0.5), np.float64(2.0), np.int64(2), np.uint8(3), np.bool_(True), np.array(0.5),
    np.array([0.5, 0.5]), np.array([1, 2, 3]), np.array(["a"]), np.zeros((2, 2)), np.zeros(0), [], [1.0], [0.5] * 3,
    [[1], [2, 3]], (), (1.0, 2.0), {}, {"a": 1}, set(), Fraction(1, 2), Fraction(10**400), Decimal("0.5"), pd.NA,
    pd.Series([0.5, 0.5, 0.5]), Gamma(1, 1), Gamma(1, 1, relative=True), InverseGamma(2, 1), Beta(1, 1), LogNormal(),
    PerDim(), NormalOffset(), NormalOffset(centre=1.0), IBP(), BetaBernoulli(), LinearGaussian(), CollapsedGibbs(),
    IBP, Gamma, object(), len, lambda x: x, range(3), slice(1), NotImplemented, Ellipsis, np.datetime64("2020-01-01"),
]  # fmt: skip
ANYTHING = st.sampled_from(JUNK)
SETTINGS: dict[str, Any] = {
    "n_chains": st.integers(1, 2),
    "n_jobs": st.sampled_from([None, -1, 1, 2]),
    "random_state": st.integers(0, 2**70) | st.builds(np.random.default_rng, st.just(0)),
    "verbose": st.sampled_from([None, False, True]),
    "max_time": st.floats(1e-9, 1e9),
    "target_ess": st.floats(1e-9, 1e9),
    "checkpoint": st.sampled_from([None, "kept", Path("run")]),
    "prior": PRIORS,
    "observation": OBSERVATIONS,
    "inference": st.just("auto"),
}
