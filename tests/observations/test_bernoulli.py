"""Zeros and ones: exact by enumeration and by joint draws, right on their own scale, saved, refused in words."""

import itertools
import math
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm, poisson

import thali
from thali import (
    IBP,
    Bernoulli,
    BetaBernoulli,
    BPMeans,
    CollapsedGibbs,
    Gamma,
    Gibbs,
    IncompatibleModelError,
    InvalidDataError,
    InverseGamma,
    LatentFeatures,
    MeanField,
    NormalOffset,
    ParticleFilter,
    SliceSampler,
)
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows, MarginalRows
from thali.core.protocols.engines.predictions import Predictions
from thali.observations.gaussian.model import Cells
from thali.testing import check_observation, geweke, z_limit
from thali.testing.enumerate import compare_with_exact, enumerate_posterior

X3 = np.array([[1.0, 1, 0, 1], [1, 1, 0, 1], [0, 0, 1, np.nan]])
FIXED = Bernoulli(feature_var=3.0, offset=np.array([0.5, 0.0, -0.5, 0.2]))
LEARNED = Bernoulli(feature_var=InverseGamma(4.0, 4.0), offset=NormalOffset(centre=np.array([0.3, -0.3]), spread=2.0))
SAMPLERS = {
    "collapsed": CollapsedGibbs(start="empty", moves=0.3),
    "Gibbs": Gibbs(start="empty"),
    "importance": Gibbs(start="empty", births="importance", candidates=3),
    "slices": SliceSampler(start="empty"),
}
OPTIONS = {"n_chains": 20, "n_steps": 250, "max_features": 4}
SHORT = {"n_warmup": 20, "n_draws": 15}


def worst(scores):
    return max(abs(z) for z in scores.values())


