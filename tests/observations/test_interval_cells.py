"""Cells that are known to lie in an interval: sampled exactly, and a missing cell is one that lies everywhere."""

import math

import numpy as np
import pytest
from censored import Censored

from thali import (
    IBP,
    BetaBernoulli,
    CollapsedGibbs,
    Gamma,
    Gibbs,
    InverseGamma,
    LatentFeatures,
    LinearGaussian,
    NormalOffset,
    PerDim,
    SliceSampler,
)
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows, MarginalRows, ParallelRows
from thali.inference.samplers.chain import ZChain
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.rows import GaussianChain
from thali.testing import geweke, z_limit
from thali.testing.enumerate import compare_with_exact

X = np.array([[2.0, -1.4, 0.4], [1.5, 0.3, -3.0], [0.2, np.nan, 1.8]])  # known, above, between, below, missing
FIXED = Censored(noise_var=0.4, feature_var=1.5)
LEARNED = {
    "one noise level": Censored(
        noise_var=InverseGamma(4.0, 2.0),
        feature_var=InverseGamma(4.0, 4.0),
        offset=NormalOffset(centre=np.array([0.3, -0.3]), spread=2.0),
    ),
    "noise by dim": Censored(
        noise_var=PerDim(3.0, Gamma(3.0, 3.0)), feature_var=InverseGamma(4.0, 4.0), scale=np.ones(2)
    ),
}
MISSING = np.zeros((3, 2), dtype=bool)
MISSING[1, 1] = True
SAMPLERS = {
    "collapsed": CollapsedGibbs(start="empty", moves=0.3),
    "Gibbs": Gibbs(start="empty"),
    "importance": Gibbs(start="empty", births="importance", candidates=3),
    "slices": SliceSampler(start="empty"),
}


def worst(scores):
    return max(abs(z) for z in scores.values())


# ---- the data


