"""Presence and codes: fitted rows by their own draws, others by the encoder, each on its own."""

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone

import thali
from thali import (
    IBP,
    BetaBernoulli,
    BPMeans,
    CollapsedGibbs,
    FactorAnalysis,
    Gibbs,
    LatentFeatures,
    LinearGaussian,
    MeanField,
    ParticleFilter,
    PoissonGamma,
    StochasticMeanField,
)
from thali.core.protocols.engines.chains import MarginalRows
from thali.posteriors.encoding import encode
from thali.testing import z_limit

A = np.array([[3.0, 2.0, 0, 0, 0], [0, 0, 2.0, 3.0, 1.0]])


SHORT = CollapsedGibbs(n_warmup=20, n_draws=20)


def make(n_rows, rng, *, weights=False):
    Z = rng.integers(2, size=(n_rows, 2))
    W = Z * rng.normal(0, 1.5, Z.shape) if weights else Z
    return W @ A + 0.8 * rng.standard_normal((n_rows, 5))


def fitted(X, observation=None, inference=None, **settings):
    settings = {"n_chains": 2, "random_state": 0, "n_jobs": 1} | settings
    return LatentFeatures(observation, inference=inference or SHORT, **settings).fit(X)


def test_presence_of_fitted_rows_is_their_posterior():
    """One feature at most: the exact posterior is a sum over its 2^8 columns, of those that count as the same."""
    X = np.array([[0.3, -0.4], [-0.5, 0.2], [0.1, 0.6], [1.7, 1.6], [1.9, 1.8], [4.1, 3.6], [3.5, 3.9], [4.4, 3.8]])
    prior, observation = BetaBernoulli(mass=1.0, n_features=1), LinearGaussian(noise_var=1.0, feature_var=9.0)
    sampler = CollapsedGibbs(n_warmup=50, n_draws=200, thin=5)
    model = fitted(X, observation, sampler, prior=prior, n_chains=4)
    shown = model.posterior_.bits(*model.posterior_.representative)[:, 0].astype(bool)
    total, weight = np.zeros(8), 0.0
    for bits in product((0, 1), repeat=8):
        z = np.array(bits, dtype=np.uint8)
        if 2 * np.sum(z & shown) > np.sum(z | shown):
            p = np.exp(prior.log_prob(z[:, None]) + observation.engine(MarginalRows).log_marginal(X, z[:, None]) + 40.0)
            total, weight = total + p * z, weight + p
    exact = total / weight
    assert np.sum((exact > 0.1) & (exact < 0.9)) >= 2  # there is something to be unsure of
    found = model.presence(X)[:, 0]
    error = np.sqrt(exact * (1 - exact) / 800) * 1.5  # draws are nearly independent
    assert (np.abs(found - exact) <= z_limit(8) * error + 1e-3).all(), (found, exact)
    encoded = model.posterior_.encoder.encode(X).presence[:, 0]
    assert np.abs(encoded - exact).max() > 0.01  # another answer: features of one draw


SHAPES = {
    "collapsed": (None, CollapsedGibbs(n_warmup=20, n_draws=20)),
    "weights": (FactorAnalysis(), Gibbs(n_warmup=20, n_draws=20)),
    "mean field": (None, MeanField(n_restarts=1, moves=False)),
    "blocks": (None, StochasticMeanField(batch_size=16, n_epochs=3)),
    "point": (None, BPMeans(n_restarts=1)),
    "filter": (LinearGaussian(noise_var=0.64, feature_var=4.0), ParticleFilter(n_particles=20)),
}


@pytest.mark.parametrize(
    "name",
    [name if name in ("collapsed", "mean field") else pytest.param(name, marks=pytest.mark.slow) for name in SHAPES],
)
def test_each_row_has_its_own_answer_in_any_company(name, rng, tmp_path):
    observation, inference = SHAPES[name]
    X = make(40, rng, weights=name == "weights")
    X[7] = X[3]  # equal rows
    X[5, 1] = np.nan
    prior = IBP(mass=1.0) if name == "filter" else None
    model = fitted(X, observation, inference, prior=prior)
    consensus = model.posterior_.consensus
    presence, codes = model.presence(X), model.transform(X)
    single = np.delete(np.arange(40), [3, 7])
    np.testing.assert_array_equal(presence[single], consensus.presence[single])
    np.testing.assert_array_equal(codes[single], consensus.codes[single])
    np.testing.assert_allclose(presence[3], consensus.presence[[3, 7]].mean(axis=0))
    np.testing.assert_array_equal(presence[3], presence[7])
    assert (np.array_equal(codes, presence)) == (name != "weights")
    some = rng.permutation(40)[:11]
    np.testing.assert_array_equal(model.presence(X[some]), presence[some])
    np.testing.assert_array_equal(model.transform(X[some]), codes[some])
    np.testing.assert_array_equal(clone(model).fit_transform(X), codes)
    new = make(6, rng)
    mixed = np.vstack([new[:3], X[some], new[3:]])
    by_encoder = model.posterior_.encoder.encode(new)
    np.testing.assert_array_equal(model.presence(mixed)[3:-3], presence[some])
    np.testing.assert_allclose(np.delete(model.presence(mixed), np.s_[3:-3], axis=0), by_encoder.presence, atol=1e-9)
    np.testing.assert_array_equal(model.transform(new), by_encoder.codes)
    model.save(tmp_path / "fit.thali")
    loaded = thali.load(tmp_path / "fit.thali")
    np.testing.assert_array_equal(loaded.transform(X[some]), codes[some])
    np.testing.assert_array_equal(loaded.presence(X), presence)