def data(n_rows=80, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.integers(2, size=(n_rows, 2)).astype(np.uint8)
    A = np.array([[3.0] * 4 + [0.0] * 4, [0.0] * 4 + [3.0] * 4])
    X = Bernoulli(feature_var=1.0, offset=np.full(8, -1.5)).simulate(rng, Z, features=A)
    X[3, 2] = X[5, 6] = np.nan
    return X, Z


def fitted(X, inference=None, **settings):
    common = {"n_chains": 2, "n_jobs": 1, "random_state": 0, "verbose": False} | settings
    inference = CollapsedGibbs(**SHORT) if inference is None else inference
    return LatentFeatures(Bernoulli(), IBP(), inference, **common).fit(X)


# ---- what the model is


def test_it_is_one_short_file():
    lines = (Path(thali.__file__).parent / "observations" / "bernoulli.py").read_text().splitlines()
    assert len(lines) <= 150


@pytest.mark.parametrize("value", [2.0, 0.5, -1.0, 1e-9])
def test_other_numbers_are_refused(value):
    with pytest.raises(InvalidDataError, match=rf"^X must hold zeros and ones, NaN .*\. Got {value:g}\. Recode"):
        Bernoulli().check_data([[0.0, 1.0], [value, 1.0]])


def test_what_it_takes_is_left_as_it_is():
    np.testing.assert_array_equal(Bernoulli().check_data([[True, False], [False, True]]), [[1, 0], [0, 1]])
    with pytest.raises(InvalidDataError, match="offset has 2 entries, but X has 3 dims"):
        Bernoulli(offset=[0.0, 1.0]).check_data(np.ones((2, 3)))


def test_simulated_cells_have_the_probabilities_that_it_says(rng):
    Z = np.repeat(np.array([[0, 0], [1, 0], [1, 1]], dtype=np.uint8), 20_000, axis=0)
    features = np.array([[1.0, -2.0], [0.5, 3.0]])
    model = Bernoulli(feature_var=1.0, offset=np.array([-0.4, 0.1]))
    X = model.simulate(rng, Z, features=features)
    assert np.isin(X, (0.0, 1.0)).all()
    expected = ndtr(np.array([[-0.4, 0.1], [0.6, -1.9], [1.1, 1.1]]))
    np.testing.assert_allclose(model.reconstruct(Z[::20_000], features), expected, rtol=1e-12)
    np.testing.assert_allclose(X.reshape(3, 20_000, 2).mean(axis=1), expected, atol=5 * 0.5 / math.sqrt(20_000))
    seen = np.array([[1.0, 0.0], [np.nan, 1.0], [1.0, 1.0]])
    cells = [expected[0, 0], 1 - expected[0, 1], expected[1, 1], expected[2, 0], expected[2, 1]]
    assert model.log_prob(seen, Z[::20_000], features) == pytest.approx(np.log(cells).sum())


def test_the_marginal_of_three_rows_is_an_orthant_probability():
    """1/8 + sum arcsin(correlation) / 4 pi where there is no offset."""
    Z = np.array([[1, 0], [1, 1], [0, 1]], dtype=np.uint8)
    cov = np.eye(3) + 2.0 * Z.astype(float) @ Z.T
    r = cov / np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
    for signs in itertools.product((-1, 1), repeat=3):
        turned = r * np.outer(signs, signs)
        wanted = 0.125 + (math.asin(turned[0, 1]) + math.asin(turned[0, 2]) + math.asin(turned[1, 2])) / (4 * math.pi)
        X = (np.array(signs) > 0).astype(float)[:, None]
        got = Bernoulli(feature_var=2.0, offset=None).engine(MarginalRows).log_marginal(X, Z)
        assert got == pytest.approx(math.log(wanted), abs=1e-5)


def test_the_marginal_is_the_mean_over_features(rng):
    Z = np.array([[1, 0], [1, 1], [0, 1]], dtype=np.uint8)
    terms = [FIXED.log_prob(X3, Z, FIXED.draw_features(rng, 2, 4)) for _ in range(20_000)]
    ratio = np.exp(np.array(terms) - FIXED.engine(MarginalRows).log_marginal(X3, Z))
    assert abs(ratio.mean() - 1.0) < 5 * ratio.std() / math.sqrt(len(ratio))


def test_dims_that_are_all_zero_or_all_one_have_a_finite_centre():
    X = np.array([[0.0, 1.0], [0.0, 1.0], [np.nan, 1.0]])
    centre = Bernoulli().adapt(X).offset.centre
    np.testing.assert_allclose(centre, norm.ppf([1 / 4, 4 / 5]))


# ---- exactness


@pytest.mark.parametrize(
    ("sampler", "prior"),
    [
        ("collapsed", BetaBernoulli(mass=1.0, n_features=2)),
        ("Gibbs", BetaBernoulli(mass=1.0, n_features=2)),
        *(pytest.param(name, IBP(mass=0.8), marks=pytest.mark.slow) for name in SAMPLERS),
    ],
)
def test_chains_reach_the_exact_posterior(sampler, prior, rng):
    scores = compare_with_exact(Model(prior, FIXED), SAMPLERS[sampler], X3, rng, **OPTIONS)
    assert worst(scores) <= z_limit(len(scores)), scores


class WrongSide(Bernoulli):
    """Wrong: the latent cells of one dim lie on the other side of zero."""

    def cells(self, X):
        points, lower, upper = super().cells(X)
        points, lower, upper = points.copy(), lower.copy(), upper.copy()
        points[:, 0], lower[:, 0], upper[:, 0] = -points[:, 0], -upper[:, 0], -lower[:, 0]
        return Cells(points, lower, upper)


def test_the_wrong_side_is_seen(rng):
    class RightMarginal(Bernoulli.engines[MarginalRows]):
        def log_marginal(self, X, codes):
            return FIXED.engine(MarginalRows).log_marginal(X, codes)

    class Mutant(WrongSide):
        engines = MappingProxyType(dict(Bernoulli.engines) | {MarginalRows: RightMarginal})

    model = Model(BetaBernoulli(mass=1.0, n_features=2), Mutant(feature_var=3.0, offset=FIXED.offset))
    scores = compare_with_exact(model, SAMPLERS["collapsed"], X3, rng, **OPTIONS)
    assert worst(scores) > z_limit(len(scores)), scores


@pytest.mark.parametrize(
    ("sampler", "n_replicates"),
    [("collapsed", 1500), ("Gibbs", 1500)] + [pytest.param(s, 20_000, marks=pytest.mark.slow) for s in SAMPLERS],
)
def test_steps_keep_the_joint_distribution(sampler, n_replicates, rng):
    missing = np.zeros((3, 2), dtype=bool)
    missing[1, 1] = True
    model = Model(IBP(mass=Gamma(3.0, 3.0)), LEARNED)
    result = geweke(model, SAMPLERS[sampler], rng, n_rows=3, n_replicates=n_replicates, missing=missing)
    assert result.passed, result.worst


def test_imputed_probabilities_are_exact():
    """P(x = 1) of the missing cell is the ratio of the evidence with it to that without it."""
    model = Model(BetaBernoulli(mass=1.0, n_features=2), FIXED)
    with_it = X3.copy()
    with_it[2, 3] = 1.0
    wanted = math.exp(enumerate_posterior(model, with_it).log_evidence - enumerate_posterior(model, X3).log_evidence)
    inference = Gibbs(n_warmup=100, n_draws=1500, start="empty")
    fit = LatentFeatures(FIXED, model.prior, inference, n_chains=4, random_state=1, verbose=False)
    fit.fit(X3)
    assert fit.impute(X3)[2, 3] == pytest.approx(wanted, abs=0.02)
    mask = np.isnan(X3)
    assert fit.heldout_score(with_it, mask) == pytest.approx(math.log(wanted), abs=0.03)


# ---- predictions


def test_rows_have_probabilities_that_sum_to_one():
    rows = Bernoulli(feature_var=2.0, offset=np.array([0.3, -0.4, 0.1]))
    chain = rows.engine(ChainRows)
    X = np.array([[1.0, 0, 1], [1, 1, 1], [0, 0, 0]])
    Z = np.array([[1, 0], [1, 1], [0, 1]], dtype=np.uint8)
    chain_data = chain.prepare(X)
    book = chain.codebook(chain_data, chain.place(chain_data, Z, 2.0 * X - 1.0))
    every = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
    log_odds, rate = np.array([0.3, -0.6]), 0.4
    encoded = rows.engine(Predictions).encode(every, book, log_odds, rate)
    assert np.exp(encoded.log_density).sum() == pytest.approx(1.0, abs=1e-6)
    # by hand, of one row
    total, presence = 0.0, np.zeros(2)
    for bits in itertools.product((0, 1), repeat=2):
        v = np.array(bits)
        for n in range(10):
            sd = math.sqrt(1 + v @ book.gram_inv @ v + 2.0 * n)
            p = ndtr((rows.offset + v @ book.features) / sd)
            weight = np.prod(np.where(every[5] == 1, p, 1 - p)) * poisson.pmf(n, rate)
            weight *= np.prod(np.where(v == 1, 1 / (1 + np.exp(-log_odds)), 1 / (1 + np.exp(log_odds))))
            total, presence = total + weight, presence + weight * v
    assert encoded.log_density[5] == pytest.approx(math.log(total), abs=1e-6)
    np.testing.assert_allclose(encoded.presence[5], presence / total, atol=1e-6)


def test_it_finds_what_made_the_data():
    X, Z = data()
    with pytest.warns(UserWarning, match="converged"):
        model = fitted(X, CollapsedGibbs(n_warmup=100, n_draws=60))
    assert model.n_components_ == 2
    presence = model.presence(X)
    alike = np.abs(np.corrcoef(presence.T, Z.T)[:2, 2:])  # a feature and its complement say the same
    assert (alike.max(axis=0) > 0.8).all()
    filled, lower, upper = model.impute(X, interval=0.9)
    for cell in ((3, 2), (5, 6)):
        assert 0.0 < filled[cell] < 1.0
        assert lower[cell] in (0.0, 1.0)
        assert lower[cell] <= upper[cell]
    assert np.isin(model.sample(30, random_state=1), (0.0, 1.0)).all()
    back = model.inverse_transform(model.transform(X))
    assert ((back > 0) & (back < 1)).all()
    new = np.array([[1.0] * 4 + [0.0] * 4, [1.0, 0.0] * 4])
    assert model.score_samples(new)[0] > model.score_samples(new)[1] + 1.0
    assert (model.score_samples(new) < 0).all()
    assert ((model.novelty(new) >= 0) & (model.novelty(new) <= 1)).all()
    holes = new.copy()
    holes[0, 3] = holes[1, 0] = np.nan
    assert model.impute(holes)[0, 3] > 0.7
    with pytest.raises(InvalidDataError, match=r"zeros and ones.*Got 1\.5"):
        model.score_samples(new + 0.5)
    mask = np.zeros(X.shape, dtype=bool)
    mask[0, 0] = mask[1, 5] = True
    assert -3.0 < model.heldout_score(np.nan_to_num(X), mask) < 0.0


def test_constant_dims_and_missing_cells_are_fitted():
    X, _ = data(30)
    X[:, 0], X[:, 7] = 0.0, 1.0
    X[::3, 1] = np.nan
    with pytest.warns(UserWarning, match="converged"):
        model = fitted(X, Gibbs(**SHORT))
    filled = model.impute(X)
    assert np.isfinite(filled).all()
    assert ((filled >= 0) & (filled <= 1)).all()
    assert model.posterior_.is_finite()


# ---- files and other inferences


def test_it_is_saved_and_loaded(tmp_path):
    X, _ = data(20)
    with pytest.warns(UserWarning, match="converged"):
        model = fitted(X)
    model.save(tmp_path / "fit.thali")
    again = thali.load(tmp_path / "fit.thali")
    assert isinstance(again.observation, Bernoulli)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    np.testing.assert_array_equal(again.impute(X), model.impute(X))
    assert again.score(X[:3]) == model.score(X[:3])


@pytest.mark.parametrize("inference", [MeanField(), BPMeans(), ParticleFilter(), thali.StochasticMeanField()])
def test_what_it_cannot_do_is_refused_in_words(inference):
    with pytest.raises(IncompatibleModelError, match="which Bernoulli does not provide") as error:
        LatentFeatures(Bernoulli(), IBP(), inference).fit(data(10)[0])
    assert "Inference that fits IBP x Bernoulli: CollapsedGibbs" in str(error.value)


def test_auto_samples_it():
    with pytest.warns(UserWarning, match="converged"):
        model = LatentFeatures(Bernoulli(), n_chains=2, random_state=0, verbose=False, max_time=1.0).fit(data(12)[0])
    assert type(model.inference_.inference) is CollapsedGibbs


def test_it_keeps_its_contracts(rng):
    check_observation(Bernoulli(feature_var=1.5, offset=np.array([0.2, -0.4])), rng, n_draws=2000)