def test_hidden_cells_are_missing_or_bounded():
    data = FIXED.engine(ChainRows).prepare(X)
    assert list(zip(*data.hidden, strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]
    assert list(data.free_dim) == [1]
    assert list(data.free_start) == [0, 0, 0, 1]
    assert list(data.is_free) == [False, False, False, False, True, False]
    np.testing.assert_array_equal(data.bounds[0], [1.0, -2.0, 1.0, -math.inf, -math.inf, 1.0])
    np.testing.assert_array_equal(data.bounds[1], [math.inf, -1.0, math.inf, -2.0, math.inf, math.inf])
    assert data.holds(np.where(data.is_free, 9.0, data.points))
    assert not data.holds(np.zeros(6))


def test_an_interval_without_bounds_is_a_missing_cell():
    holes = np.where(np.arange(9).reshape(3, 3) % 4 == 1, np.nan, X)
    everywhere = np.full(X.shape, math.inf)
    one, other = GaussianData(holes), GaussianData(holes, -everywhere, everywhere)
    assert one.bounds is None
    assert other.bounds is None
    assert vars(one).keys() == vars(other).keys()
    for name in ("hidden_start", "hidden_dim", "free_start", "free_dim", "X"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_states_outside_of_the_intervals_are_refused():
    rows = FIXED.engine(ChainRows)
    data = rows.prepare(X)
    Z = np.ones((3, 1), dtype=np.uint8)
    rows.check(data, rows.rows(data, Z, np.where(data.is_free, 0.0, data.points)))
    with pytest.raises(ValueError, match="outside of their intervals"):
        rows.check(data, rows.rows(data, Z, np.zeros(6)))


def test_known_cells_have_the_marginal_of_linear_gaussian():
    Z = np.array([[1, 0], [1, 1], [0, 1]], dtype=np.uint8)
    parts = {"noise_var": np.array([0.3, 0.5, 0.7]), "feature_var": 1.5, "offset": np.array([0.1, 0.0, -0.2])}
    got = Censored(**parts, limit=100.0).engine(MarginalRows).log_marginal(X, Z)
    assert got == pytest.approx(LinearGaussian(**parts).engine(MarginalRows).log_marginal(X, Z), rel=1e-12)


def test_the_marginal_integrates_to_one():
    """Over what a cell can be: below, between, a value, above."""
    Z = np.array([[1], [1]], dtype=np.uint8)
    marginal = FIXED.engine(MarginalRows)
    grid = (np.arange(2000) + 0.5) / 1000 - 1.0
    values = [math.exp(marginal.log_marginal(np.array([[1.5], [x]]), Z)) for x in grid]
    rest = [math.exp(marginal.log_marginal(np.array([[1.5], [x]]), Z)) for x in (-3.0, -1.5, 2.0)]
    alone = math.exp(marginal.log_marginal(np.array([[1.5]]), Z[:1]))
    assert np.mean(values) * 2 + sum(rest) == pytest.approx(alone, rel=1e-4)


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
    options = {"n_chains": 20, "n_steps": 250, "max_features": 4}
    scores = compare_with_exact(Model(prior, FIXED), SAMPLERS[sampler], X, rng, **options)
    assert worst(scores) <= z_limit(len(scores)), scores


def test_cells_that_stay_are_seen(rng, monkeypatch):
    monkeypatch.setattr(GaussianChain, "redraw_cells", lambda self, rng, data, local: local)
    options = {"n_chains": 20, "n_steps": 250, "max_features": 4}
    model = Model(BetaBernoulli(mass=1.0, n_features=2), FIXED)
    scores = compare_with_exact(model, SAMPLERS["Gibbs"], X, rng, **options)
    assert worst(scores) > z_limit(len(scores)), scores


@pytest.mark.parametrize(
    ("sampler", "observation", "n_replicates"),
    [("collapsed", "one noise level", 1500), ("slices", "noise by dim", 1500)]
    + [pytest.param(s, o, 20_000, marks=pytest.mark.slow) for s in SAMPLERS for o in LEARNED],
)
def test_steps_keep_the_joint_distribution(sampler, observation, n_replicates, rng):
    model = Model(IBP(mass=Gamma(3.0, 3.0)), LEARNED[observation])
    result = geweke(model, SAMPLERS[sampler], rng, n_rows=3, n_replicates=n_replicates, missing=MISSING)
    assert result.passed, result.worst


class Parallel(ZChain):
    """`Gibbs` as it is with many rows."""

    def sweep(self, rng, prior, observation, data, local):
        def draw_weights(counts):
            return prior.draw_weights(rng, counts, n_rows=len(local.z))

        engine, rate = observation.engine(ParallelRows), prior.new_rate(len(local.z))
        return engine.parallel_sweep(rng, data, local, draw_weights, rate, 1), 0.0


@pytest.mark.parametrize("n_replicates", [1500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_rows_side_by_side_keep_the_joint_distribution(n_replicates, rng):
    model = Model(IBP(mass=0.8), LEARNED["one noise level"])
    result = geweke(model, Parallel(), rng, n_rows=3, n_replicates=n_replicates, missing=MISSING)
    assert result.passed, result.worst


def test_cells_with_too_much_noise_are_seen(rng, monkeypatch):
    right = GaussianChain._cell_law

    def wrong(self, data, local, features):
        mean, sd = right(self, data, local, features)
        return mean, 1.5 * sd

    monkeypatch.setattr(GaussianChain, "_cell_law", wrong)
    model = Model(IBP(mass=0.8), Censored(noise_var=0.5, feature_var=1.0, limit=0.3))
    result = geweke(model, SAMPLERS["collapsed"], rng, n_rows=3, n_replicates=1500)
    assert not result.passed, result.worst


# ---- whole fits


def test_the_height_of_censored_values_is_seen_from_the_features_that_they_share(rng):
    Z = rng.integers(2, size=(120, 2)).astype(np.uint8)
    A = np.array([[3.0, 3.0, 0.0, 0.0, 5.0], [0.0, 0.0, 3.0, 3.0, 2.0]])
    X = Z @ A + 0.3 * rng.standard_normal((120, 5))
    settings = {"n_chains": 2, "random_state": 0, "verbose": False}
    model = LatentFeatures(Censored(limit=4.0), IBP(), CollapsedGibbs(n_warmup=60, n_draws=60), **settings)
    with pytest.warns(UserWarning, match="converged"):
        model.fit(np.minimum(X, 4.01))
    assert model.n_components_ == 2
    strong = model.components_[np.argmax(model.components_[:, 0])]
    np.testing.assert_allclose(strong[:4], A[0, :4], atol=0.3)
    assert strong[4] > 4.3  # all its cells were given as 4.01
