"""The mean field of sparse factor analysis: its bound, its updates, and what it finds."""

import itertools
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import gamma as gamma_law
from scipy.stats import multivariate_normal, norm
from test_sparse_factors import matched, planted
from thinned import thinned

import thali
from thali import (
    IncompatibleModelError,
    InvalidParameterError,
    LatentFeatures,
    MeanField,
    SparseFactorAnalysis,
    StochasticMeanField,
)
from thali.core.distributions import Gamma, NormalOffset, PerDim, PerFeature
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows, ScaledFeatures
from thali.core.protocols.engines.predictions import Predictions
from thali.core.statistics import add
from thali.observations.sparse.mean_field import SparseMeanField
from thali.observations.sparse.mean_field_factors import expected_noise
from thali.posteriors.approximation import Approximation
from thali.posteriors.variational import Variational
from thali.testing import z_limit
from thali.testing.zscores import z_scores

FIXED = {"noise_var": 0.5, "loading_var": 0.7, "offset": None, "scale": 1.0}
LEVELS = {"noise_var": PerDim(level=0.3), "loading_var": PerFeature(level=1.5)}
PARTS = {"learned": {}, "fixed": FIXED, "levels": LEVELS, "noise": {"loading_var": 0.7}, "loadings": {"noise_var": 0.4}}
PARTS["floor"] = {"noise_floor": 0.3}
CASES = list(itertools.product(("dims", "rows"), PARTS, (0.0, 0.2)))
ODDS = np.array([0.3, -0.6, 0.1])


class Fit:
    """An engine, data of any units, and factors of them that begin near some codes."""

    def __init__(
        self, sparse="dims", parts=None, missing=0.0, n_dims=5, n_rows=6, K=3, seed=0, family=None, engine=None
    ):
        rng = np.random.default_rng(seed)
        X = planted(seed, n_dims, n_rows, 2)[0] * rng.uniform(0.5, 2.0, n_dims) + 3.0 * rng.standard_normal(n_dims)
        X[rng.random(X.shape) < missing] = np.nan
        self.model = SparseFactorAnalysis(sparse=sparse, **(parts or {})).adapt(X)
        self.engine = (engine or SparseMeanField)(self.model)
        self.X, self.data, self.odds = X, self.engine.row_data(X), ODDS[:K]
        codes = rng.standard_normal((len(self.data), K)) * (rng.random((len(self.data), K)) < 0.7)
        self.q = self.engine.init_features(self.data, K, family or Family())
        self.local = self.engine.init_rows(self.data, codes)
        self.rows(0)
        self.features()

    def rows(self, n_passes=1):
        self.local, self.sums = self.engine.update_rows(self.data, self.q, self.local, self.odds, n_passes)

    def features(self):
        self.q = self.engine.update_features(self.q, self.sums)

    def bound(self, q=None, local=None):
        q, sums = q or self.q, self.sums
        if local is not None:
            sums = self.engine.update_rows(self.data, q, local, self.odds, 0)[1]
        bits = sums.counts @ self.odds - sums.n_rows * np.logaddexp(0.0, self.odds).sum()
        return float(self.engine.features_bound(q, sums) + bits)

    def settle(self, n_passes):
        for _ in range(n_passes):
            self.rows()
            self.features()
        self.rows(0)
        return self


# ---- the bound


@pytest.mark.parametrize(("sparse", "parts", "missing"), thinned(CASES, CASES[0]))
def test_bound_never_falls(sparse, parts, missing):
    families = [Family(), Family(bits="hard"), Family(features="independent")]
    for seed, family in enumerate(families if parts == "learned" else families[:1]):
        fit = Fit(sparse, PARTS[parts], missing, 12, 9, seed=seed, family=family)
        bounds = []
        for _ in range(20):
            fit.rows()
            bounds.append(fit.bound())
            fit.features()
            bounds.append(fit.bound())
        assert np.isfinite(bounds).all()
        assert np.diff(bounds).min() >= -1e-9 * abs(bounds[-1])


