"""What LatentFeatures predicts: missing cells, held-out cells, samples, novelty."""

import numpy as np
import pandas as pd
import pytest
from short_fits import estimator, make
from sklearn.exceptions import NotFittedError

import thali
import thali.posteriors.prediction
from thali import IBP, BetaBernoulli, CollapsedGibbs, LatentFeatures, LinearGaussian
from thali.errors import InvalidDataError, InvalidParameterError


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
