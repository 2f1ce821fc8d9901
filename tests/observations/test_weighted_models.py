"""FactorAnalysis and ICA: contract, noise floor, sign convention, encoding of new rows, and fits of known answers."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import binom
from thinned import thinned

import thali
from thali import IBP, ICA, FactorAnalysis, Gibbs, LatentFeatures
from thali.core.model import Model
from thali.core.odds import RowOdds
from thali.core.protocols.engines.chains import BitEntropy, ChainRows, MarginalRows
from thali.core.protocols.engines.predictions import Predictions
from thali.errors import InvalidDataError, InvalidParameterError
from thali.inference.calibration.noise_floor import calibrate
from thali.kernels.weights.encode_scaled import encode_scaled
from thali.observations.gaussian.codebook import WeightedCodebook
from thali.observations.gaussian.weight_law import draw_scales
from thali.observations.gaussian.weighted_prediction import WeightedPredictions
from thali.observations.gaussian.weighted_rows import WeightedChain
from thali.testing import check_observation, z_limit
from thali.testing.zscores import z_scores

FIXED = {"noise_var": 0.3, "feature_var": 1.2, "offset": None, "noise_floor": 0.0}
PER_DIM = {"noise_var": [0.3, 0.8], "feature_var": 1.5, "offset": [1.0, -2.0], "noise_floor": 0.0}
MODELS = {
    "normal": FactorAnalysis(**FIXED),
    "normal, a level per dim": FactorAnalysis(**PER_DIM, weight_var=2.0),
    "laplace": ICA(**FIXED),
    "normal, ARD": FactorAnalysis(**FIXED, ard=1.5),
    "laplace, ARD": ICA(**PER_DIM, ard=3.0),
    "laplace, a level per dim": ICA(**PER_DIM),
}


@pytest.mark.parametrize("name", MODELS)
def test_contract(name, rng):
    check_observation(MODELS[name], rng, n_draws=5_000)


class BinaryCells(WeightedPredictions):
    def log_cells(self, X, codes, codebook):
        return super().log_cells(X, (codes != 0) * 1.0, codebook)


class BinaryTotals(WeightedChain):
    def totals(self, local):
        return local.z.sum(axis=0)


class WrongCells(FactorAnalysis):
    engines = FactorAnalysis.engines | {Predictions: BinaryCells}


class WrongEvidence(FactorAnalysis):
    engines = FactorAnalysis.engines | {ChainRows: BinaryTotals}


WORDS = {WrongCells: "sample_rows must draw from", WrongEvidence: "log_evidence must be log_marginal"}


@pytest.mark.parametrize("kind", WORDS)
def test_contract_catches_mutants(kind, rng):
    with pytest.raises(AssertionError, match=rf"\A{WORDS[kind]}"):
        check_observation(kind(**PER_DIM), rng, n_draws=1_000)


@pytest.mark.parametrize("kind", [FactorAnalysis, ICA], ids=["normal", "laplace"])
def test_density_of_weights_with_ard(kind):
    """The scale integrated out, by quadrature; its conditional by Bayes."""
    model = kind(**FIXED, ard=2.5, weight_var=1.7)
    w = np.array([[0.4], [-1.3], [0.0], [2.2]])
    rate, precision, log_norm = model.law
    on = w[w != 0]

    def joint(s):  # s: the scale, squared for normal weights
        scale = s**0.5 if rate == 0 else s
        prior = 2.5 * np.log(2.5) - gammaln(2.5) - 3.5 * np.log(s) - 2.5 / s
        u = on / scale
        return np.exp(prior + np.sum(-rate * np.abs(u) - 0.5 * precision * u**2 - log_norm - np.log(scale)))

    total = quad(joint, 0, np.inf, epsabs=0, epsrel=1e-10)[0]
    assert model.engine(MarginalRows).log_codes(w) == pytest.approx(np.log(total), rel=1e-8)
    inverse = quad(lambda s: joint(s) / s, 0, np.inf, epsabs=0, epsrel=1e-10)[0] / total
    rng = np.random.default_rng(3)
    draws = np.array([draw_scales(rng, model, w) for _ in range(20_000)]) ** (2 if rate == 0 else 1)
    assert np.abs(z_scores(1 / draws, np.array([inverse]))).max() <= z_limit(1)


def row_by_grid(model, A, x, log_odds, unknown):
    """(presence, expected codes, log density) of a row with two features, by sums over a grid of weights."""
    w, step = np.linspace(-12, 12, 1601, retstep=True)
    rate, precision, log_norm = model.law
    density = np.exp(-rate * np.abs(w) - 0.5 * precision * w**2 - log_norm) * step
    p = 1 / (1 + np.exp(-np.asarray(log_odds)))
    values = np.concatenate([[0.0], w])
    parts = [np.concatenate([[1 - q], q * density]) for q in p]
    prior = parts[0][:, None] * parts[1]
    e = x - values[:, None, None] * A[0] - values[None, :, None] * A[1]
    square = np.sum(e * e, axis=2)
    total = np.zeros(square.shape)
    for share, extra in unknown:
        var = model.noise_var + extra
        total += share * prior * np.exp(-0.5 * square / var) / (2 * np.pi * var) ** (len(x) / 2)
    norm = total.sum()
    on = np.array([total[1:].sum(), total[:, 1:].sum()]) / norm
    codes = np.array([(total * values[:, None]).sum(), (total * values).sum()]) / norm
    return on, codes, np.log(norm)


@pytest.mark.parametrize("name", thinned(["normal", "laplace"], "laplace"))
def test_rows_are_encoded_rightly(name, rng):
    """Presence, codes and density (whose estimate is unbiased) against a grid, over many streams."""
    model = MODELS[name]
    A, x, odds = np.array([[1.0, 0.4, -0.6], [0.8, -0.9, 0.3]]), np.array([1.1, -0.7, 0.4]), np.array([0.4, -0.8])
    unknown = [(0.9, 0.0), (0.1, 1.5)]
    share, extra = np.array(unknown).T
    found = [
        encode_scaled(x, np.ones(3, bool), A, odds, 0.3, share, extra, *model.law, 60, 4, 4, 8, stream)
        for stream in rng.spawn(400)
    ]
    presence, codes, log_density = row_by_grid(model, A, x, odds, unknown)
    estimates = np.array([[*p, *c, np.exp(d - log_density)] for p, c, *_, d in found])
    z = z_scores(estimates, np.array([*presence, *codes, 1.0]))
    assert np.abs(z).max() <= z_limit(5), z
    assert np.std([d for *_, d in found]) < 0.2  # nats of one estimate


@pytest.mark.parametrize("name", ["normal", "laplace"])
def test_density_of_unknown_features(name, rng):
    """Without known features a row is noise, plus a Poisson number of features of any weight."""
    model = MODELS[name]
    x = np.array([[1.4, -0.8]])
    book = WeightedCodebook(np.zeros((0, 2)), np.zeros(0), np.zeros((0, 0)), np.zeros(0))
    got = model.engine(Predictions).encode(x, book, np.zeros(0), 0.7).log_density[0]
    counts = rng.poisson(0.7, 400_000)
    weights = model.draw_weights(rng, (len(counts), 8))
    power = np.sum(np.where(np.arange(8) < counts[:, None], weights**2, 0.0), axis=1)
    var = model.noise_var + model.feature_var * power
    density = np.exp(-0.5 * np.sum(x**2) / var) / (2 * np.pi * var)
    assert got == pytest.approx(np.log(density.mean()), abs=0.02)


def make(rng, n_rows=200, n_dims=12, K=3, kind=FactorAnalysis, noise=0.1):
    Z = rng.random((n_rows, K)) < 0.5
    model = kind(noise_var=noise, feature_var=1.0, offset=None, noise_floor=0.0)
    codes = model.draw_codes(rng, Z)
    A = rng.standard_normal((K, n_dims))
    return codes @ A + np.sqrt(noise) * rng.standard_normal((n_rows, n_dims)), codes, A


@pytest.fixture(scope="module", params=[FactorAnalysis, ICA], ids=["normal", "laplace"])
def fitted(request):
    X, codes, A = make(np.random.default_rng(3), kind=request.param)
    holes = np.random.default_rng(4).random(X.shape) < 0.1
    model = LatentFeatures(request.param(), inference=Gibbs(n_warmup=80, n_draws=80), n_chains=2, random_state=0)
    return model.fit(np.where(holes, np.nan, X)), X, holes, codes, A


def test_a_fit_finds_the_features(fitted):
    model, _, _, _, A = fitted
    assert model.n_components_ == 3
    mine = model.components_ / np.linalg.norm(model.components_, axis=1, keepdims=True)
    true = A / np.linalg.norm(A, axis=1, keepdims=True)
    assert np.abs(mine @ true.T).max(axis=0).min() > 0.97
    largest = np.take_along_axis(model.components_, np.abs(model.components_).argmax(axis=1)[:, None], axis=1)
    assert (largest > 0).all()  # the convention of the signs


def test_a_fit_predicts(fitted):
    model, X, holes, codes, _ = fitted
    given = np.where(holes, np.nan, X)
    rows = slice(0, 30)
    found = model.transform(X[rows])
    match = np.abs(np.corrcoef(found.T, codes[rows].T)[:3, 3:])
    assert match.max(axis=0).min() > 0.9
    assert np.abs(model.inverse_transform(found) - X[rows]).mean() < 0.5
    presence = model.presence(X[rows])
    assert ((presence >= 0) & (presence <= 1)).all()
    spread = X.std()
    filled = model.impute(given)
    assert np.sqrt(np.mean((filled - X)[holes] ** 2)) < 0.5 * spread
    new = given[rows].copy()  # as rows that were not fitted
    for x, hidden, asked in ((X[rows], holes[rows], new), (X, holes, given)):
        _, lower, upper = model.impute(asked, interval=0.9)
        inside = ((x >= lower) & (x <= upper))[hidden]
        assert binom.cdf(inside.sum(), inside.size, 0.9) > 1e-4, inside.mean()
        assert binom.sf(inside.sum() - 1, inside.size, 0.9) > 1e-4, inside.mean()
    assert model.heldout_score(X, holes, by="cell") > -1.4  # a normal law of the cells has -1.9
    assert np.isfinite(model.score_samples(X[rows])).all()
    assert model.sample(5).shape == (5, 12)
    assert model.novelty(np.full((1, 12), 40.0))[0] > 0.5


def test_a_fit_is_saved_and_loaded(fitted, tmp_path):
    model, X, *_ = fitted
    model.save(tmp_path / "fit.thali")
    again = thali.load(tmp_path / "fit.thali")
    assert np.array_equal(again.transform(X[:3]), model.transform(X[:3]))
    assert np.array_equal(again.posterior_.codes(1, 5), model.posterior_.codes(1, 5))


def test_a_run_is_resumed(tmp_path):
    X, *_ = make(np.random.default_rng(1), n_rows=40, n_dims=5)
    X[3, 2] = np.nan
    options = {"inference": Gibbs(n_warmup=5, n_draws=5), "n_chains": 2, "random_state": 1}
    whole = LatentFeatures(FactorAnalysis(), **options).fit(X)
    first = LatentFeatures(FactorAnalysis(), checkpoint=tmp_path / "run", max_time=1e-9, **options).fit(X)
    assert first.posterior_.n_draws < 5
    resumed = thali.resume(tmp_path / "run", X, max_time=None)
    assert np.array_equal(resumed.posterior_.codes(1, 4), whole.posterior_.codes(1, 4))
    assert np.array_equal(resumed.posterior_.draws["log_joint"], whole.posterior_.draws["log_joint"])


@pytest.mark.parametrize("start", thinned(["spectral", "annealed", "empty"], "spectral"))
def test_every_start_leads_to_the_features(start):
    X, *_ = make(np.random.default_rng(5), n_rows=150, n_dims=15, K=4)
    inference = Gibbs(n_warmup=200, n_draws=100, start=start)
    model = LatentFeatures(FactorAnalysis(), inference=inference, n_chains=2, random_state=0).fit(X)
    assert model.n_components_ == 4


def test_entropy_of_one_bit():
    """A feature that several rows have: the probability of each bit and the normal law of its weight, by hand."""
    model = FactorAnalysis(**FIXED)
    X = np.array([[1.0, 0.5], [2.0, 1.1], [-1.0, -0.4]])
    V = np.array([[0.0], [1.7], [-0.9]])
    data = model.engine(ChainRows).prepare(X)
    local = model.engine(ChainRows).place(data, V, X)
    log_odds = np.array([-np.inf, -0.4, 0.8])
    a = (V.T @ X / (V.T @ V + model.noise_var / model.feature_var))[0]
    curve = a @ a / model.noise_var + 1.0
    total = 0.0
    for x, v in zip(X, V[:, 0], strict=True):
        m = 2 - (v != 0)
        odds = log_odds[m] + 0.5 * (a @ x / model.noise_var) ** 2 / curve - 0.5 * np.log(curve)
        p = 1 / (1 + np.exp(-odds))
        total += -p * np.log(p) - (1 - p) * np.log1p(-p) + p * 0.5 * np.log(2 * np.pi * np.e / curve)
    assert model.engine(BitEntropy).bit_entropy(data, local, RowOdds(log_odds, 0.0)) == pytest.approx(total, rel=1e-9)


RNG = np.random.default_rng(0)
ODD = {
    "one row": RNG.standard_normal((1, 3)),
    "one dim": RNG.standard_normal((20, 1)),
    "constant": np.ones((10, 3)),
    "a constant dim": np.c_[np.ones(12), RNG.standard_normal((12, 2))],
    "huge": 1e120 * RNG.standard_normal((12, 3)),
    "tiny": 1e-120 * RNG.standard_normal((12, 3)),
    "far from zero": 1e6 + RNG.standard_normal((30, 4)),
    "wide": RNG.standard_normal((5, 40)),
    "an outlier": np.r_[RNG.standard_normal((20, 3)), [[1e5, 0, 0]]],
    "counts": RNG.integers(0, 3, (30, 5)).astype(float),
    "few cells": np.where(np.arange(120).reshape(30, 4) % 3, np.nan, RNG.standard_normal((30, 4))),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("model", thinned(["normal", "laplace", "ARD"], "normal"))
def test_odd_data(model, name):
    X = ODD[name]
    model = {"normal": FactorAnalysis(), "laplace": ICA(), "ARD": FactorAnalysis(ard=2.0)}[model]
    fit = LatentFeatures(model, inference=Gibbs(n_warmup=5, n_draws=5), n_chains=1, random_state=0).fit(X)
    for values in (fit.score_samples(X[:3]), fit.impute(X), fit.transform(X[:3]), fit.sample(2)):
        assert np.isfinite(values).all()


def test_the_floor_lies_below_the_noise_that_factor_analysis_leaves(rng):
    X, *_ = make(rng, n_rows=300, n_dims=8, noise=0.4)
    adapted = calibrate(Model(IBP(), FactorAnalysis()), X).observation
    assert adapted.floor(8).mean() == pytest.approx(0.5 * 0.4, rel=0.2)
    assert adapted.floor(8).max() < 0.4
    fixed = calibrate(Model(IBP(), FactorAnalysis(noise_var=0.2)), X).observation
    assert fixed.floor(8).max() == 0.0  # there is nothing to bound
    share = calibrate(Model(IBP(), FactorAnalysis(noise_floor=0.1)), X).observation
    assert share.floor(8) == pytest.approx(0.1 * X.var(axis=0))
    assert FactorAnalysis().floor(8).max() == 0.0  # before it has seen data


def test_bad_input():
    with pytest.raises(InvalidParameterError, match='"uniqueness", or a share'):
        FactorAnalysis(noise_floor="low")
    with pytest.raises(InvalidParameterError, match="weight_var"):
        ICA(weight_var=0.0)
    with pytest.raises(InvalidDataError, match="codes must be a matrix"):
        FactorAnalysis(**FIXED).engine(MarginalRows).log_marginal(np.zeros((2, 2)), np.zeros(2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FactorAnalysis, ICA], ids=["normal", "laplace"])
def test_missing_cells_are_imputed_nearly_as_by_the_truth(kind):
    """20 % missing: RMSE within 5 % of an oracle that knows features, noise and bits and infers the weights."""
    rng = np.random.default_rng(8)
    X, codes, A = make(rng, n_rows=600, n_dims=20, K=4, kind=kind, noise=0.2)
    holes = rng.random(X.shape) < 0.2
    model = LatentFeatures(kind(), inference=Gibbs(n_warmup=200, n_draws=300), random_state=0)
    filled = model.fit(np.where(holes, np.nan, X)).impute(np.where(holes, np.nan, X))
    oracle = np.zeros_like(X)
    precision = 1.0 if kind is FactorAnalysis else 0.5  # of a Laplace weight, by its variance
    for n in range(len(X)):
        on, seen = codes[n] != 0, ~holes[n]
        B = A[on]
        gain = np.linalg.solve(B[:, seen] @ B[:, seen].T / 0.2 + precision * np.eye(on.sum()), B[:, seen] / 0.2)
        oracle[n] = (gain @ X[n, seen]) @ B
    errors = [np.sqrt(np.mean((guess - X)[holes] ** 2)) for guess in (filled, oracle)]
    assert errors[0] < 1.05 * errors[1], errors
    assert np.sum(model.presence(np.where(holes, np.nan, X)).mean(axis=0) > 0.05) == 4  # rarer ones come and go slowly