def drawn_terms(fit, rng):
    """log p(X, loadings, factors, precisions, levels, noise, offset | Z) - log q of one draw, law by law."""
    model, data, q, local = fit.model, fit.data, fit.q, fit.local
    K, total = q.n_features, 0.0

    def gamma(shape, rate, *prior):
        """A draw of q, and its term; `prior` is a law given as (shape, rate)."""
        nonlocal total
        value = rng.gamma(shape, 1.0 / rate)
        total += np.sum(gamma_law.logpdf(value, prior[0], scale=1.0 / np.asarray(prior[1])))
        total -= np.sum(gamma_law.logpdf(value, shape, scale=1.0 / np.asarray(rate)))
        return value

    def capped(shape, rate, ceiling):
        below = gamma_law.cdf(ceiling, shape, scale=1 / rate)
        return gamma_law.ppf(rng.random(len(shape)) * below, shape, scale=1 / rate)

    levels = []
    for law, factor in zip((model.loading_var, model.noise_var), q.levels, strict=True):
        level = getattr(law, "level", 1.0)
        levels.append(gamma(*factor, level.shape, level.rate) if isinstance(level, Gamma) else level)
    precisions, tau = np.full(K, 1.0), np.ones(data.n_rows)
    if isinstance(model.loading_var, PerFeature):
        a = model.loading_var.shape
        precisions = gamma(q.precision_shape, q.precision_rate, a, np.full(K, a * levels[0]))
    else:
        precisions = precisions / model.loading_var
    if model.laws.learns_noise:
        a = model.noise_var.shape
        tau = capped(local.noise_shape, local.noise_rate, 1.0 / model.noise_floor)
        total += np.sum(gamma_law.logpdf(tau, a, scale=1.0 / (a * levels[1])))
        total -= np.sum(gamma_law.logpdf(tau, local.noise_shape, scale=1.0 / local.noise_rate))
        total += np.sum(gamma_law.logcdf(1.0 / model.noise_floor, local.noise_shape, scale=1.0 / local.noise_rate))
    else:
        tau = tau / model.noise_var
    bits, V = fit.engine.draw_rows(rng, local)
    total -= np.sum(np.where(bits, np.log(local.z_prob), np.log1p(-local.z_prob)))
    total += np.sum(bits * (norm.logpdf(V, 0, precisions**-0.5) - norm.logpdf(V, local.mean, np.sqrt(local.var))))
    F = np.zeros((len(q.mean), data.n_cells))
    spreads = np.ones(len(q.mean))
    spreads[K:] = getattr(model.offset, "spread", 1.0)
    for c in range(data.n_cells):
        cov = q.cov[c if len(q.cov) > 1 else 0]
        F[:, c] = rng.multivariate_normal(q.mean[:, c], cov)
        total += np.sum(norm.logpdf(F[:, c], 0, np.sqrt(spreads)))
        total -= multivariate_normal.logpdf(F[:, c], q.mean[:, c], cov) if len(cov) else 0.0
    units = np.sqrt(model.unit_squares)
    offset = 0.0 if model.offset is None else model.offset
    if isinstance(model.offset, NormalOffset):
        own = F[-1]
        if model.owners == "dims":
            own = rng.normal(local.offset_mean, np.sqrt(local.offset_var))
            total += np.sum(norm.logpdf(own, 0, model.offset.spread**0.5))
            total -= np.sum(norm.logpdf(own, local.offset_mean, np.sqrt(local.offset_var)))
        offset = model.offset.centre + own * units
    mean = model.by_owner(V @ F[:K]) * units + offset
    sd = model.by_owner(np.broadcast_to(tau[:, None] ** -0.5, data.Y.shape)) * units
    return total + np.nansum(norm.logpdf(fit.X, mean, sd))


@pytest.mark.parametrize(("sparse", "parts", "missing"), thinned(CASES, CASES[-1]))
def test_bound_is_an_expectation(sparse, parts, missing, rng):
    """features_bound = E_q[log p - log q], by draws of q."""
    fit = Fit(sparse, PARTS[parts], missing, 4, 3, K=2)
    fit.settle(3)
    draws = np.array([[drawn_terms(fit, rng)] for _ in range(1000)])
    z = z_scores(draws, np.array([fit.engine.features_bound(fit.q, fit.sums)]))
    assert np.abs(z).max() <= z_limit(1), (z, draws.mean())
    wrong = z_scores(draws, np.array([fit.engine.features_bound(fit.q, fit.sums) + 1.0]))  # nat
    assert np.abs(wrong).max() > z_limit(1)


