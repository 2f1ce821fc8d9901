"""Sparse factor analysis: what a draw says of rows, what a fit finds, and data that nobody prepared."""

import itertools
import warnings

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.stats import multivariate_normal
from thinned import thinned

import thali
from thali import (
    BetaBernoulli,
    Gibbs,
    IncompatibleModelError,
    InvalidDataError,
    InvalidParameterError,
    LatentFeatures,
    MeanField,
    SparseFactorAnalysis,
)
from thali.core.protocols.engines.chains import ChainRows, FreshRows, ShownRows
from thali.core.protocols.engines.predictions import Predictions
from thali.inference.starts.factors import factor_start, sparse_rotation
from thali.observations.sparse.codebook import FactorsCodebook, LoadingsCodebook
from thali.observations.sparse.rows import LoadingRows
from thali.testing import check_observation, z_limit
from thali.testing.zscores import z_scores

FIXED = {"noise_var": 0.5, "loading_var": 0.7, "offset": None, "scale": 1.0}
MOVED = FIXED | {"offset": np.array([1.0, -2.0]), "scale": np.array([2.0, 0.5]), "origin": np.array([3.0, 1000.0])}
QUICK = Gibbs(n_warmup=60, n_draws=60)

# of the reference: Y, G, F and so on of golden values
WAVES = {
    (c, n, m): np.sin(c + 1.3 * np.arange(n)[:, None] + 0.7 * np.arange(m)) for c, n, m in [(0.5, 3, 6), (0.1, 4, 6)]
}
G = np.array([[0.5, 0, -1], [0, 1.2, 0.3], [0.7, 0.4, 0], [0, 0, 0.9]])
NOISE = np.array([0.3, 0.5, 0.8, 1.1])


def planted(seed, n_dims, n_rows, n_factors, share=0.3, noise=0.4):
    rng = np.random.default_rng(seed)
    loadings = rng.standard_normal((n_dims, n_factors)) * (rng.random((n_dims, n_factors)) < share)
    scores = rng.standard_normal((n_rows, n_factors))
    return scores @ loadings.T + noise * rng.standard_normal((n_rows, n_dims)), loadings, scores


