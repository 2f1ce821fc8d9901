"""LatentFeatures as scikit-learn sees it, and as a user does."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import thali
import thali.posteriors.prediction
from thali import IBP, BetaBernoulli, CollapsedGibbs, Gamma, LatentFeatures, LinearGaussian, NormalOffset, PerDim
from thali.errors import InvalidDataError, InvalidParameterError

SHORT = CollapsedGibbs(n_warmup=10, n_draws=10)
A = np.array([[4.0, 4.0, 0, 0, 0], [0, 0, 4.0, 4.0, 0], [4.0, 0, 0, 0, -4.0]])


def make(n_rows, rng, noise=0.3):
    Z = rng.integers(2, size=(n_rows, 3))
    return Z @ A + noise * rng.standard_normal((n_rows, 5)), Z


@pytest.fixture
def X(rng):  # noqa: N802 (the matrix has this name)
    return make(40, rng)[0]


@pytest.fixture
def m(X):
    return estimator().fit(X)


def estimator(**parameters):
    return LatentFeatures(**{"inference": SHORT, "n_chains": 2, "random_state": 3} | parameters)


def same(a, b):
    return np.array_equal(a.posterior_.draws["log_joint"], b.posterior_.draws["log_joint"]) and np.array_equal(
        a.components_, b.components_
    )


# ---- scikit-learn's own checks, none of them expected to fail


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


# ---- parameters


def test_set_params_reaches_into_specs():
    m = LatentFeatures().set_params(prior__mass=2.0, observation__noise_var=0.5, n_chains=2)
    assert m.prior == IBP(mass=2.0)
    assert m.observation == LinearGaussian(noise_var=0.5)
    assert m.n_chains == 2
    m.set_params(prior__mass=Gamma(2, 1)).set_params(prior__mass__rate=3.0)
    assert m.prior.mass == Gamma(2, 3.0)
    m.set_params(prior=BetaBernoulli(), prior__n_features=4)
    assert m.prior == BetaBernoulli(n_features=4)
    m.set_params(inference=CollapsedGibbs(), inference__n_draws=7)
    assert m.inference == CollapsedGibbs(n_draws=7)
    with pytest.raises(InvalidParameterError, match="inference"):
        LatentFeatures().set_params(inference__n_draws=7)  # "auto" has no parameters
    with pytest.raises(ValueError, match="nothing"):
        m.set_params(nothing__at=1)


def test_set_params_leaves_shared_specs_alone():
    prior = IBP(mass=1.0)
    a, b = LatentFeatures(prior=prior), LatentFeatures(prior=prior)
    a.set_params(prior__mass=5.0)
    assert b.prior.mass == prior.mass == 1.0


def test_get_params_are_nested_where_specs_are_given():
    deep = LatentFeatures(prior=IBP(mass=2.0)).get_params()
    assert deep["prior__mass"] == 2.0
    assert deep["inference"] == "auto"


def test_clone(m):
    other = clone(m)
    assert other.get_params(deep=False) == m.get_params(deep=False)
    assert not hasattr(other, "components_")
    assert clone(LatentFeatures(prior=IBP(mass=2.0))).prior == IBP(mass=2.0)


def test_pickle(m, X):
    again = pickle.loads(pickle.dumps(m))
    assert np.array_equal(again.transform(X), m.transform(X))


def test_repr_names_what_was_set():
    assert "IBP(mass=2.0" in repr(LatentFeatures(prior=IBP(mass=2.0)))


# ---- pipelines and names


def test_names_out(m):
    assert list(m.get_feature_names_out()) == [f"latentfeatures{k}" for k in range(m.n_components_)]


def test_output_as_a_data_frame(X):
    frame = pd.DataFrame(X, columns=list("abcde"), index=np.arange(100, 140))
    m = estimator().set_output(transform="pandas").fit(frame)
    codes = m.transform(frame)
    assert isinstance(codes, pd.DataFrame)
    assert list(codes.columns) == list(m.get_feature_names_out())
    assert (codes.index == frame.index).all()
    assert list(m.feature_names_in_) == list("abcde")
    with pytest.raises(InvalidDataError, match="names"):
        m.transform(frame[list("edcba")])


def test_pipeline(X):
    pipe = make_pipeline(StandardScaler(), estimator()).fit(X)
    K = pipe[-1].n_components_
    assert pipe.transform(X).shape == (40, K)
    assert pipe.inverse_transform(pipe.transform(X)).shape == X.shape
    assert np.isfinite(pipe.score(X))
    assert len(pipe.get_feature_names_out()) == K
    pipe.set_params(latentfeatures__prior__mass=2.0)
    assert pipe[-1].prior.mass == 2.0


def test_wrong_number_of_dims(m, X):
    for method in (m.transform, m.presence, m.score, m.score_samples):
        with pytest.raises(InvalidDataError, match="5 features"):
            method(X[:, :3])


def test_no_features_at_all(rng):
    """Pure noise may well have none: everything still has its shape."""
    X = rng.standard_normal((15, 3))
    m = estimator(prior=IBP(mass=1e-6), observation=LinearGaussian(noise_var=1.0, feature_var=1e-3)).fit(X)
    assert m.n_components_ == 0
    assert m.transform(X).shape == (15, 0)
    assert m.inverse_transform(m.transform(X)).shape == (15, 3)
    assert m.components_.shape == (0, 3)
    assert np.isfinite(m.score(X))
    assert len(m.get_feature_names_out()) == 0


# ---- predictions


def holes(X, rng, share=0.15):
    mask = rng.random(X.shape) < share
    mask[np.arange(len(X)), rng.integers(X.shape[1], size=len(X))] = False
    mask[:2] = False
    return mask


def test_impute_knows_the_data_that_were_fitted(X, rng, monkeypatch):
    mask = holes(X, rng)
    seen = np.where(mask, np.nan, X)
    m = estimator().fit(pd.DataFrame(seen))
    used = []
    for name in ("_predict_fitted", "_predict_new"):
        function = getattr(thali.posteriors.prediction, name)
        spy = lambda *a, f=function, n=name, **k: used.append(n) or f(*a, **k)  # noqa: E731
        monkeypatch.setattr(thali.posteriors.prediction, name, spy)
    filled = m.impute(pd.DataFrame(seen))
    negative_nan = np.where(mask, -np.float64(np.nan), seen)
    assert np.array_equal(m.impute(negative_nan), filled)
    assert used == ["_predict_fitted"] * 2
    assert np.array_equal(filled[~mask], X[~mask])
    assert np.sqrt(np.mean((filled - X)[mask] ** 2)) < 0.5 * X[mask].std()
    again, lower, upper = m.impute(seen, interval=0.9)
    assert np.array_equal(again, filled)
    assert (lower[mask] < upper[mask]).all()
    assert np.array_equal(lower[~mask], X[~mask])
    m.impute(seen[::-1])
    assert used[-1] == "_predict_new"
    assert np.isfinite(m.impute(np.full((1, 5), np.nan))).all()


def test_heldout_score_of_fitted_and_of_new_rows(X, rng):
    mask = holes(X, rng)
    m = estimator().fit(np.where(mask, np.nan, X))
    for by in ("row", "cell"):
        fitted, new = m.heldout_score(X, mask, by=by), m.heldout_score(X[::-1], mask[::-1], by=by)
        assert abs(fitted - new) < 0.5  # nats per cell; a cell left to itself would cost 2
    wrong = np.where(mask, rng.permuted(X, axis=0), X)  # values of other rows
    assert m.heldout_score(X, mask) > m.heldout_score(wrong, mask) + 0.5
    frame = pd.DataFrame(X)
    assert m.heldout_score(frame, pd.DataFrame(mask)) == m.heldout_score(X, mask)


def test_bad_requests(m, X):
    mask = np.zeros(X.shape, dtype=bool)
    mask[0, 0] = True
    for bad in (np.zeros_like(mask), mask.astype(int), mask[:, :3], mask[0]):
        with pytest.raises(InvalidDataError, match="mask"):
            m.heldout_score(X, bad)
    with pytest.raises(InvalidDataError, match="true values"):
        m.heldout_score(np.where(mask, np.nan, X), mask)
    with pytest.raises(InvalidParameterError, match="by"):
        m.heldout_score(X, mask, by="column")
    for interval in (0, 1, 90, -0.5, np.nan):
        with pytest.raises(InvalidParameterError, match="interval"):
            m.impute(X, interval=interval)
    for n in (0, -1, 2.0, True, "3"):
        with pytest.raises(InvalidParameterError, match="n must be"):
            m.sample(n)
    for method in ("impute", "novelty"):
        with pytest.raises(InvalidDataError, match="5 features"):
            getattr(m, method)(X[:, :3])
        with pytest.raises(NotFittedError):
            getattr(LatentFeatures(), method)(X)
    with pytest.raises(NotFittedError):
        LatentFeatures().sample(3)


def test_samples_are_like_the_data(rng):
    X, _ = make(300, rng)
    m = estimator(inference=CollapsedGibbs(n_warmup=100, n_draws=30)).fit(X)
    sample = m.sample(4000)
    assert np.array_equal(sample, m.sample(4000))  # the estimator's seed
    assert np.array_equal(sample[:5], m.sample(4000, random_state=3)[:5])
    assert not np.array_equal(sample, m.sample(4000, random_state=4))
    # 300 rows say what the mean is to 2.1 / sqrt(300) = 0.12, the sample to 0.03
    np.testing.assert_allclose(sample.mean(axis=0), X.mean(axis=0), atol=0.5)
    np.testing.assert_allclose(np.cov(sample.T), np.cov(X.T), atol=1.5)


def test_novelty_of_what_was_never_seen(rng):
    X, _ = make(100, rng)
    m = estimator(inference=CollapsedGibbs(n_warmup=100, n_draws=30)).fit(X)
    fresh, _ = make(50, rng)
    assert np.median(m.novelty(fresh)) < 0.05
    assert m.novelty(fresh[:1] + np.array([0, 0, 0, 7.0, 0]))[0] > 0.95
    finite = estimator(prior=BetaBernoulli(n_features=3), inference=CollapsedGibbs(n_warmup=100, n_draws=30)).fit(X)
    assert finite.posterior_.k_posterior == {3: 1.0}
    assert np.array_equal(finite.novelty(fresh), np.zeros(50))


def test_no_features_to_predict_with(rng):
    X = rng.standard_normal((15, 3))
    X[3, 1] = np.nan
    m = estimator(prior=IBP(mass=1e-6), observation=LinearGaussian(noise_var=1.0, feature_var=1e-3)).fit(X)
    assert m.n_components_ == 0
    assert m.presence(X).shape == m.transform(X).shape == (15, 0)
    assert m.stability_.shape == (0,)
    assert m.impute(X)[3, 1] == 0.0
    assert m.sample(4).shape == (4, 3)
    assert (m.novelty(X) < 1e-4).all()
    assert m.check()


def test_predictions_survive_saving(X, rng, tmp_path):
    mask = holes(X, rng)
    seen = np.where(mask, np.nan, X)
    m = estimator().fit(seen)
    m.save(tmp_path / "a.thali")
    n = thali.load(tmp_path / "a.thali")
    for a, b in zip(m.posterior_.consensus, n.posterior_.consensus, strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(m.stability_, n.stability_)
    assert np.array_equal(m.impute(seen, interval=0.8), n.impute(seen, interval=0.8))
    assert np.array_equal(m.impute(seen[::-1], interval=0.8), n.impute(seen[::-1], interval=0.8))
    assert m.heldout_score(X, mask) == n.heldout_score(X, mask)
    assert np.array_equal(m.sample(9), n.sample(9))
    assert np.array_equal(m.novelty(X), n.novelty(X))
    assert m.check() == n.check()


@pytest.mark.slow
def test_missing_cells_of_bars_are_found_again(rng):
    """The key promise: with a fifth of the cells missing, four features, and cells as well as their truth allows."""
    data = thali.datasets.bars(500)
    mask = rng.random(data.X.shape) < 0.2
    seen = np.where(mask, np.nan, data.X)
    m = LatentFeatures(random_state=1).fit(seen)
    assert m.n_components_ == 4
    assert m.converged_, m.check()
    filled, lower, upper = m.impute(seen, interval=0.9)
    oracle = data.Z @ data.features

    def error(guess):
        return np.sqrt(np.mean((guess - data.X)[mask] ** 2))

    assert error(filled) < 1.05 * error(oracle)
    assert 0.87 < np.mean((data.X[mask] - lower[mask]) * (upper[mask] - data.X[mask]) > 0) < 0.93