def log_evidence(Y, model, odds):
    """log p(Y) with one factor, two cells, by quadrature over its values and over the noise of a row."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = np.log(weights / weights.sum())
    F = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    total = (weights[:, None] + weights[None]).ravel()
    noise, mass = np.array([float(model.noise_var)]) if not model.laws.learns_noise else None, np.zeros(1)
    if model.laws.learns_noise:
        a = model.noise_var.shape
        grid = np.linspace(-8, 8, 801)
        noise = np.exp(grid)
        mass = gamma_law.logpdf(1 / noise, a, scale=1 / (a * model.noise_var.level)) - grid + np.log(grid[1] - grid[0])
    square = np.sum(F * F, axis=1)[:, None]
    for y in Y:
        along = (F @ y)[:, None]
        off = mass - np.log(2 * np.pi * noise) - 0.5 * (y @ y) / noise
        larger = noise + model.loading_var * square  # the variance along F
        on = mass - np.log(2 * np.pi) - 0.5 * np.log(noise * larger)
        on = on - 0.5 * (y @ y - model.loading_var * along**2 / larger) / noise
        both = np.logaddexp(odds + logsumexp(on, axis=1), logsumexp(off)) - np.logaddexp(0.0, odds)
        total = total + both
    return float(logsumexp(total))


@pytest.mark.parametrize(
    "noise", [0.5, pytest.param(PerDim(level=0.3), marks=pytest.mark.slow)], ids=["fixed", "learned"]
)
def test_bound_lies_below_the_evidence(noise):
    for seed in range(5):
        fit = Fit("rows", FIXED | {"noise_var": noise}, 0.0, 2, 4, K=1, seed=seed)
        exact = log_evidence(fit.data.Y, fit.model, fit.odds[0])
        bound = fit.settle(100).bound()
        assert exact - 5.0 < bound < exact  # nats
        assert log_evidence(fit.data.Y, fit.model, fit.odds[0] + 1e-3) != exact


# ---- updates


def risen(fit, step=1e-3):
    """Names of the numbers that can be changed so that the bound of a fit that has settled rises."""
    best = fit.bound(local=fit.local)
    found = set()

    def try_out(name, **changed):
        if fit.bound(**changed) > best + 1e-10 * abs(best):
            found.add(name)

    for name, sign in itertools.product(set(fit.local._fields) - {"noise_shape"}, (-1, 1)):  # which is known
        values = getattr(fit.local, name)
        for i in np.ndindex(values.shape):
            other = values.copy()
            other[i] += sign * step * (other[i] * (1 - other[i]) if name == "z_prob" else max(abs(other[i]), 1e-2))
            try_out(name, local=fit.local._replace(**{name: other}))
    for name, sign in itertools.product(("mean", "cov", "precision_shape", "precision_rate", "levels"), (-1, 1)):
        values = getattr(fit.q, name)
        for i in np.ndindex(values.shape):
            other = values.copy()
            other[i] += sign * step * (1e-2 if name in ("mean", "cov") else other[i])
            if name == "cov":
                other[i[0], i[2], i[1]] = other[i]
            try_out(name, q=fit.q._replace(**{name: other}), local=fit.local)
    return found


def unlearned(fit):
    """Numbers that stand for what is fixed."""
    names = set()
    if not isinstance(fit.model.loading_var, PerFeature):
        names |= {"precision_shape", "precision_rate"}
    if not fit.model.laws.learns_noise:
        names.add("noise_rate")
    if fit.model.owners == "rows" or fit.model.offset is None:
        names |= {"offset_mean", "offset_var"}
    return names


@pytest.mark.parametrize(("sparse", "parts", "missing"), thinned(CASES, CASES[1]))
def test_every_factor_is_at_its_optimum(sparse, parts, missing):
    fit = Fit(sparse, PARTS[parts], missing, 4, 4, K=2).settle(400)
    assert not risen(fit) - unlearned(fit)


class WrongPrecisions(SparseMeanField):
    def update_features(self, q, statistics, *, learn=True):
        q = super().update_features(q, statistics, learn=learn)
        return q._replace(precision_shape=q.precision_shape + 0.5 * statistics.counts)


class WrongGram(SparseMeanField):
    def update_features(self, q, statistics, *, learn=True):
        return super().update_features(q, statistics._replace(gram=statistics.gram * 1.1), learn=learn)


class WrongLevel(SparseMeanField):
    def update_features(self, q, statistics, *, learn=True):
        q = super().update_features(q, statistics, learn=learn)
        return q._replace(levels=q.levels * np.array([[1.0, 1.0], [1.0, 1.2]]))


@pytest.mark.parametrize(
    ("wrong", "names"),
    [(WrongPrecisions, {"precision_shape", "precision_rate"}), (WrongGram, {"mean", "cov"}), (WrongLevel, {"levels"})],
)
def test_a_wrong_update_is_seen(wrong, names):
    assert names & risen(Fit(n_dims=4, n_rows=4, K=2, engine=wrong).settle(100))


@pytest.mark.parametrize("parts", ["learned", "fixed"])
@pytest.mark.parametrize("sparse", ["dims", "rows"])
def test_stretch_is_the_best_factor(sparse, parts):
    """Of codes and factors against each other, with the precisions that go with it."""
    fit = Fit(sparse, PARTS[parts], 0.2, 8, 9).settle(2)
    engine, law = fit.model.engine(ScaledFeatures), fit.model.loading_var
    best = engine.stretch(fit.q, [fit.local])

    def bound(factors):
        q, sums = engine.turned(fit.q, factors), engine.turned(fit.sums, factors)
        if isinstance(law, PerFeature):
            rate = law.shape * fit.q.levels[0, 0] / fit.q.levels[0, 1] + 0.5 * sums.squares
            q = q._replace(precision_rate=rate, precision_shape=law.shape + 0.5 * sums.counts)
        return fit.engine.features_bound(q, sums)

    for k, by in itertools.product(range(len(best)), (0.98, 1.02)):
        other = best.copy()
        other[k] *= by
        assert bound(other) < bound(best)


@pytest.mark.parametrize("sparse", ["dims", "rows"])
def test_parts_add_up(sparse):
    """Statistics of some owners and of the others, on any number of threads."""
    fit = Fit(sparse, None, 0.2, 12, 9)
    halves = []
    for a, b in ((0, 4), (4, len(fit.data))):
        local = type(fit.local)(*(field[a:b] for field in fit.local))
        halves.append(fit.engine.update_rows(fit.data.part(a, b), fit.q, local, fit.odds, 2)[1])
    one, whole = (fit.engine.update_rows(fit.data, fit.q, fit.local, fit.odds, 2, n)[1] for n in (1, 2))
    for mine, parts, single in zip(whole, add(*halves), one, strict=True):
        np.testing.assert_allclose(mine, parts, 1e-9, 1e-9)
        assert np.array_equal(mine, single)


def test_heat_flattens():
    fit = Fit(n_dims=8, n_rows=9).settle(3)
    hot = fit.engine.annealed(fit.q, 50.0)
    local, _ = fit.engine.update_rows(fit.data, hot, fit.local, np.zeros(3), 3)
    cold, _ = fit.engine.update_rows(fit.data, fit.q, fit.local, np.zeros(3), 3)
    assert np.abs(local.z_prob - 0.5).mean() < np.abs(cold.z_prob - 0.5).mean()


# ---- fits


def fitted(X, sparse="dims", inference=None, **parts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        observation = SparseFactorAnalysis(sparse=sparse, **parts)
        inference = inference or MeanField(n_restarts=1)
        return LatentFeatures(observation, inference=inference, random_state=0, verbose=False).fit(X)


@pytest.mark.slow
@pytest.mark.parametrize("sparse", ["dims", "rows"])
def test_planted_loadings_are_found(sparse):
    X, loadings, scores = planted(0, 60, 200, 6)
    X = X if sparse == "dims" else X.T
    model = fitted(X, sparse, MeanField())
    found = model.components_.T, model.transform(X)
    found = found if sparse == "dims" else found[::-1]
    assert model.n_components_ == 6
    assert matched(found[0], loadings).min() > 0.9
    assert matched(found[1], scores).min() > 0.9
    presence = model.loadings_presence_.T if sparse == "dims" else model.presence(X)
    table = np.abs(np.corrcoef(found[0].T, loadings.T)[:6, 6:])
    assert np.mean((presence > 0.5) == (loadings[:, table.argmax(axis=1)] != 0)) > 0.9


@pytest.mark.parametrize("sparse", ["dims", "rows"])
def test_missing_cells_and_files(sparse, tmp_path):
    whole, _, _ = planted(2, 20, 60, 3)
    whole = 10.0 * (whole if sparse == "dims" else whole.T) + 5.0
    holes = np.random.default_rng(0).random(whole.shape) < 0.1
    X = np.where(holes, np.nan, whole)
    model = fitted(X, sparse)
    error = np.sqrt(np.mean((model.impute(X) - whole)[holes] ** 2))
    assert error < 0.6 * whole[holes].std()  # noise is a fifth of it
    filled, low, high = model.impute(X, interval=0.9)
    assert 0.75 < np.mean((low <= whole) & (whole <= high), where=holes) <= 1.0
    new = whole[:3] + 0.1
    path = tmp_path / "fit.thali"
    model.save(path)
    again = thali.load(path)
    assert again.posterior_.bound == model.posterior_.bound
    for name in ("transform", "score_samples", "impute"):
        for rows in (X, new):
            assert np.array_equal(getattr(again, name)(rows), getattr(model, name)(rows))
    assert model.posterior_.n_rows == len(X)
    assert model.posterior_.n_owners == X.shape[1 if sparse == "dims" else 0]
    assert np.isfinite(model.heldout_score(whole, holes))
    assert model.transform(X).shape == (len(X), model.n_components_)
    assert model.sample(4, random_state=0).shape == (4, X.shape[1])
    np.testing.assert_array_equal(filled[~holes], whole[~holes])


@pytest.mark.parametrize("sparse", ["dims", "rows"])
def test_codebook_holds_the_factors(sparse):
    """In the units of the data; what is not known of loadings is noise."""
    fit = Fit(sparse, None, 0.2, 8, 9).settle(5)
    model = fit.engine.concrete(fit.q, fit.local)
    book = fit.engine.codebook(fit.q, fit.local)
    assert type(book) is model.engine(Predictions).codebook_kind
    book.check(3, 8)
    left = fit.model.by_owner(fit.engine.unexplained(fit.data, fit.q, fit.local)) * np.sqrt(fit.model.unit_squares)
    codes = book.scores.T if sparse == "dims" else fit.engine.expected_codes(fit.local)
    seen = ~np.isnan(fit.X)
    np.testing.assert_allclose(left[seen], (fit.X - model.reconstruct(codes, book.features))[seen])
    assert not left[~seen].any()
    if sparse == "dims":
        draws = np.array([fit.engine.draw_rows(np.random.default_rng(i), fit.local)[1] for i in range(4000)])
        unit = fit.model.unit_squares
        spread = book.noise / unit - 1.0 / expected_noise(fit.model, fit.local)[0] - fit.local.offset_var
        squares = np.sum((draws - draws.mean(axis=0)) ** 2, axis=2)
        assert np.abs(z_scores(squares, spread)).max() <= z_limit(8)


def test_factors_of_one_dim_are_noise():
    """As in chains: they do not count, and what they add to a dim is part of its noise."""
    model = fitted(planted(2, 12, 40, 2)[0])
    old = model.posterior_.q
    alone = np.zeros((12, 1))
    alone[3] = 0.7
    local = old.engine.add_column(old.factors.local, alone[:, 0])
    z_prob = local.z_prob.copy()
    z_prob[:, -1] = np.where(alone[:, 0] > 0, 0.9, 0.01)
    factors = old.factors._replace(local=local._replace(z_prob=z_prob), q=old.engine.add_feature(old.factors.q))
    posterior = Variational(Approximation(old.spec, factors))
    rng = np.random.default_rng(0)
    bits = rng.random((40_000, 12)) < z_prob[:, -1]
    shared = bits.sum(axis=1) >= 2
    assert abs(shared.mean() - posterior.q.in_use[-1]) < z_limit(1) * shared.std() / 200
    given = bits[shared].astype(float)
    assert np.abs(z_scores(given, posterior.q.presence(np.array([z_prob.shape[1] - 1]))[:, 0])).max() <= z_limit(12)
    kept, book = posterior.consensus.columns, posterior.q.codebook
    assert z_prob.shape[1] - 1 not in kept
    more = posterior.persistent.noise - book.noise
    np.testing.assert_allclose(more, np.sum(np.delete(book.features, kept, axis=0) ** 2, axis=0))


def test_stochastic_mean_field():
    """Over samples that own their loadings; where dims do, a batch would be some of the dims."""
    X, loadings, scores = planted(3, 400, 15, 3)  # owners are the rows of X.T
    X = X.T
    model = fitted(X, "rows", StochasticMeanField(batch_size=100, n_start=200, n_restarts=1, n_epochs=5))
    assert model.n_components_ == 3
    assert matched(model.transform(X), loadings).min() > 0.9
    assert matched(model.components_.T, scores).min() > 0.9
    with pytest.raises(IncompatibleModelError, match="a batch would be some dims"):
        fitted(X, "dims", StochasticMeanField())


def test_what_there_is_not_is_refused():
    X = planted(0, 6, 20, 2)[0]
    with pytest.raises(InvalidParameterError, match="Leave precision out"):
        fitted(X, inference=MeanField(precision="single"))
    with pytest.raises(InvalidParameterError, match="Leave codes out"):
        fitted(X, inference=MeanField(codes="independent"))


@pytest.mark.parametrize("start", ["random", "empty", "spectral"])
def test_starts(start):
    X = planted(1, 30, 40, 2)[0]
    model = fitted(X, inference=MeanField(n_restarts=1, start=start, annealing=3.0))
    assert model.n_components_ >= 1
    assert isinstance(model.posterior_.model.observation.engine(MeanFieldRows), SparseMeanField)
    draws = [model.posterior_.marks(0, i).shape for i in range(3)]
    assert all(shape[0] == 30 for shape in draws)
