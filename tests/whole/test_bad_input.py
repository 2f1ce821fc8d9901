"""Everything that cannot work is refused before any sampling, in words: what was expected, what was got."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from thali import (
    IBP,
    BetaBernoulli,
    CollapsedGibbs,
    Gamma,
    IncompatibleModelError,
    InvalidDataError,
    InvalidParameterError,
    InverseGamma,
    LatentFeatures,
    LinearGaussian,
    NormalOffset,
)
from thali.core.protocols.engines.chains import MarginalRows
from thali.errors import ThaliError


@pytest.fixture(autouse=True)
def no_sampling(monkeypatch):
    """A step of any chain fails the test."""

    def init(*args, **kwargs):
        pytest.fail("sampling began")

    monkeypatch.setattr(CollapsedGibbs, "init", init)


def good():
    return np.random.default_rng(0).standard_normal((12, 3))


def with_cells(cells, value):
    X = good()
    X[cells] = value
    return X


BAD_DATA = {
    "strings": np.array([["a", "b"], ["c", "d"]]),
    "objects": np.array([["a", 1], [2, 3]], dtype=object),
    "objects that are no numbers": np.array([[{}, 1], [2, 3]], dtype=object),
    "data frame with text": pd.DataFrame({"x": [1.0, 2.0], "y": ["a", "b"]}),
    "complex": good() + 1j,
    "infinity": with_cells((3, 1), np.inf),
    "minus infinity": with_cells((3, 1), -np.inf),
    "no rows": np.zeros((0, 3)),
    "no dims": np.zeros((3, 0)),
    "one axis": good()[0],
    "three axes": good()[None],
    "a number": 3.0,
    "nothing": None,
    "a word": "data.csv",
    "rows of different lengths": [[1.0, 2.0], [3.0]],
    "a wholly missing dim": with_cells((slice(None), 1), np.nan),
    "a wholly missing row": with_cells(4, np.nan),
    "all missing": np.full((3, 2), np.nan),
    "sparse": scipy.sparse.csr_matrix(good()),
    "numbers too large to square": good() * 1e200,
}


def copy(X):
    return X.copy() if hasattr(X, "copy") else X


def unchanged(X, before):
    if isinstance(X, pd.DataFrame):
        return X.equals(before)
    if scipy.sparse.issparse(X):
        return (before != X).nnz == 0
    if isinstance(X, np.ndarray) and X.dtype.kind in "fc":
        return np.array_equal(X, before, equal_nan=True)
    return np.array_equal(X, before) if isinstance(X, np.ndarray) else before == X


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data(name):
    X = BAD_DATA[name]
    before = copy(X)
    with pytest.raises(InvalidDataError, match="Got"):
        LatentFeatures().fit(X)
    assert unchanged(X, before)


@pytest.mark.parametrize("name", ["strings", "complex", "infinity", "one axis", "three axes", "a wholly missing dim"])
def test_bad_data_given_to_an_observation_model(name):
    X = BAD_DATA[name]
    before = copy(X)
    model = LinearGaussian(noise_var=1.0, feature_var=1.0)
    with pytest.raises(InvalidDataError, match="Got"):
        model.engine(MarginalRows).log_marginal(X, np.ones((len(X), 1)))
    assert unchanged(X, before)


NOT_POSITIVE = [0, 0.0, -1.0, np.nan, np.inf, -np.inf, "1", None, True, 1j, [1.0], {}, Gamma, Gamma(1, 1).sample]
NOT_A_COUNT = [0, -1, 1.5, 2.0, np.nan, np.inf, "3", None, True]


def cases(kind, field, values):
    return [pytest.param(kind, field, v, id=f"{kind.__name__}.{field}={v!r:.40}") for v in values]


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        *cases(IBP, "mass", NOT_POSITIVE),
        *cases(IBP, "concentration", NOT_POSITIVE),
        *cases(IBP, "discount", [-0.1, 1, 1.5, np.nan, "0", None, Gamma(1, 1)]),
        *cases(BetaBernoulli, "mass", NOT_POSITIVE),
        *cases(BetaBernoulli, "n_features", NOT_A_COUNT),
        *cases(LinearGaussian, "feature_var", [v for v in NOT_POSITIVE if v is not None]),
        *cases(LinearGaussian, "noise_var", [v for v in NOT_POSITIVE if v != [1.0]]),
        *cases(LinearGaussian, "noise_var", [[], [1.0, 0.0], [1.0, np.nan], [[1.0]], np.ones((2, 2)), [[1], [2, 3]]]),
        *cases(LinearGaussian, "noise_var", [NormalOffset()]),
        *cases(LinearGaussian, "offset", [1.0, "x", [np.nan], [np.inf], np.zeros((2, 2)), [[1], [2, 3]], [1j]]),
        *cases(LinearGaussian, "noise_floor", [-0.1, 1.0, np.nan, "0", None, [0.1, 2.0], [[1], [2, 3]]]),
        *cases(LinearGaussian, "scale", [0.0, -1.0, [1.0, np.nan], "x", [[1], [2, 3]]]),
        *cases(CollapsedGibbs, "n_warmup", [v for v in NOT_A_COUNT if v != 0]),
        *cases(CollapsedGibbs, "n_draws", NOT_A_COUNT),
        *cases(CollapsedGibbs, "thin", NOT_A_COUNT),
        *cases(Gamma, "shape", NOT_POSITIVE),
        *cases(Gamma, "rate", NOT_POSITIVE),
        *cases(InverseGamma, "scale", NOT_POSITIVE),
        *cases(NormalOffset, "spread", NOT_POSITIVE),
    ],
)
def test_bad_hyperparameters(kind, field, value):
    with pytest.raises(InvalidParameterError, match=rf"^{kind.__name__}\.{field} must be .*Got"):
        kind(**{field: value})


def test_a_floor_for_a_fixed_noise():
    with pytest.raises(InvalidParameterError, match="noise_floor"):
        LinearGaussian(noise_var=1.0, noise_floor=0.1)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n_chains", [0, -1, 1.5, 2.0, "2", None, True, np.nan]),
        ("n_jobs", [0, -2, 1.5, "2", True, [1]]),
        ("random_state", [-1, 1.5, "seed", True, [1], np.nan]),
        ("prior", [3, "IBP", IBP, [], LinearGaussian]),
        ("observation", [3, "LinearGaussian", LinearGaussian, []]),
        ("inference", [3, "gibbs", CollapsedGibbs, None, [], IBP()]),
    ],
)
def test_bad_settings_of_the_estimator(name, values):
    for value in values:
        X = good()
        with pytest.raises(ThaliError, match=rf"{name}.*Got") as caught:
            LatentFeatures(**{name: value}).fit(X)
        assert isinstance(caught.value, InvalidParameterError)
        assert np.array_equal(X, good())


def test_components_in_each_others_place():
    for prior in (LinearGaussian(), Gamma(1, 1)):
        with pytest.raises((IncompatibleModelError, InvalidParameterError)):
            LatentFeatures(prior=prior).fit(good())
    with pytest.raises((IncompatibleModelError, InvalidParameterError)):
        LatentFeatures(observation=IBP()).fit(good())


@pytest.mark.parametrize(
    "parameters",
    [
        {"offset": np.zeros(2)},
        {"offset": [0.0] * 4},
        {"noise_var": np.ones(2)},
        {"noise_var": [1.0] * 4},
        {"noise_floor": np.full(2, 0.1)},
        {"scale": np.ones(2)},
        {"offset": NormalOffset(centre=np.zeros(2))},
    ],
    ids=repr,
)
def test_vectors_of_the_wrong_length(parameters):
    with pytest.raises((InvalidDataError, InvalidParameterError), match="3 dims"):
        LatentFeatures(LinearGaussian(**parameters)).fit(good())


def test_unknown_parameters():
    with pytest.raises(TypeError, match="colour"):
        IBP(colour=1)
    with pytest.raises(ValueError, match="colour"):
        LatentFeatures().set_params(colour=1)
    with pytest.raises(InvalidParameterError, match="colour"):
        LatentFeatures().set_params(prior__colour=1)
    with pytest.raises(InvalidParameterError, match=r"IBP\.mass .*Got -1"):
        LatentFeatures().set_params(prior__mass=-1)