def test_signs_of_weights_are_matched(rng):
    """Half of the draws have the feature turned over: the mean of the codes must not cancel."""
    X = make(60, rng, weights=True)
    model = fitted(X, FactorAnalysis(), Gibbs(n_warmup=60, n_draws=20))
    posterior = model.posterior_
    before = posterior.consensus.codes
    assert len(posterior.consensus.columns)
    for name in ("features", "weights"):
        posterior.codebooks[name].values[:] *= -1.0  # all of them, and then half of them back
    flat = posterior.codebooks
    n_draws = posterior.n_chains * posterior.n_draws
    for i in range(0, n_draws, 2):
        for name in ("features", "weights"):
            flat[name][i][:] *= -1.0
    del posterior.__dict__["consensus"]
    after = posterior.consensus
    sign = np.sign(np.sum(after.codes * before, axis=0))
    np.testing.assert_allclose(after.codes * sign, before, rtol=1e-6, atol=1e-9)


def test_sparse_and_dense_rows_are_the_same(rng):
    X = rng.poisson(0.7, size=(30, 8)).astype(float)
    model = fitted(csr_matrix(X), PoissonGamma(), MeanField(n_restarts=1, max_iter=5))
    presence = model.presence(csr_matrix(X))
    np.testing.assert_array_equal(model.presence(X), presence)
    np.testing.assert_array_equal(model.presence(csr_matrix(X)[::-2]), presence[::-2])


def test_a_file_without_digests_encodes_all_rows(rng, tmp_path):
    X = make(30, rng)
    model = fitted(X)
    model.posterior_.row_digests = None  # as in files of older versions
    model.save(tmp_path / "old.thali")
    loaded = thali.load(tmp_path / "old.thali")
    np.testing.assert_array_equal(loaded.presence(X), loaded.posterior_.encoder.encode(X).presence)


@pytest.mark.parametrize("wrong", [np.zeros(29, np.uint64), np.zeros((30, 1), np.uint64), np.zeros(30)])
def test_a_file_with_wrong_digests_is_refused(rng, tmp_path, wrong):
    model = fitted(make(30, rng), inference=CollapsedGibbs(n_warmup=2, n_draws=2))
    model.posterior_.row_digests = wrong
    model.save(tmp_path / "wrong.thali")
    with pytest.raises(thali.InvalidFileError, match="digests"):
        thali.load(tmp_path / "wrong.thali")


def test_a_stream_knows_all_its_rows(rng):
    X = make(24, rng)
    observation = LinearGaussian(noise_var=0.64, feature_var=4.0)
    model = LatentFeatures(observation, IBP(mass=1.0), ParticleFilter(n_particles=20), n_chains=2, random_state=0)
    for batch in (X[:10], X[10:]):
        model.partial_fit(batch)
    np.testing.assert_array_equal(model.presence(X), model.posterior_.consensus.presence)


def calibration_error(p, truth, n_bins=10):
    """Mean over cells of |predicted - observed| in bins of the prediction."""
    which = np.minimum((p * n_bins).astype(int), n_bins - 1)
    return sum(abs(np.sum(p[which == b] - truth[which == b])) for b in range(n_bins)) / len(p)


@pytest.mark.slow
def test_presence_of_fitted_rows_is_calibrated():
    """The average over draws is no surer than it should be; the encoder of one draw is."""
    own, encoded, truth = [], [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        Z = rng.random((150, 5)) < rng.uniform(0.15, 0.5, 5)
        features = rng.standard_normal((5, 12))
        X = Z @ features + 1.2 * rng.standard_normal((150, 12))
        model = fitted(X, inference=CollapsedGibbs(n_warmup=300, n_draws=200))
        distance = np.linalg.norm(features[:, None] - model.components_[None], axis=2)
        for k, nearest in enumerate(distance.argmin(axis=0)):
            if distance[nearest, k] < 0.5 * np.linalg.norm(features[nearest]):
                own.append(model.presence(X)[:, k])
                encoded.append(model.posterior_.encoder.encode(X).presence[:, k])
                truth.append(Z[:, nearest])
    own, encoded, truth = (np.concatenate(parts).astype(float) for parts in (own, encoded, truth))
    assert len(truth) > 1500
    error, before = calibration_error(own, truth), calibration_error(encoded, truth)
    assert error < before
    assert error < 0.03, (error, before)


def test_encode_without_features(rng):
    X = rng.standard_normal((15, 3))
    model = fitted(X, LinearGaussian(noise_var=1.0, feature_var=1e-3), prior=IBP(mass=1e-6))
    assert encode(model.posterior_, X).presence.shape == (15, 0)
    assert model.transform(X[:4]).shape == (4, 0)
