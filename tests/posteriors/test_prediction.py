"""Predictions against exact answers: every Z enumerated, every missing cell conditioned on by hand."""

import math
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logsumexp, ndtr
from scipy.stats import norm, poisson
from thinned import thinned

import thali
from thali import IBP, BetaBernoulli, LinearGaussian
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.core.protocols.engines.predictions import Predictions
from thali.observations.gaussian.prediction import BitPredictions
from thali.posteriors import prediction
from thali.posteriors.base import Draw
from thali.posteriors.draws import Draws
from thali.testing import enumerate_posterior
from thali.testing.zscores import z_limit, z_scores

N, D = 5, 3
PRIOR = BetaBernoulli(mass=1.5, n_features=2)


class KnownFeatures(BitPredictions):
    def cell_var(self, codes, codebook):
        return np.ones((len(codes), 1)) * self.model.noise_var


class NewRows(BitPredictions):
    def cell_var(self, codes, codebook):
        leverage = np.einsum("nk,kj,nj->n", codes, codebook.gram_inv, codes)
        return (1 / (1 - np.minimum(leverage, 0.9)))[:, None] * self.model.noise_var


class PlugIn(LinearGaussian):
    """Wrong: the features are taken for known."""

    engines = LinearGaussian.engines | {Predictions: KnownFeatures}


class FillingIgnored(LinearGaussian):
    """Wrong: a fitted row is taken for a new one, which knows nothing of its own filling."""

    engines = LinearGaussian.engines | {Predictions: NewRows}


SETTINGS = {
    "one noise level": {"noise_var": 0.4, "feature_var": 1.5},
    "per dim, offset": {"noise_var": np.array([0.3, 0.5, 0.4]), "feature_var": 2.0, "offset": np.array([1.0, 0, -2])},
}


