"""Whatever parameters come in: a right fit, or a refusal in words."""

from typing import Any

import numpy as np
import pytest
from fuzzed_fits import ANYTHING, SETTINGS, fit_model_to_data, fitted_data
from fuzzing import Fuzz, each_of, run
from hypothesis import strategies as st
from right_results import QUICK, accepted, check_fit, folder

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

DISTRIBUTIONS = [Gamma, InverseGamma, Beta, LogNormal, PerDim, NormalOffset]
SPECS = [IBP, BetaBernoulli, LinearGaussian, CollapsedGibbs, *DISTRIBUTIONS]
MILD = st.one_of(st.floats(0.01, 20), st.sampled_from([1e-8, 1e6]))
SIZES = MILD | st.sampled_from([1e-300, 1e-30, 1e30, 1e300])
GOOD: dict[str, Any] = {
    "n_warmup": st.integers(0, 2),
    "n_draws": st.integers(1, 3),
    "thin": st.integers(1, 2),
    "n_features": st.integers(1, 5),
    "start": st.sampled_from(["search", "spectral", "annealed", "empty"]),
    "group": st.integers(1, 6),
    "moves": st.booleans(),
    "relative": st.booleans(),
    "noise_floor": st.floats(0, 0.9) | st.just([0.1, 0.2, 0.3]),
    "discount": st.floats(0, 0.9),
    "mean": st.floats(-3, 3),
    "offset": st.sampled_from([None, [0.0] * 3, NormalOffset()]),
    "scale": SIZES | st.sampled_from([None, [1.0, 2.0, 3.0]]),
    "noise_var": SIZES | st.sampled_from([[0.5, 1.0, 2.0], PerDim()]),
    "feature_var": SIZES | st.none(),
    "level": st.just(Gamma(2, 1)),
    "centre": st.sampled_from([None, 0.5, [1.0] * 3]),
}


@st.composite
def distribution(draw: Any) -> Any:
    """With sensible and with odd numbers. (Shapes such as 1e-300 give stray warnings before they are refused.)"""
    kind = draw(st.sampled_from(DISTRIBUTIONS))
    names = [name for name in kind().get_params(deep=False) if name not in ("relative", "level", "centre", "mean")]
    return kind(**{name: draw(MILD) for name in names})


FEW = [
    Gamma(1, 1),
    Gamma(0.1, 1),
    InverseGamma(3, 1),
    Beta(1, 1),
    LogNormal(0, 1),
    PerDim(),
    NormalOffset(),
]  # features


@st.composite
def fields(draw: Any, kind: Any) -> dict[str, Any]:
    """Any values for some fields of a spec, whether they make sense or not."""
    names = draw(st.sets(st.sampled_from(sorted(kind().get_params(deep=False))), max_size=3))
    sorts = st.sampled_from(["good", "good", "learned", "anything"])
    learned = distribution() if kind not in (IBP, BetaBernoulli) else st.sampled_from(FEW)
    return {
        name: draw({"good": GOOD.get(name, SIZES), "learned": learned, "anything": ANYTHING}[draw(sorts)])
        for name in sorted(names)
    }


def build_any_spec(kind: Any, data: Any) -> Any:
    values = data.draw(fields(kind))
    built = accepted(lambda: kind(**values))
    if built is not None:
        assert built == built.replace(**{name: getattr(built, name) for name in values})
        assert kind.__name__ in repr(built)
    return built


def check_any_spec(kind: Any, data: Any) -> None:
    build_any_spec(kind, data)


def fit_any_model(data: Any) -> None:
    X = fitted_data()[:6]
    prior = build_any_spec(data.draw(st.sampled_from([IBP, BetaBernoulli])), data)
    observation = build_any_spec(LinearGaussian, data)
    if prior is not None and observation is not None:
        fit_model_to_data(X, observation, prior)


def fit_any_settings(data: Any) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(SETTINGS)), min_size=1, max_size=4))
    values = {name: data.draw(SETTINGS[name] | ANYTHING) for name in sorted(names)}
    inference = values.get("inference", "auto")
    if isinstance(inference, CollapsedGibbs) or (isinstance(inference, str) and inference == "auto"):
        values["inference"] = QUICK  # those would take their time
    X = fitted_data()[:5]
    heldout = data.draw(st.none() | st.just(np.ones((5, 3))) | ANYTHING)
    with folder() as path, pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        model = LatentFeatures(**{"n_chains": 1, "n_jobs": 1} | values)
        if accepted(lambda: model.fit(X, heldout=heldout)):
            check_fit(model, *X.shape)
            accepted(lambda: model.save("fit.thali"))
        assert not list(path.rglob("*.part"))


def set_any_parameters(name: str, value: Any) -> None:
    model = LatentFeatures(inference=QUICK, n_chains=1)
    accepted(lambda: model.set_params(**{name: value}))


PARTS = (("prior", IBP), ("observation", LinearGaussian), ("inference", CollapsedGibbs))
NESTED = [f"{part}__{name}" for part, kind in PARTS for name in [*kind().get_params(), "colour", "mass__colour", ""]]
FUZZ: dict[str, Fuzz] = {
    "specs": (200, check_any_spec, {"kind": st.sampled_from(SPECS), "data": st.data()}),
    "any-model": (120, fit_any_model, {"data": st.data()}),
    "settings": (60, fit_any_settings, {"data": st.data()}),
    "nested": (80, set_any_parameters, {"name": st.sampled_from(NESTED), "value": ANYTHING}),
}


@each_of(FUZZ)
def test_fuzz(name: str, thorough: bool) -> None:
    run(FUZZ[name], thorough)
