"""Whatever rows, codes, masks and numbers a fit is asked about: a right answer, or a refusal in words."""

import warnings
from typing import Any

import numpy as np
from fuzzed_fits import ANYTHING, fitted
from fuzzing import Fuzz, each_of, run
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from odd_data import ANY_DATA, EXTREME, cells
from right_results import accepted, check_use, is_share

METHODS = ["presence", "transform", "impute", "score_samples", "score", "novelty", "inverse_transform", "heldout_score"]
LIKE_FIT = arrays(np.float64, st.tuples(st.integers(1, 4), st.just(3)), elements=cells(np.nan, *EXTREME))
MASKS = arrays(bool, st.tuples(st.integers(1, 4), st.integers(2, 3)))


def use_any_data(method: str, X: Any, extra: Any) -> None:
    more = (extra,) if method in ("impute", "heldout_score") else ()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X has feature names")  # scikit-learn's own, and wanted by its checks
        warnings.filterwarnings("ignore", message="pandas.DataFrame with sparse columns")
        found = accepted(lambda: getattr(fitted(), method)(X, *more))
    if found is not None:
        for part in found if isinstance(found, tuple) else (found,):
            assert np.isfinite(part).all()
            assert method not in ("presence", "transform", "novelty") or is_share(part)


def use_like_data(X: np.ndarray) -> None:
    if accepted(lambda: fitted().presence(X)) is not None:
        check_use(fitted(), X, X)


def sample_any(n: Any, random_state: Any) -> None:
    found = accepted(lambda: fitted().sample(n, random_state))
    if found is not None:
        assert found.shape == (n, 3)


FUZZ: dict[str, Fuzz] = {
    "use": (150, use_any_data, {"method": st.sampled_from(METHODS), "X": ANY_DATA | LIKE_FIT, "extra": ANYTHING}),
    "use-on-rows": (60, use_like_data, {"X": LIKE_FIT}),
    "interval": (60, use_any_data, {"method": st.just("impute"), "X": LIKE_FIT, "extra": ANYTHING}),
    "mask": (60, use_any_data, {"method": st.just("heldout_score"), "X": LIKE_FIT, "extra": MASKS | ANYTHING}),
    "codes": (60, use_any_data, {"method": st.just("inverse_transform"), "X": ANY_DATA | MASKS, "extra": st.none()}),
    "sample": (40, sample_any, {"n": ANYTHING, "random_state": ANYTHING}),
}


@each_of(FUZZ)
def test_fuzz(name: str, thorough: bool) -> None:
    run(FUZZ[name], thorough)