def fit(X, inference=QUICK, **settings):
    observation = SparseFactorAnalysis(**settings.pop("parts", {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LatentFeatures(
            observation, inference=inference, n_chains=2, random_state=0, verbose=False, **settings
        ).fit(X)


def matched(left, right):
    """Correlations of the best pairs of columns."""
    table = np.abs(np.corrcoef(left.T, right.T)[: left.shape[1], left.shape[1] :])
    return table[linear_sum_assignment(-table)]


# ---- the model


@pytest.mark.parametrize("parts", thinned([FIXED, MOVED], MOVED), ids=["plain", "moved"])
def test_contract(parts, rng):
    check_observation(SparseFactorAnalysis(sparse="rows", **parts), rng)


def test_factors_given_the_loadings(rng):
    """Their mean and covariance, with missing cells."""
    model = SparseFactorAnalysis(sparse="rows", **FIXED)
    X = 2 * WAVES[0.1, 4, 6]
    X[1, 2] = np.nan
    data = model.engine(ChainRows).prepare(X)
    local = model.engine(ChainRows).place(data, G, X)._replace(noise=NOISE)
    drawn = np.array([model.engine(FreshRows).refresh(rng, data, local).factors for _ in range(4000)])
    for cell in (0, 2):
        seen = ~np.isnan(X[:, cell])
        scaled = G[seen] / NOISE[seen, None]
        cov = np.linalg.inv(np.eye(3) + scaled.T @ G[seen])
        mean = cov @ (scaled.T @ X[seen, cell])
        values = drawn[:, :, cell] - mean
        products = np.einsum("ri,rj->rij", values, values).reshape(len(values), -1)
        z = z_scores(np.column_stack([values, products]), np.concatenate([np.zeros(3), cov.ravel()]))
        assert np.abs(z).max() <= z_limit(12), z
        if cell == 0:
            np.testing.assert_allclose(mean, [0.0478805571367, 1.31335061021, -0.302347361796])  # golden G9


def test_golden_rows():
    """Golden G9: the density of a row, also of some of its cells, and a cell given the others."""
    model = SparseFactorAnalysis(**FIXED)
    book = LoadingsCodebook(G.T, np.count_nonzero(G, axis=0), NOISE)
    y = 2 * WAVES[0.1, 4, 6][:, 0]
    engine = model.engine(Predictions)
    some = np.where(np.arange(4) == 1, np.nan, y)
    encoded = engine.encode(np.array([y, some]), book, np.zeros(3), 0.0)
    np.testing.assert_allclose(encoded.log_density, [-6.41316042321, -4.38692112151])
    np.testing.assert_allclose(encoded.codes[0], [0.0478805571367, 1.31335061021, -0.302347361796])
    assert engine.expected_rows(encoded, book)[1, 1] == pytest.approx(0.268504761835)
    change = encoded.log_density[0] - encoded.log_density[1]
    mean, var = 0.268504761835, 1.75293916963
    assert change == pytest.approx(-0.5 * np.log(2 * np.pi * var) - 0.5 * (y[1] - mean) ** 2 / var)
    dense = multivariate_normal(np.zeros(4), G @ G.T + np.diag(NOISE)).logpdf(y)
    assert encoded.log_density[0] == pytest.approx(dense)


def test_rows_like_an_encoded_one(rng):
    """Rows drawn given some cells have the mean and the variance of the normal law given these."""
    model = SparseFactorAnalysis(**FIXED)
    book = LoadingsCodebook(G.T, np.count_nonzero(G, axis=0), NOISE)
    x = np.array([[0.4, np.nan, -1.0, 0.3]])
    engine = model.engine(Predictions)
    encoded = engine.encode(x, book, np.zeros(3), 0.0)
    drawn = engine.sample_like(rng, encoded, np.zeros(4000, dtype=int), book, np.ones(1))[:, 1]
    cov = G @ G.T + np.diag(NOISE)
    seen = np.array([0, 2, 3])
    weights = np.linalg.solve(cov[np.ix_(seen, seen)], cov[seen, 1])
    mean, var = weights @ x[0, seen], cov[1, 1] - weights @ cov[seen, 1]
    assert abs(drawn.mean() - mean) < 0.5 * np.sqrt(var)  # 16 draws of the scores stand for their law
    assert 0.5 * var < drawn.var() < 1.5 * var


def test_golden_marginal_of_a_row(rng):
    """Golden G10: a new row that owns its loadings, bits summed out and loadings integrated out."""
    F = WAVES[0.5, 3, 6]
    model = SparseFactorAnalysis(sparse="rows", **(FIXED | {"noise_var": 0.8}))
    counts = np.array([3, 6, 8])
    book = FactorsCodebook(F, counts, np.array([0.7, 1.3, 2.1]), np.ones(2), np.full(10, 0.8))
    y = 2 * WAVES[0.1, 4, 6][2]
    chance = counts / 11
    encoded = model.engine(Predictions).encode(y[None], book.columns(np.arange(3)), np.log(chance / (1 - chance)), 0.0)
    assert encoded.log_density[0] == pytest.approx(-8.50895320275)


def test_many_factors_are_encoded_by_sampling(monkeypatch, rng):
    """With more factors than are listed: presence, codes and density near those of the list."""
    F = rng.standard_normal((4, 30))
    model = SparseFactorAnalysis(sparse="rows", scale=1.0, offset=None)
    book = FactorsCodebook(F, np.full(4, 5), np.full(4, 0.8), np.array([1.0, 0.3]))
    X = np.array([[0.0, 1.2, -0.7, 0.0], [0.9, 0.0, 0.0, 0.2]]) @ F + 0.6 * rng.standard_normal((2, 30))
    X[1, 4] = np.nan
    exact = model.engine(Predictions).encode(X, book, np.full(4, -0.5), 0.2)
    monkeypatch.setattr("thali.observations.sparse.row_prediction.MOST", 0)
    sampled = model.engine(Predictions).encode(X, book, np.full(4, -0.5), 0.2)
    np.testing.assert_allclose(sampled.presence, exact.presence, atol=0.1)
    np.testing.assert_allclose(sampled.codes, exact.codes, atol=0.1)
    np.testing.assert_allclose(sampled.log_density, exact.log_density, atol=0.5)
    for one in (exact, sampled):  # the draws that are kept
        np.testing.assert_allclose(one.draws.mean(axis=1), exact.codes, atol=0.2)
        assert np.all((one.noise > 0.1) & (one.noise < 1.0))


def test_the_noise_of_a_new_row_is_summed_out():
    """Without factors a row is Student-t."""
    from scipy.stats import multivariate_t

    model = SparseFactorAnalysis(sparse="rows", scale=1.0, offset=None)
    book = FactorsCodebook(np.zeros((0, 4)), np.zeros(0, int), np.zeros(0), np.array([1.0, 0.6]))
    x = np.array([[0.3, -1.0, 0.4, 2.0], [30.0, -10.0, 4.0, 2.0]])
    got = model.engine(Predictions).encode(x, book, np.zeros(0), 0.0).log_density
    shape = model.noise_var.shape
    wanted = multivariate_t(np.zeros(4), 0.6 * np.eye(4), df=2 * shape).logpdf(x)
    np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_factors_of_one_dim_are_shown_as_its_noise(rng):
    model = SparseFactorAnalysis(**FIXED)
    V = np.array([[0.5, 0.0], [0.2, 0.7], [0.0, 0.0]])
    rows = LoadingRows(
        (V != 0).astype(np.uint8), V, rng.standard_normal((2, 5)), np.ones(2), np.full(3, 0.5), np.ones(2)
    )
    shown = model.engine(ShownRows).shown(rows)
    assert np.array_equal(shown.z, [[1, 0], [1, 0], [0, 0]])
    np.testing.assert_allclose(shown.noise, [0.5, 0.5 + 0.49, 0.5])
    by_rows = model.replace(sparse="rows")
    assert by_rows.engine(ShownRows).shown(rows) is rows


# ---- where chains begin


@pytest.mark.parametrize("seed", thinned(range(10), 0, 1))
def test_starts_are_near_the_truth(seed):
    X, loadings, _ = planted(seed, 60, 200, 6)
    V = factor_start(np.random.default_rng(0), X - X.mean(axis=0), None, lambda: False)
    assert V.shape == (60, 6)
    assert matched(V, loadings).min() > 0.9
    assert (V == 0).mean() > 0.4


def test_without_time_a_start_has_few_factors():
    X, _, _ = planted(0, 20, 60, 4)
    assert factor_start(np.random.default_rng(0), X, None, lambda: True).shape == (20, 3)


def test_rotation_finds_the_zeros(rng):
    A = rng.standard_normal((40, 5)) * (rng.random((40, 5)) < 0.3) * 3
    turned = A @ np.linalg.qr(rng.standard_normal((5, 5)))[0]
    assert matched(sparse_rotation(rng, turned), A).min() > 0.99


# ---- fits


@pytest.fixture(scope="module")
def found():
    X, loadings, scores = planted(0, 30, 120, 4)
    return X, loadings, scores, fit(X, Gibbs(n_warmup=150, n_draws=150))


def test_a_fit_finds_loadings_and_scores(found):
    X, loadings, scores, model = found
    assert model.n_components_ == 4
    assert model.components_.shape == model.loadings_presence_.shape == (4, 30)
    assert matched(model.components_.T, loadings).min() > 0.95
    assert matched(model.transform(X), scores).min() > 0.9
    table = np.abs(np.corrcoef(model.components_, loadings.T)[:4, 4:])
    order = linear_sum_assignment(-table)[1]
    right = (model.loadings_presence_ > 0.5) == (loadings.T[order] != 0)
    assert right[np.abs(loadings.T[order]) > 0.3].mean() > 0.97
    assert right.mean() > 0.85


def test_what_rows_cannot_have_is_refused(found):
    X, _, _, model = found
    with pytest.raises(IncompatibleModelError, match="every row has a score of every factor"):
        model.presence(X)
    assert np.array_equal(model.novelty(X[:3]), np.zeros(3))


def test_predictions(found):
    X, _, _, model = found
    new = X[:20] + 0.0
    holes = new.copy()
    holes[:, ::5] = np.nan
    mask = np.isnan(holes)
    filled, lower, upper = model.impute(holes, interval=0.9)
    assert np.array_equal(filled[~mask], new[~mask])
    assert np.mean((filled - new)[mask] ** 2) < 0.5 * np.mean((new - X.mean(axis=0))[mask] ** 2)
    assert 0.75 < np.mean((lower < new)[mask] & (new < upper)[mask]) <= 1
    assert model.heldout_score(new, mask) > -1.5
    assert model.score(new) > model.score(new + 3.0)
    drawn = model.sample(400, random_state=1)
    assert np.abs(np.cov(drawn.T) - np.cov(X.T)).max() < 2.5
    codes = model.transform(new)
    assert matched(model.inverse_transform(codes).T, new.T).min() > 0.5


def test_rows_that_own_their_loadings():
    made, loadings, _ = planted(3, 60, 40, 3)
    X = made.T.copy()
    model = fit(X, Gibbs(n_warmup=150, n_draws=150), parts={"sparse": "rows"})
    assert X.shape == (60, 40)
    assert model.n_components_ >= 3
    assert matched(model.transform(X)[:, :3], loadings).min() > 0.9
    presence = model.presence(X)
    assert presence.shape == (60, model.n_components_)
    assert not hasattr(model, "loadings_presence_")
    holes = X[:10].copy()
    holes[:, ::4] = np.nan
    filled = model.impute(holes)
    assert np.isfinite(filled).all()
    assert np.isfinite(model.score_samples(X[:3] + 0.1)).all()
    assert model.sample(5, random_state=0).shape == (5, 40)


@pytest.mark.parametrize("sparse", ["dims", "rows"])
def test_save_and_load(sparse, tmp_path):
    X, _, _ = planted(1, 12, 20, 2)
    X[3, 4] = np.nan
    model = fit(X, Gibbs(n_warmup=20, n_draws=20), parts={"sparse": sparse})
    model.save(tmp_path / "fit.thali")
    again = thali.load(tmp_path / "fit.thali")
    for name in ("transform", "impute", "score_samples"):
        assert np.array_equal(getattr(again, name)(X), getattr(model, name)(X)), name
    assert np.array_equal(again.components_, model.components_)
    if sparse == "dims":
        assert np.array_equal(again.loadings_presence_, model.loadings_presence_)


def test_a_finite_prior(rng):
    X, loadings, _ = planted(2, 20, 80, 2)
    model = fit(X, Gibbs(n_warmup=100, n_draws=60), prior=BetaBernoulli(n_features=5))
    assert model.n_components_ == 2
    assert matched(model.components_.T, loadings).min() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("n_dims", "n_rows", "n_factors"), [(60, 200, 6), (500, 100, 10)])
def test_default_fits_recover_planted_loadings(n_dims, n_rows, n_factors, seed):
    X, loadings, _ = planted(seed, n_dims, n_rows, n_factors)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LatentFeatures(SparseFactorAnalysis(), random_state=seed, verbose=False).fit(X)
    assert model.n_components_ == n_factors
    assert matched(model.components_.T, loadings).min() > 0.9


# ---- data that nobody prepared


def odd(kind):
    X, _, _ = planted(0, 12, 40, 2)
    if kind == "constant dim":
        X[:, 3] = 7.0
    elif kind == "more dims than rows":
        X = planted(0, 60, 8, 2)[0]
    elif kind == "odd units":
        X = X * 10.0 ** np.linspace(-6, 6, 12) + 1e3
    elif kind == "an outlier":
        X[5, 5] = 1e6
    elif kind == "one row":
        X = X[:1]
    elif kind == "one dim":
        X = X[:, :1]
    elif kind == "far from zero":
        X = X + 1e9
    elif kind == "all constant":
        X = np.ones((10, 4))
    elif kind == "half missing":
        X[np.random.default_rng(0).random(X.shape) < 0.5] = np.nan
    return X


ODD = (
    "constant dim", "more dims than rows", "odd units", "an outlier", "one row", "one dim", "far from zero",
    "all constant", "half missing",
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "sparse"),
    thinned(
        itertools.product(ODD, ("dims", "rows")),
        ("constant dim", "dims"),
        ("more dims than rows", "dims"),
        ("odd units", "rows"),
        ("one row", "dims"),
        ("half missing", "rows"),
    ),
)
def test_odd_data(kind, sparse):
    X = odd(kind)
    model = fit(X, Gibbs(n_warmup=15, n_draws=15), parts={"sparse": sparse})
    assert np.isfinite(model.transform(X)).all()
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(model.impute(X)).all()


@pytest.mark.parametrize("inference", [QUICK, MeanField(n_restarts=1)], ids=["sampled", "mean field"])
def test_dims_that_never_vary(inference):
    """They take no part, are predicted as they are, and leave the noise of the others as it was."""
    X, *_ = planted(0, 12, 200, 3, share=0.4)
    X[:, :4], X[0, 0] = 7.0, np.nan
    fitted = fit(X, inference)
    without = fit(X[:, 4:], inference)
    assert fitted.n_components_ == without.n_components_ <= 3
    assert fitted.loadings_presence_[:, :4].mean() < 0.3  # as of any dim that is noise
    np.testing.assert_allclose(fitted.impute(X)[0, 0], 7.0, atol=1e-2)
    book, other = (model.posterior_.codebook(0, 0) for model in (fitted, without))
    assert np.all(np.abs(np.log(book.noise[4:] / other.noise)) < 1.0)


@pytest.mark.parametrize("inference", [QUICK, MeanField(n_restarts=1)], ids=["sampled", "mean field"])
@pytest.mark.parametrize("sparse", ["dims", "rows"])
def test_nothing_to_find(sparse, inference):
    fitted = fit(np.tile([1.0, 2.0, 3.0], (30, 1)), inference, parts={"sparse": sparse})
    assert fitted.n_components_ == 0
    np.testing.assert_allclose(fitted.impute(np.array([[np.nan, 2.0, 3.0]])), [[1.0, 2.0, 3.0]], atol=1e-2)


def test_dims_that_others_tell_exactly():
    """A dim twice, and a sum: their noise is at its floor, where samplers stay."""
    X, *_ = planted(0, 8, 150, 2, share=0.5)
    X = np.column_stack([X, X[:, 0], X[:, 1] + X[:, 2]])
    fitted = fit(X)
    assert np.isfinite(fitted.posterior_.draws["log_joint"]).all()
    assert all(np.all(fitted.posterior_.codebook(0, i).noise > 0) for i in range(60))


@pytest.mark.slow
@pytest.mark.parametrize(("floor", "most"), [(None, (7, 9)), (1e-6, None)])
def test_a_copy_and_a_sum_add_few_factors(floor, most):
    """What a dim shares with its copy alone is a factor of these two, and a sum shares the noise of three; without a
    floor that matters, chains never lose the others that they begin with."""
    X, *_ = planted(0, 30, 200, 5)
    observation = SparseFactorAnalysis() if floor is None else SparseFactorAnalysis(noise_floor=floor)
    numbers = []
    for told in (X[:, 0], X[:, :3].sum(axis=1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LatentFeatures(observation, random_state=0, verbose=False).fit(np.column_stack([X, told]))
        numbers.append(model.n_components_)
    if most is None:
        assert max(numbers) > 9
    else:
        assert 5 <= numbers[0] <= most[0]
        assert 5 <= numbers[1] <= most[1]


def test_units_do_not_matter():
    X = planted(0, 12, 60, 2)[0]
    units = 2.0 ** np.arange(-6, 6)
    one, other = (fit(data, Gibbs(n_warmup=15, n_draws=15)) for data in (X, X * units))
    np.testing.assert_allclose(other.components_, one.components_ * units, rtol=1e-9)
    np.testing.assert_allclose(other.score(X * units), one.score(X) - np.log(units).sum(), rtol=1e-9)


@pytest.mark.parametrize("sparse", ["dims", "rows"])
def test_bad_data_are_refused(sparse):
    X = planted(0, 6, 20, 2)[0]
    for bad, match in (
        (np.where(X > 1, np.inf, X), "infin"),
        (np.where(np.arange(6) == 2, np.nan, X), "first at index 2"),
    ):
        with pytest.raises(InvalidDataError, match=match):
            fit(bad, parts={"sparse": sparse})


@pytest.mark.parametrize(
    "parts",
    [
        {"sparse": "columns"},
        {"noise_var": -1.0},
        {"loading_var": "learned"},
        {"noise_floor": 1.0},
        {"scale": [1.0, -1.0]},
    ],
)
def test_bad_parameters_are_refused(parts):
    with pytest.raises(InvalidParameterError):
        SparseFactorAnalysis(**parts)


@pytest.mark.parametrize("proposal", [(0.0, 0.1), (10.0, 1.0), (10.0,), 3.0])
def test_bad_proposals_are_refused(proposal):
    with pytest.raises(InvalidParameterError, match="proposal"):
        Gibbs(births="proposed", proposal=proposal)


def test_proposals_of_own_factors(rng):
    X = planted(2, 20, 80, 2)[0]
    model = fit(X, Gibbs(n_warmup=60, n_draws=60, births="proposed"))
    assert model.n_components_ == 2
    with pytest.raises(IncompatibleModelError, match="ProposedRows"):
        LatentFeatures(inference=Gibbs(births="proposed")).fit(X)
