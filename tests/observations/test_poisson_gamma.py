"""Counts: what may come in, what the model simulates and predicts."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, gammaln
from scipy.stats import nbinom, poisson

from thali import (
    IBP,
    BetaBernoulli,
    Gamma,
    Gibbs,
    InvalidDataError,
    InvalidParameterError,
    LatentFeatures,
    MeanField,
    PoissonGamma,
    SliceSampler,
    datasets,
    load,
)
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows
from thali.core.protocols.engines.predictions import Predictions
from thali.observations.poisson.codebook import of_gamma
from thali.testing import check_observation, z_limit
from thali.testing.zscores import z_scores

MODEL = PoissonGamma(weight_shape=0.8, weight_rate=0.5, feature_shape=0.7, feature_rate=0.9)


# ---- data


@pytest.mark.parametrize("make", [np.array, sparse.csr_array, sparse.csc_matrix])
@pytest.mark.parametrize(("value", "words"), [(-1.0, "-1"), (0.5, "0.5"), (np.inf, "inf"), (1e17, "1e\\+17")])
def test_what_is_no_count_is_refused(make, value, words):
    with pytest.raises(InvalidDataError, match=f"counts.*Got {words}"):
        PoissonGamma().check_data(make([[1.0, 2.0], [0.0, value]]))


def test_missing_cells_need_a_dense_matrix():
    assert np.isnan(PoissonGamma().check_data([[1.0, np.nan]])[0, 1])
    with pytest.raises(InvalidDataError, match="NaN"):
        PoissonGamma().check_data(sparse.csr_array([[1.0, np.nan]]))


@pytest.mark.parametrize("bad", [[["a"]], [1, 2], np.zeros((0, 3)), [[1], [1, 2]], sparse.csr_array((0, 3))])
def test_what_is_no_matrix_is_refused(bad):
    with pytest.raises(InvalidDataError):
        PoissonGamma().check_data(bad)


def test_sparse_forms_are_made_canonical():
    twice = sparse.coo_array((np.array([1, 2, 0]), ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    X = PoissonGamma().check_data(twice)
    assert X.nnz == 1
    assert X[0, 1] == 3
    assert twice.nnz == 3


@pytest.mark.parametrize(
    "bad",
    [
        {"weight_shape": 0.0},
        {"feature_shape": -1.0},
        {"leak": 0.0},
        {"leak": 1.5},
        {"weight_rate": -1},
        {"feature_rate": 0},
    ],
)
def test_bad_parameters_are_refused(bad):
    with pytest.raises(InvalidParameterError, match=next(iter(bad))):
        PoissonGamma(**bad)


def test_rows_and_dims_without_counts():
    """Empty rows and dims are data; a row that is wholly missing keeps its prior."""
    X = np.array([[0, 0, 0], [5, 2, 0], [np.nan] * 3, [1, 0, 0.0]])
    model = MODEL.adapt(MODEL.check_data(X))
    data = model.engine(MeanFieldRows).row_data(X)
    q = model.engine(MeanFieldRows).init_features(data, 2, Family())
    odds = np.array([0.4, -1.0])
    local, sums = model.engine(MeanFieldRows).update_rows(
        data, q, model.engine(MeanFieldRows).init_rows(data, np.ones((4, 2))), odds, 5
    )
    np.testing.assert_allclose(local.z_prob[2], expit(odds))
    np.testing.assert_allclose(local.w_shape[2], model.weight_shape)
    assert (local.z_prob[0] < expit(odds)).all()
    assert sums.exposure.shape == (2, 3)


# ---- the generative model


def test_moments_of_simulated_counts(rng):
    Z = np.ones((1, 2), dtype=np.uint8)
    X = np.array([MODEL.simulate(rng, Z, n_dims=3)[0] for _ in range(20_000)])
    mean = 2 * (0.8 / 0.5) * (0.7 / 0.9)
    w2, a2 = 0.8 * 1.8 / 0.25, 0.7 * 1.7 / 0.81
    var = mean + 2 * (w2 * a2 - (mean / 2) ** 2)
    z = z_scores(np.hstack([X, (X - mean) ** 2]), np.array([mean] * 3 + [var] * 3))
    assert np.abs(z).max() <= z_limit(6)


def test_contract(rng):
    check_observation(MODEL.replace(weight_rate=1.5, feature_rate=2.0), rng, n_draws=5_000)


def test_log_prob(rng):
    codes, features = rng.gamma(1.0, 1.0, (4, 2)), rng.gamma(1.0, 1.0, (2, 3))
    X = rng.poisson(codes @ features).astype(float)
    wanted = poisson.logpmf(X, codes @ features)
    assert MODEL.log_prob(X, codes, features) == pytest.approx(wanted.sum())
    assert MODEL.log_prob(sparse.csr_array(X), codes, features) == pytest.approx(wanted.sum())
    X[0, 1] = np.nan
    assert MODEL.log_prob(X, codes, features) == pytest.approx(np.delete(wanted, 1).sum())
    with pytest.raises(InvalidParameterError, match="n_dims"):
        MODEL.simulate(rng, np.ones((2, 2), dtype=np.uint8))


def test_the_rate_follows_the_number_of_dims():
    assert PoissonGamma(feature_shape=0.5).features_rate(30) == 15.0
    assert PoissonGamma(feature_shape=0.5).adapt(np.zeros((2, 30))).feature_rate == 15.0
    assert set(PoissonGamma().learned) == {"weight_rate"}


# ---- predictions


def test_cells_are_negative_binomial(rng):
    """Exact for one feature; Poisson for definite ones; the simulated rows agree."""
    shape, rate = np.array([[2.0, 0.6]]), np.array([[1.5], [1.5]][:1])
    book, codes, X = of_gamma(shape, rate, np.ones(1)), np.array([[1.7]]), np.array([[3.0, 0.0]])
    wanted = nbinom.logpmf(X, shape, rate / (rate + 1.7))
    np.testing.assert_allclose(MODEL.engine(Predictions).log_cells(X, codes, book), wanted, rtol=1e-9)
    rows = MODEL.engine(Predictions).sample_rows(rng, np.repeat(codes, 20_000, axis=0), book, 0)
    assert np.abs(z_scores((rows == X).astype(float), np.exp(wanted[0]))).max() <= z_limit(2)
    sure = MODEL.engine(Predictions).definite(rng, book)
    mean = codes @ sure.features
    np.testing.assert_allclose(MODEL.engine(Predictions).log_cells(X, codes, sure), poisson.logpmf(X, mean), rtol=1e-6)
    unknown = MODEL.engine(Predictions).sample_rows(rng, np.zeros((20_000, 1)), sure, 2)
    assert np.abs(z_scores(unknown, np.full(2, 2 * 1.6 * 0.7 / 0.9))).max() <= z_limit(2)


def exact_row(x, features, log_odds, model, rng, n_draws=400_000):
    """log p(x) and P(bits | x), over draws of the row from its prior."""
    bits = rng.random((n_draws, len(features))) < expit(log_odds)
    codes = bits * rng.gamma(model.weight_shape, 1 / model.weight_rate, bits.shape)
    rates = codes @ features
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.exp(np.where(x > 0, x * np.log(rates), 0.0).sum(axis=1) - rates.sum(axis=1) - gammaln(x + 1).sum())
    return density, bits


def test_new_rows(rng):
    """The density is that of the model without a leak; presence by mean field is near the exact one."""
    features = np.array([[2.0, 0.1, 0.6], [0.05, 1.5, 0.3]])
    book = of_gamma(features * 1e7, np.full((2, 1), 1e7), np.ones(2))
    odds, X = np.array([0.3, -0.8]), np.array([[4.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 3.0, 2.0]])
    encoded = MODEL.engine(Predictions).encode(X, book, odds, 0.0)
    for n, x in enumerate(X):
        density, bits = exact_row(x, features, odds, MODEL, rng)
        assert encoded.log_density[n] == pytest.approx(np.log(density.mean()), abs=0.25)
        wanted = density @ bits / density.sum()
        np.testing.assert_allclose(encoded.presence[n], wanted, atol=0.25)
    again = MODEL.engine(Predictions).encode(sparse.csr_array(X[::-1]), book, odds, 0.0)
    np.testing.assert_allclose(again.presence[::-1], encoded.presence, rtol=1e-12)
    np.testing.assert_allclose(again.log_density[::-1], encoded.log_density, rtol=1e-12)
    assert MODEL.engine(Predictions).encode(X, book, odds, 0.5).log_density[0] != encoded.log_density[0]
    codes = MODEL.engine(Predictions).sample_codes(rng, encoded, np.zeros(500, dtype=int))
    assert codes.shape == (500, 2)
    assert (codes[:, 0] > 0).mean() > 0.9
    missing = MODEL.engine(Predictions).encode(np.array([[np.nan] * 3]), book, odds, 0.0)
    np.testing.assert_allclose(missing.presence[0], expit(odds), rtol=1e-9)
    assert missing.log_density[0] == pytest.approx(0.0, abs=1e-2)


# ---- fits


def test_a_sampler_fits_counts(tmp_path):
    """Dense and sparse counts, with the same draws; predictions, saving."""
    data = datasets.counts(60, random_state=1)
    inference = Gibbs(n_warmup=20, n_draws=20)
    fits = [
        LatentFeatures(PoissonGamma(), BetaBernoulli(n_features=8), inference, n_chains=2, random_state=0).fit(X)
        for X in (data.X, sparse.csr_matrix(data.X))
    ]
    assert np.array_equal(fits[0].posterior_.draws["log_joint"], fits[1].posterior_.draws["log_joint"])
    model = fits[1]
    assert model.components_.shape[1] == 60
    assert (model.components_ > 0).all()
    assert np.array_equal(model.presence(data.X[:3]), model.presence(sparse.csr_array(data.X[:3])))
    assert model.sample(5).shape == (5, 60)
    assert np.isfinite(model.score(data.X[:5]))
    assert ((model.novelty(data.X[:2]) >= 0) & (model.novelty(data.X[:2]) <= 1)).all()
    holes = data.X.copy()
    holes[:4, ::5] = np.nan
    filled = model.impute(holes[:4])
    assert (filled[:, ::5] >= 0).all()
    assert np.isfinite(model.heldout_score(data.X[:4], np.isnan(holes[:4])))
    with pytest.raises(InvalidDataError, match="dense"):
        model.impute(sparse.csr_array(data.X))
    model.save(tmp_path / "counts.thali")
    assert np.array_equal(load(tmp_path / "counts.thali").components_, model.components_)


def test_other_models_refuse_sparse_matrices():
    with pytest.raises(InvalidDataError, match="parse"):
        LatentFeatures(random_state=0).fit(sparse.csr_array(np.eye(4)))


def test_missing_cells_are_left_out(rng):
    data = datasets.counts(40, random_state=1)
    X = np.where(rng.random(data.X.shape) < 0.1, np.nan, data.X)
    model = LatentFeatures(
        PoissonGamma(weight_rate=Gamma(1.0, 1.0)), BetaBernoulli(n_features=6), Gibbs(n_warmup=10, n_draws=10),
        n_chains=1, random_state=0,
    ).fit(X)  # fmt: skip
    assert np.isfinite(model.impute(X)).all()
    assert np.isfinite(model.heldout_score(data.X, np.isnan(X)))


def test_without_bits():
    """leak=1: every row has every feature; samplers have nothing to sample."""
    data = datasets.counts(40, random_state=1)
    model = LatentFeatures(
        PoissonGamma(leak=1.0), BetaBernoulli(n_features=6), MeanField(n_restarts=1, max_iter=30), random_state=0
    ).fit(data.X)
    assert model.posterior_.bits(0, 0).all()
    assert (model.transform(data.X[:5]) > 0).all()
    assert model.score(data.X) > -300
    assert model.sample(3).shape == (3, 60)
    with pytest.raises(InvalidParameterError, match="no bits to sample"):
        LatentFeatures(PoissonGamma(leak=1.0), inference=Gibbs(), random_state=0).fit(data.X)


@pytest.mark.parametrize("inference", [Gibbs(n_warmup=3, n_draws=3), SliceSampler(n_warmup=3, n_draws=3)])
@pytest.mark.parametrize(
    "X", [np.zeros((4, 3)), np.full((3, 2), np.nan), np.array([[5.0]]), np.array([[1e6, 0.0, 3.0]])]
)
def test_odd_data_are_sampled(X, inference):
    model = LatentFeatures(PoissonGamma(), IBP(), inference, n_chains=1, random_state=0).fit(X)
    assert np.isfinite(model.score(X))


@pytest.mark.parametrize("bits", ["soft", "hard"])
@pytest.mark.parametrize(
    "X", [np.zeros((4, 3)), np.array([[5.0]]), np.array([[1e6, 0.0, 3.0]]), sparse.csr_array((5, 4))]
)
def test_odd_data_are_fitted(X, bits):
    inference = MeanField(n_restarts=1, max_iter=5, bits=bits)
    model = LatentFeatures(PoissonGamma(), IBP(), inference, random_state=0).fit(X)
    assert np.isfinite(model.score(X))
    assert model.n_components_ <= X.shape[0]
