"""LatentFeatures as scikit-learn sees it, and as a user does."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from short_fits import SHORT, A, estimator, make, same
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from thali import CollapsedGibbs, LatentFeatures, LinearGaussian, NormalOffset, PerDim
from thali.errors import InvalidDataError


@parametrize_with_checks([LatentFeatures(inference=SHORT, n_chains=2)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([LatentFeatures()])
def test_scikit_learn_checks_of_the_defaults(estimator, check):
    check(estimator)


# ---- what a fit shows


def test_attributes(m, X):
    K = m.n_components_
    assert m.components_.shape == (K, 5)
    assert sum(m.k_posterior_.values()) == pytest.approx(1)
    assert m.stability_.shape == (K,)
    assert m.n_features_in_ == 5
    assert m.history_["n_features"].shape == (2, 20)
    assert m.posterior_.draws["n_features"].shape == (2, 10)
    assert m.inference_.inference == SHORT
    assert isinstance(m.inference_.reason, str)
    assert isinstance(m.converged_, bool)
    assert m.check().startswith("converged" if m.converged_ else "not converged")
    summaries = {"n_features", "n_on", "log_joint", "mass", "noise_var", "feature_var"}
    assert set(m.posterior_.draws) == summaries | {"free_energy"}
    assert set(m.diagnostics_) == summaries


def test_finds_the_features_of_clear_data(rng):
    X, Z = make(80, rng, noise=0.1)
    m = estimator(inference=CollapsedGibbs(n_warmup=150, n_draws=30)).fit(X)
    assert m.n_components_ == 3
    rebuilt = m.inverse_transform(m.transform(X).round())
    assert np.sqrt(np.mean((rebuilt - Z @ A) ** 2)) < 0.1
    held_out, _ = make(200, rng, noise=0.1)
    best = -0.5 * 5 * (np.log(2 * np.pi * 0.01) + 1) - 3 * np.log(2)  # log density of a typical row of the truth
    assert abs(m.score(held_out) - best) < 1.0


def test_presence_transform_and_back(m, X):
    presence = m.presence(X)
    assert presence.shape == (40, m.n_components_)
    assert ((presence >= 0) & (presence <= 1)).all()
    assert np.array_equal(m.transform(X), presence)
    assert m.inverse_transform(presence).shape == X.shape
    np.testing.assert_allclose(m.inverse_transform(presence), presence @ m.components_)
    assert m.score_samples(X).shape == (40,)
    assert m.score(X) == pytest.approx(m.score_samples(X).mean())


def test_the_offset_is_undone(X):
    offset = np.arange(5.0)
    m = estimator(observation=LinearGaussian(offset=offset)).fit(X + offset)
    n = estimator().fit(X)
    np.testing.assert_allclose(m.inverse_transform(np.zeros((2, m.n_components_))), [offset, offset])
    np.testing.assert_allclose(m.transform(X + offset), n.transform(X), atol=1e-6)
    listed = estimator(observation=LinearGaussian(offset=offset.tolist())).fit(X + offset)
    assert same(listed, m)


def test_vectors_may_be_lists(X):
    model = {"noise_var": [0.1, 0.2, 0.1, 0.2, 0.1], "feature_var": 9.0}
    listed = estimator(observation=LinearGaussian(**model)).fit(X)
    assert same(
        listed, estimator(observation=LinearGaussian(**model | {"noise_var": np.array(model["noise_var"])})).fit(X)
    )


@pytest.mark.parametrize("shape", [(40, 2), (40,), (40, 99)])
def test_codes_of_the_wrong_shape(m, shape):
    codes = np.zeros(shape)
    if codes.shape[1:] == (m.n_components_,):
        pytest.skip("that is the right shape")
    with pytest.raises(InvalidDataError, match=r"codes .* Got"):
        m.inverse_transform(codes)


@pytest.mark.parametrize("method", ["transform", "presence", "score", "score_samples", "inverse_transform", "check"])
def test_before_fit(method, X):
    with pytest.raises(NotFittedError):
        getattr(LatentFeatures(), method)(*([] if method == "check" else [X]))


# ---- missing cells


def test_missing_cells_in_fit_and_transform(X, rng):
    holes = rng.random(X.shape) < 0.15
    holes[:, 0] = False
    m = estimator().fit(np.where(holes, np.nan, X))
    codes = m.transform(np.where(holes, np.nan, X))
    assert np.isfinite(codes).all()
    assert np.isfinite(m.score_samples(np.where(holes, np.nan, X))).all()
    assert np.array_equal(codes[~holes.any(axis=1)], m.transform(X)[~holes.any(axis=1)])


def test_a_wholly_missing_row_gets_the_prior(m, X):
    X = np.vstack([X[:3], np.full(5, np.nan)])
    counts, log_odds = m.posterior_.encoder.codebook.counts, m.posterior_.encoder.log_odds
    np.testing.assert_allclose(m.transform(X)[3], expit(log_odds), atol=1e-9)
    np.testing.assert_allclose(expit(log_odds), counts / 41)  # the one-parameter IBP: m / n
    np.testing.assert_allclose(m.score_samples(X)[3], 0.0, atol=1e-9)


def test_rows_are_encoded_one_by_one(m, X):
    together = m.transform(X)
    apart = np.vstack([m.transform(x[None]) for x in X])
    np.testing.assert_allclose(together, apart, atol=1e-12)


# ---- the kinds of X


def test_other_kinds_of_arrays(X, m):
    readonly = X.copy()
    readonly.flags.writeable = False
    frame = pd.DataFrame(X)
    for kind in (readonly, np.asfortranarray(X), X.tolist(), frame, np.repeat(X, 2, axis=0)[::2]):
        assert same(estimator().fit(kind), m)
        assert np.array_equal(m.transform(kind), m.transform(X))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_other_dtypes(X, dtype):
    X = (X > 2).astype(dtype)
    assert same(estimator().fit(X), estimator().fit(X.astype(float)))


@pytest.mark.parametrize(
    "observation",
    [LinearGaussian(), LinearGaussian(noise_var=PerDim(), offset=NormalOffset()), LinearGaussian(offset=np.ones(5))],
)
def test_X_is_not_changed(X, observation):  # noqa: N802
    X[3, 2] = np.nan
    before = X.copy()
    m = estimator(observation=observation).fit(X)
    m.transform(X)
    m.score(X)
    assert np.array_equal(X, before, equal_nan=True)


@pytest.mark.parametrize("shape", [(1, 5), (40, 1), (1, 1), (2, 2)])
def test_tiny_data(X, shape):
    X = X[: shape[0], : shape[1]]
    assert estimator().fit_transform(X).shape[0] == shape[0]


@pytest.mark.parametrize(
    "X", [np.zeros((6, 2)), np.ones((6, 2)), np.full((1, 2), 1e4)], ids=["zero", "one", "far away"]
)
def test_constant_data(X):
    m = estimator(inference=CollapsedGibbs(n_warmup=3, n_draws=3)).fit(X)
    assert np.isfinite(m.score(X))


@pytest.mark.parametrize("scale", [1e-100, 1e-6, 1e6, 1e100])
def test_the_units_of_the_data_do_not_matter(X, scale):
    """All default priors are relative, so the same numbers in other units give the same draws to rounding."""
    m, n = estimator().fit(X), estimator().fit(X * scale)
    assert np.array_equal(m.posterior_.draws["n_features"], n.posterior_.draws["n_features"])
    np.testing.assert_allclose(n.components_ / scale, m.components_, rtol=1e-4, atol=1e-4)


# ---- reproducibility


def test_same_seed_same_bits(X, m):
    assert same(estimator().fit(X), m)
    assert same(estimator(n_jobs=1).fit(X), estimator(n_jobs=2).fit(X))
    assert not same(estimator(random_state=4).fit(X), m)
    assert not same(estimator(random_state=None).fit(X), estimator(random_state=None).fit(X))


def test_a_generator_moves_on(X):
    rng = np.random.default_rng(0)
    first, second = estimator(random_state=rng).fit(X), estimator(random_state=rng).fit(X)
    assert not same(first, second)
    assert same(first, estimator(random_state=np.random.default_rng(0)).fit(X))


def test_fitting_again_forgets_the_first(X, m):
    other = estimator().fit(X[:20, :3]).fit(X)
    assert same(other, m)
    assert other.n_features_in_ == 5
