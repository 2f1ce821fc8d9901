"""loading_classes: classes that were planted are found, and what cannot be grouped is refused."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import adjusted_rand_score
from thinned import thinned

from thali import (
    Gibbs,
    InvalidDataError,
    InvalidParameterError,
    LatentFeatures,
    LinearGaussian,
    NormalOffset,
    SparseFactorAnalysis,
)
from thali.core.protocols.engines.chains import ChainRows
from thali.grouping import LoadingClasses, loading_classes
from thali.observations.sparse.class_chain import begin, log_cells, step
from thali.testing import z_limit

QUICK = {"n_warmup": 20, "n_draws": 30}
PREFERENCES = 2.0 * np.array([[1, 1, -1, -1, -1, -1], [-1, -1, 1, 1, -1, -1], [-1, -1, -1, -1, 1, 1]])


def planted(seed, n_owners, n_values, noise):
    """(data with a row for each owner, class of each)."""
    rng = np.random.default_rng(seed)
    classes = np.arange(n_owners) % 3
    means = PREFERENCES[classes]
    loadings = (rng.random(means.shape) < expit(means)) * (means + 0.3 * rng.standard_normal(means.shape))
    Y = loadings @ rng.standard_normal((6, n_values)) + noise * rng.standard_normal((n_owners, n_values))
    return Y, classes


def fit(X, observation, n_warmup=40, n_draws=30):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inference = Gibbs(n_warmup=n_warmup, n_draws=n_draws)
        return LatentFeatures(observation, inference=inference, n_chains=1, random_state=0, verbose=False).fit(X)


@pytest.fixture(scope="module")
def small():
    """(fit, X) of dims, with missing cells."""
    Y, _ = planted(1, 24, 16, 0.6)
    X = 3.0 + Y.T
    X[2, 3] = X[5, 7] = np.nan
    return fit(X, SparseFactorAnalysis()), X


@pytest.mark.parametrize("sparse", thinned(["dims", "rows"]))
def test_planted_classes_are_found(sparse):
    Y, classes = planted(0, 150, 60, 1.5)
    X = Y.T if sparse == "dims" else Y
    # an offset of the values would take away the means of loadings, which rows of a class share
    model = fit(X, SparseFactorAnalysis(sparse=sparse, scale=1.0, offset=None), 150, 100)
    found = loading_classes(model, X, n_warmup=100, n_draws=100, share=0.4)
    gap = found.scores[3]
    assert gap.behind <= z_limit(len(found.scores)) * gap.behind_error, found.scores
    assert found.scores[1].behind > 0, found.scores
    found = found if found.n_classes == 3 else loading_classes(model, X, 3, n_warmup=100, n_draws=100)
    assert adjusted_rand_score(classes, found.classes) > 0.8
    same = classes[:, None] == classes
    assert found.co_clustering[same].mean() > 0.8
    assert found.co_clustering[~same].mean() < 0.2


def test_what_it_gives(small):
    model, X = small
    found = loading_classes(model, X, (1, 3), **QUICK)
    assert isinstance(found, LoadingClasses)
    assert found.n_classes == max(found.scores, key=lambda number: found.scores[number].mean)
    assert list(found.scores) == [1, 3]
    best, other = (found.scores[number] for number in (found.n_classes, 4 - found.n_classes))
    assert best.behind == best.behind_error == 0.0
    assert other.behind == pytest.approx(best.mean - other.mean)
    assert all(score.error > 0 for score in found.scores.values())
    together = found.co_clustering
    assert together.shape == (24, 24)
    np.testing.assert_allclose(together, together.T)
    np.testing.assert_allclose(np.diag(together), 1.0)
    assert (np.diff(np.bincount(found.classes, minlength=found.n_classes)) <= 0).all()
    assert found.preferences.shape == (found.n_classes, model.n_components_)


def test_the_seed_decides(small):
    model, X = small
    first, second, third = (loading_classes(model, X, 2, **QUICK, random_state=seed) for seed in (4, 4, 5))
    assert first.scores == second.scores
    np.testing.assert_array_equal(first.preferences, second.preferences)
    assert first.scores != third.scores


def test_rows_may_own_the_loadings():
    Y, _ = planted(2, 20, 8, 0.6)
    found = loading_classes(fit(Y, SparseFactorAnalysis(sparse="rows")), Y, 2, **QUICK)
    assert found.co_clustering.shape == (20, 20)


def test_one_class_holds_all(small):
    found = loading_classes(*small, 1, **QUICK)
    assert (found.co_clustering == 1).all()
    assert (found.classes == 0).all()


@pytest.mark.parametrize("sparse", ["dims", "rows"])
def test_the_density_of_a_cell_is_in_the_units_of_the_data(sparse, rng):
    X = np.array([10.0, -5.0, 0.3]) * rng.standard_normal((6, 3)) + 100.0
    spec = SparseFactorAnalysis(sparse=sparse, offset=NormalOffset()).adapt(X)
    data = spec.engine(ChainRows).prepare(X)
    loadings = rng.standard_normal((data.n_rows, 2))
    state = step(rng, spec, data, begin(rng, spec.draw(rng, 3), data, loadings, 2))
    cells = rng.random(X.shape) < 0.5
    model, local = state.observation, state.local
    mean = model.by_owner(local.v @ local.factors) * np.sqrt(model.unit_squares) + model.offset
    var = model.by_owner(np.tile(local.noise[:, None], data.n_cells)) * model.unit_squares
    left = model.from_origin(X) - mean
    wanted = -0.5 * (np.log(2 * np.pi * var) + left**2 / var)
    np.testing.assert_allclose(log_cells(state, data, X, cells), wanted[cells])


def test_owners_alike_begin_in_the_same_class(rng):
    """A start has as many classes as patterns of loadings, where these are plain."""
    Y, classes = planted(3, 60, 10, 0.1)
    spec = SparseFactorAnalysis(sparse="rows", scale=1.0, offset=None)
    data = spec.engine(ChainRows).prepare(Y)
    loadings = (PREFERENCES > 0)[classes] * (1.5 + 0.1 * rng.standard_normal((60, 6)))
    loadings[:, 2] *= -1  # its sign is a convention
    state = begin(rng, spec, data, loadings, 3)
    assert adjusted_rand_score(classes, state.classes) == 1.0
    assert (state.local.v >= 0).all()


# ---- what is refused


@pytest.mark.parametrize(
    "settings",
    [
        {"n_classes": 0},
        {"n_classes": ()},
        {"n_classes": (2, 2)},
        {"n_classes": (1, 25)},
        {"n_classes": 1.5},
        {"n_warmup": -1},
        {"n_draws": 0},
        {"share": 0.0},
        {"share": 1.0},
        {"share": "half"},
        {"random_state": "seed"},
    ],
    ids=repr,
)
def test_other_settings_are_refused(settings, small):
    with pytest.raises(InvalidParameterError, match=next(iter(settings))):
        loading_classes(*small, **settings)


def test_other_models_are_refused(small):
    linear = SimpleNamespace(posterior_=SimpleNamespace(model=SimpleNamespace(observation=LinearGaussian())))
    for model, what in ((linear, "a fit of LinearGaussian"), (LatentFeatures(SparseFactorAnalysis()), "Lat"), (3, "3")):
        with pytest.raises(InvalidParameterError, match=f"with SparseFactorAnalysis. Got {what}"):
            loading_classes(model, small[1])


def test_other_data_are_refused(small):
    model, X = small
    with pytest.raises(InvalidDataError, match="not the data of this fit"):
        loading_classes(model, X[:-1])


def test_a_fit_without_factors_is_refused():
    X = np.tile([1.0, 2.0, 3.0, 4.0], (12, 1))
    model = fit(X, SparseFactorAnalysis())
    assert model.n_components_ == 0
    with pytest.raises(InvalidParameterError, match="no factor that persists"):
        loading_classes(model, X)