class Problem:
    """Tiny data with missing cells, their exact posterior, and independent draws of it."""

    def __init__(self, **settings):
        rng = np.random.default_rng(8)
        self.observation = LinearGaussian(**settings)
        self.full = self.observation.simulate(rng, np.array([[1, 0], [1, 1], [0, 1], [1, 0], [0, 0]]), n_dims=D)
        self.mask = np.zeros((N, D), dtype=bool)
        self.mask[[0, 0, 3, 1], [0, 2, 0, 1]] = True
        self.X = np.where(self.mask, np.nan, self.full)
        self.exact = enumerate_posterior(Model(PRIOR, self.observation), self.X)
        # (matrix, cell): mean and variance of each missing cell given Z and the observed cells
        self.moments = [[self._conditional(Z, d) for d in range(D)] for Z in self.exact.matrices]
        self.row, self.dim = np.nonzero(self.mask)

    def _conditional(self, Z, d):
        """Mean and covariance of the missing cells of one dim."""
        noise = np.broadcast_to(self.observation.noise_var, D)[d]
        feature = self.observation.feature_var * (noise if self.observation.per_dim else 1.0)
        centre = 0.0 if self.observation.offset is None else self.observation.offset[d]
        cov = noise * np.eye(N) + feature * Z.astype(float) @ Z.T
        hidden, seen = self.mask[:, d], ~self.mask[:, d]
        gain = cov[np.ix_(hidden, seen)] @ np.linalg.inv(cov[np.ix_(seen, seen)])
        mean = centre + gain @ (self.X[seen, d] - centre)
        return mean, cov[np.ix_(hidden, hidden)] - gain @ cov[np.ix_(seen, hidden)]

    def cell_moments(self):
        """(matrices, cells) means and variances."""
        place = [int(self.mask[:n, d].sum()) for n, d in zip(self.row, self.dim, strict=True)]
        mean = [[m[d][0][i] for d, i in zip(self.dim, place, strict=True)] for m in self.moments]
        var = [[m[d][1][i, i] for d, i in zip(self.dim, place, strict=True)] for m in self.moments]
        return np.array(mean), np.array(var)

    def mean(self):
        return self.exact.probability @ self.cell_moments()[0]

    def score(self, by_cell):
        mean, var = self.cell_moments()
        log_cells = norm.logpdf(self.full[self.mask], mean, np.sqrt(var))
        group = np.arange(len(self.row)) if by_cell else self.row
        total = sum(logsumexp(log_cells[:, group == g].sum(axis=1), b=self.exact.probability) for g in np.unique(group))
        return total / len(self.row)

    def cdf(self, values):
        mean, var = self.cell_moments()
        return self.exact.probability @ ndtr((values - mean) / np.sqrt(var))

    def draws(self, rng, n_draws=1000):
        """Independent posterior draws of Z, of the filled cells, and so of the codebook."""
        recorded = []
        data = self.observation.engine(ChainRows).prepare(self.X)
        for i in rng.choice(len(self.exact.matrices), size=n_draws, p=self.exact.probability):
            X, Z = self.X.copy(), self.exact.matrices[i]
            for d, (mean, cov) in enumerate(self.moments[i]):
                X[self.mask[:, d], d] = mean + np.linalg.cholesky(cov) @ rng.standard_normal(len(mean))
            book = self.observation.engine(ChainRows).codebook(
                data, self.observation.engine(ChainRows).place(data, Z, X)
            )
            recorded.append(Draw(Z, 0.0, 0.0, PRIOR, self.observation, book))
        return Draws.from_chains(Model(PRIOR, self.observation), [recorded[: n_draws // 2], recorded[n_draws // 2 :]])


@pytest.fixture(scope="module", params=thinned(SETTINGS, "per dim, offset"))
def solved(request):
    """(problem, 12 independent sets of 1000 draws)."""
    problem, rng = Problem(**SETTINGS[request.param]), np.random.default_rng(4)
    return problem, [problem.draws(rng) for _ in range(12)]


def z_of_scores(problem, sets, kind=LinearGaussian):
    """z-scores of both held-out scores, as an observation model of this kind gives them."""
    model = Model(PRIOR, kind(**problem.observation.get_params()))
    estimates = []
    for p in sets:
        posterior = Draws(model, p.draws, p.hyper, p.packed_z, p.codebooks)
        estimates.append(
            [prediction.heldout(posterior, problem.full, problem.mask, by, fitted=True) for by in ("row", "cell")]
        )
    return z_scores(np.array(estimates), np.array([problem.score(False), problem.score(True)]))


LIMIT = 1.5 * z_limit(4)  # with so few sets their spread is Student's: 6.1 of it is as rare as 4.1 of a normal


def test_fitted_cells_have_the_exact_density(solved):
    assert np.abs(z_of_scores(*solved)).max() < LIMIT


@pytest.mark.parametrize("kind", [PlugIn, FillingIgnored])
def test_a_wrong_density_is_seen(solved, kind):
    assert np.abs(z_of_scores(*solved, kind)).max() > LIMIT


def test_fitted_cells_have_the_exact_mean(solved):
    problem, sets = solved
    filled = [prediction.impute(p, problem.X, None, fitted=True)[0][problem.mask] for p in sets]
    assert np.abs(z_scores(np.array(filled), problem.mean())).max() < LIMIT


def test_intervals_of_fitted_cells(solved):
    problem, sets = solved
    _, lower, upper = prediction.impute(sets[0], problem.X, 0.9, fitted=True)
    error = math.sqrt(2 * 0.05 * 0.95 / 1000)  # of a quantile of 1000 values whose centres are themselves drawn
    for end, share in ((lower, 0.05), (upper, 0.95)):
        assert np.abs(problem.cdf(end[problem.mask]) - share).max() < 4 * error


def test_observed_cells_are_untouched(solved, rng):
    problem, _ = solved
    posterior = problem.draws(rng, 20)
    for fitted in (True, False):
        for part in prediction.impute(posterior, problem.X, 0.5, fitted=fitted):
            assert np.array_equal(part[~problem.mask], problem.X[~problem.mask])
            assert np.isfinite(part).all()
        filled, lower, upper = prediction.impute(posterior, problem.full, 0.5, fitted=fitted)
        assert np.array_equal(filled, problem.full)
        assert np.array_equal(lower, upper)


def test_large_data_are_imputed_in_blocks(solved, rng, monkeypatch):
    problem, _ = solved
    posterior = problem.draws(rng, 20)
    for fitted in (True, False):
        whole = prediction.impute(posterior, problem.X, 0.5, fitted=fitted)
        with monkeypatch.context() as patch:
            patch.setattr(prediction, "_BLOCK", 1)
            by_row = prediction.impute(posterior, problem.X, 0.5, fitted=fitted)
        np.testing.assert_allclose(whole[0], by_row[0], rtol=1e-12)
        np.testing.assert_allclose(whole[1:], by_row[1:], atol=0.5)


# ---- new rows: every pattern of bits and number of unknown features, by hand


NEW = np.array([[1.0, np.nan, 0.3], [np.nan, 2.0, -1.0], [np.nan, np.nan, 4.0], [0.5, 0.1, 0.2]])
FULL = np.array([[1.0, 0.8, 0.3], [-0.5, 2.0, -1.0], [0.0, -2.0, 4.0], [0.5, 0.1, 0.2]])
PRIORS = {"IBP": IBP(mass=2.0), "finite": BetaBernoulli(mass=2.0, n_features=4)}


def few_draws(prior, observation):
    rng = np.random.default_rng(3)
    recorded = []
    for n_features in (2, 1, 3, 2):
        Z = np.zeros((12, prior.n_features if isinstance(prior, BetaBernoulli) else n_features), dtype=np.uint8)
        Z[:, :n_features] = rng.random((12, n_features)) < 0.5
        Z[0, :n_features] = 1
        X = observation.simulate(rng, Z, n_dims=D)
        data = observation.engine(ChainRows).prepare(X)
        book = observation.engine(ChainRows).codebook(data, observation.engine(ChainRows).place(data, Z, X))
        recorded.append(Draw(Z, 0.0, 0.0, prior, observation, book))
    return Draws.from_chains(Model(prior, observation), [recorded])


def patterns(posterior, X):
    """Of each row: (log weight given its observed cells, mean and sd of every cell, number of unknown features)."""
    found = [[] for _ in X]
    for draw in range(posterior.n_draws):
        model, book = posterior.concrete(0, draw), posterior.codebook(0, draw)
        prior, observation = model.prior, model.observation
        odds = prior.log_odds(13)
        rate = prior.new_rate(13)
        if isinstance(prior, BetaBernoulli):
            rate += (prior.n_features - len(book.counts)) * expit(odds[0])
        chance = expit(odds[book.counts])
        noise = np.broadcast_to(observation.noise_var, D)
        unit = noise if observation.per_dim else np.ones(D)
        for z, j in product(product((0, 1), repeat=len(chance)), range(12)):
            z = np.array(z)
            log_prior = np.log(np.where(z, chance, 1 - chance)).sum() + poisson.logpmf(j, rate)
            mean = observation.reconstruct(z[None], book.features)[0]
            sd = np.sqrt(noise * (1 + z @ book.gram_inv @ z) + j * observation.feature_var * unit)
            for n, x in enumerate(X):
                weight = log_prior + np.nansum(norm.logpdf(x, mean, sd))
                found[n].append((weight, mean, sd, j))
    return [[np.array(part) for part in zip(*row, strict=True)] for row in found]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("prior", PRIORS)
def test_new_rows_are_predicted_as_by_hand(prior, name):
    posterior = few_draws(PRIORS[prior], LinearGaussian(**SETTINGS[name]))
    mask = np.isnan(NEW)
    filled, lower, upper = prediction.impute(posterior, NEW, 0.8, fitted=False)
    scores = {"cell": [], "row": []}
    novel, covered = [], []
    for n, (weight, mean, sd, j) in enumerate(patterns(posterior, NEW)):
        weight = np.exp(weight - logsumexp(weight))
        np.testing.assert_allclose(filled[n, mask[n]], (weight @ mean)[mask[n]], rtol=1e-6)
        novel.append(weight @ (j > 0))
        hidden = norm.pdf(FULL[n], mean, sd)[:, mask[n]]
        scores["cell"] += list(np.log(weight @ hidden))
        scores["row"] += [np.log(weight @ hidden.prod(axis=1))] if mask[n].any() else []
        inside = ndtr((upper[n] - mean) / sd) - ndtr((lower[n] - mean) / sd)
        covered += list((weight @ inside)[mask[n]])
    np.testing.assert_allclose(prediction.novelty(posterior, NEW), novel, atol=1e-6)
    for by, parts in scores.items():
        found = prediction.heldout(posterior, FULL, mask, by, fitted=False)
        assert found == pytest.approx(sum(parts) / mask.sum(), abs=1e-6)
    # quantiles of 1000 values: 0.018 in all for each cell; bits of a row are drawn as if independent
    assert np.abs(np.array(covered) - 0.8).max() < 0.08


def test_nothing_is_new_when_a_finite_prior_uses_all_its_features():
    posterior = few_draws(BetaBernoulli(mass=2.0, n_features=3), LinearGaussian(**SETTINGS["one noise level"]))
    whole = Draws.from_chains(posterior.model, [[posterior_draw(posterior, 2)] * 4])
    assert np.array_equal(prediction.novelty(whole, NEW), np.zeros(4))


def posterior_draw(posterior, draw):
    model = posterior.concrete(0, draw)
    return Draw(posterior.Z(0, draw), 0.0, 0.0, model.prior, model.observation, posterior.codebook(0, draw))


@pytest.mark.parametrize("prior", PRIORS)
def test_samples_have_the_moments_of_the_predictive(prior, rng):
    posterior = few_draws(PRIORS[prior], LinearGaussian(**SETTINGS["per dim, offset"]))
    n = 20_000
    X = prediction.sample(posterior, n, rng)
    (weight, mean, sd, _) = patterns(posterior, np.full((1, D), np.nan))[0]
    weight = np.exp(weight - logsumexp(weight))
    first = weight @ mean
    second = np.einsum("s,si,sj->ij", weight, mean, mean) + np.diag(weight @ sd**2)
    products = np.einsum("ni,nj->nij", X, X).reshape(n, -1)
    z = z_scores(np.hstack([X, products]), np.concatenate([first, second.ravel()]))
    assert np.abs(z).max() < z_limit(len(z))


def test_a_wholly_missing_new_row_gets_the_prior():
    posterior = few_draws(IBP(mass=2.0), LinearGaussian(**SETTINGS["one noise level"]))
    nothing = np.full((1, D), np.nan)
    rates = [p.rate for p in posterior.pooled()]
    assert prediction.novelty(posterior, nothing)[0] == pytest.approx(1 - np.mean(np.exp(np.negative(rates))))
    expected = np.mean([expit(p.log_odds) @ p.codebook.features for p in posterior.pooled()], axis=0)
    np.testing.assert_allclose(prediction.impute(posterior, nothing, None, fitted=False)[0][0], expected)


def test_rows_without_any_feature(rng):
    observation = LinearGaussian(**SETTINGS["one noise level"])
    X = rng.standard_normal((6, D))
    data = observation.engine(ChainRows).prepare(X)
    Z = np.zeros((6, 0), dtype=np.uint8)
    draw = Draw(
        Z,
        0.0,
        0.0,
        IBP(mass=1e-9),
        observation,
        observation.engine(ChainRows).codebook(data, observation.engine(ChainRows).place(data, Z, X)),
    )
    posterior = Draws.from_chains(Model(IBP(mass=1e-9), observation), [[draw] * 5])
    mask = np.zeros(X.shape, dtype=bool)
    mask[1] = True
    for fitted in (True, False):
        filled, lower, upper = prediction.impute(posterior, np.where(mask, np.nan, X), 0.9, fitted=fitted)
        assert np.array_equal(filled[1], np.zeros(D))
        sd = math.sqrt(0.4)
        np.testing.assert_allclose(upper[1], np.full(D, 1.645 * sd), atol=0.3 * sd)  # 4 errors of a quantile
        np.testing.assert_allclose(lower[1], np.full(D, -1.645 * sd), atol=0.3 * sd)
        score = prediction.heldout(posterior, X, mask, "row", fitted=fitted)
        assert score == pytest.approx(norm.logpdf(X[1], 0, math.sqrt(0.4)).mean())
    assert prediction.sample(posterior, 7, rng).shape == (7, D)


# ---- what the pages say


@pytest.mark.slow
@pytest.mark.parametrize("page", ["how-to/missing-values.md", "explanation/how-many.md"])
def test_numbers_of_the_pages(page, capsys):
    """Each `print(...)  # 0.52 0.89` prints about these numbers: 4 errors of a share of draws with an ESS of 400."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()
    said = [line.partition("  # ")[2] for line in code.splitlines() if line.startswith("print")]
    assert len(printed) == len(said)
    number = r"-?\d+(?:\.\d+)?"
    for line, comment in zip(printed, said, strict=True):
        for found, expected in zip(re.findall(number, line), re.findall(number, comment), strict=False):
            assert abs(float(found) - float(expected)) < 0.1, f"{line!r}, the page says {comment!r}"


def test_scores_of_draws_while_a_fit_runs(monkeypatch):
    """A draw is scored by its own bits; the fit does not depend on the held-out values."""
    from thali.running import fitting

    rng = np.random.default_rng(3)
    X = thali.datasets.bars(60, random_state=1).X
    hidden = rng.random(X.shape) < 0.1
    seen = {}

    class Watcher:
        def __init__(self, shape, verbose):
            seen.update(chains=shape.tasks, score=shape.job.score)

        def __enter__(self):
            return lambda: None

        def __exit__(self, *_):
            pass

    settings = {"inference": thali.CollapsedGibbs(n_warmup=5, n_draws=5), "n_chains": 1, "random_state": 0}
    plain = thali.LatentFeatures(**settings).fit(np.where(hidden, np.nan, X))
    monkeypatch.setattr(fitting, "Progress", Watcher)
    model = thali.LatentFeatures(**settings).fit(np.where(hidden, np.nan, X), heldout=X)
    assert np.array_equal(model.components_, plain.components_)
    draw = seen["chains"][0].kept[-1]
    mean = draw.observation.reconstruct(draw.z[:, draw.z.any(axis=0)], draw.codebook.features)
    var = draw.observation.noise_var
    rough = float(np.mean(-0.5 * np.log(2 * np.pi * var) - 0.5 * (X - mean)[hidden] ** 2 / var))
    assert seen["score"](draw) == pytest.approx(rough, abs=0.1)
    with pytest.raises(thali.InvalidDataError, match="heldout must have the shape"):
        model.fit(X, heldout=X)
