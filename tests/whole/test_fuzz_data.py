"""Whatever data come in: a right fit, or a refusal in words."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from fuzzed_fits import OBSERVATIONS, PRIORS, fit_model_to_data
from fuzzing import Fuzz, each_of, run
from hypothesis import strategies as st
from odd_data import ODD_THINGS, extreme, frames, odd_arrays, plain
from right_results import QUICK, accepted, check_fit, check_use

from thali import LatentFeatures


def as_floats(X: Any) -> np.ndarray:
    """The cells of data that were accepted."""
    X = X.to_numpy(dtype=float, na_value=np.nan) if isinstance(X, pd.DataFrame) else X
    return np.asarray(X, dtype=float)


def unchanged(X: Any) -> Any:
    """Something that is equal for the same data."""
    if isinstance(X, pd.DataFrame | pd.Series):
        return X.to_csv()
    if scipy.sparse.issparse(X):
        return X.toarray().tobytes()
    return (X.tobytes(), X.shape) if isinstance(X, np.ndarray) and X.dtype != object else repr(X)


def fit_any_data(X: Any, n_chains: int, start: str) -> None:
    before = unchanged(X)
    model = LatentFeatures(inference=QUICK.replace(start=start), n_chains=n_chains, n_jobs=1, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="pandas.DataFrame with sparse columns")  # scikit-learn's own
        if accepted(lambda: model.fit(X)):
            values = as_floats(X)
            check_fit(model, *values.shape)
            check_use(model, X, values)
    assert unchanged(X) == before


STARTS = st.sampled_from(["search", "spectral", "annealed", "empty", "empty"])
FUZZ: dict[str, Fuzz] = {
    "plain-data": (60, fit_any_data, {"X": plain(), "n_chains": st.integers(1, 2), "start": STARTS}),
    "extreme-data": (100, fit_any_data, {"X": extreme(), "n_chains": st.just(1), "start": STARTS}),
    "odd-arrays": (80, fit_any_data, {"X": odd_arrays(), "n_chains": st.just(1), "start": st.just("empty")}),
    "frames": (60, fit_any_data, {"X": frames(), "n_chains": st.just(1), "start": st.just("empty")}),
    "odd-things": (12, fit_any_data, {"X": ODD_THINGS, "n_chains": st.just(1), "start": st.just("empty")}),
    "models": (80, fit_model_to_data, {"X": plain(), "observation": OBSERVATIONS, "prior": PRIORS}),
}


@each_of(FUZZ)
def test_fuzz(name: str, thorough: bool) -> None:
    run(FUZZ[name], thorough)
