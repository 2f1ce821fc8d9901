"""Mean field: the bound never falls, says what the factors say, and stays below the evidence; K is found."""

import itertools

import numpy as np
import pytest
from runs import ran, shape_of
from sklearn.utils.estimator_checks import check_estimator
from thinned import thinned

import thali
from thali import (
    IBP,
    ICA,
    BetaBernoulli,
    BetaProcess,
    FactorAnalysis,
    LatentFeatures,
    LinearGaussian,
    MeanField,
    PoissonGamma,
    StickBreakingIBP,
)
from thali.core.model import Model
from thali.core.protocols.engines.mean_field import MeanFieldRows
from thali.errors import IncompatibleModelError, InvalidParameterError
from thali.inference.calibration.noise_floor import calibrate
from thali.inference.variational import structure_moves as structure
from thali.inference.variational.ascent import all_counts, arrange, ascend, begin, global_step, local_step
from thali.running.choose import choose, serves

BARS = thali.datasets.bars(60)
PRIORS = [BetaBernoulli(n_features=8), StickBreakingIBP(truncation=8), BetaProcess(truncation=8, rounds=6), IBP()]
MODELS = [LinearGaussian(), FactorAnalysis(), ICA()]


def run(inference, X, prior=None, observation=None, seed=0, max_iter=None):
    """(states of the first restart, data)."""
    model = calibrate(Model(prior or IBP(), observation or LinearGaussian()), X)
    data = inference.prepare(model, X)
    rng = np.random.default_rng(seed)
    states, changed = [inference.init(rng, model, data, 0)], True
    while changed and len(states) < (max_iter or 200):
        state, changed = inference.step(rng, states[-1], model, data)
        states.append(state)
    return states, data


def some_data(rng, law="bits", n_rows=60, n_dims=8, n_features=3, noise=0.3):
    Z = rng.random((n_rows, n_features)) < 0.4
    W = {"bits": np.ones, "normal": rng.standard_normal, "laplace": lambda size: rng.laplace(size=size)}[law](Z.shape)
    features = 1.5 * rng.standard_normal((n_features, n_dims))
    return (Z * W) @ features + noise * rng.standard_normal((n_rows, n_dims)), features


def largest_fall(states):
    bounds = np.array([state.bound for state in states])
    return float(np.max(bounds[:-1] - bounds[1:], initial=0.0) / np.abs(bounds).max())


def bound_of(problem, state):
    """The bound from the factors alone."""
    prior, observation = problem.model.prior, problem.model.observation
    _, statistics = local_step(problem, state.q, state.weights, state.local, n_passes=0)
    counts = all_counts(prior, state.weights, statistics)
    return prior.weights_bound(state.weights, counts, problem.n_rows) + observation.engine(
        MeanFieldRows
    ).features_bound(state.q, statistics)


class TestBound:
    @pytest.mark.parametrize("start", thinned(["spectral", "random", "empty"], "random"))
    @pytest.mark.parametrize("observation", MODELS, ids=lambda spec: type(spec).__name__)
    def test_never_falls(self, rng, observation, start):
        law = {"LinearGaussian": "bits", "FactorAnalysis": "normal", "ICA": "laplace"}[type(observation).__name__]
        X, _ = some_data(rng, law)
        states, data = run(MeanField(start=start), X, observation=observation, max_iter=25)
        assert largest_fall(states) <= 1e-9
        assert {state.n_features for state in states} != {0}
        assert bound_of(data.problem, states[-1]) == pytest.approx(states[-1].bound, rel=1e-9)

    @pytest.mark.parametrize("prior", PRIORS, ids=lambda spec: type(spec).__name__)
    def test_never_falls_with_any_prior(self, rng, prior):
        X, _ = some_data(rng)
        X[rng.random(X.shape) < 0.1] = np.nan
        states, data = run(MeanField(start="random"), X, prior, max_iter=40)
        assert largest_fall(states) <= 1e-9
        assert bound_of(data.problem, states[-1]) == pytest.approx(states[-1].bound, rel=1e-9)

    def test_moves_that_are_always_taken_lower_it(self, rng, monkeypatch):
        """The mutant of acceptance."""
        monkeypatch.setattr(structure, "settle", lambda problem, trial, target: trial)
        X, _ = some_data(rng)
        states, _ = run(MeanField(start="spectral"), X, max_iter=40)
        assert largest_fall(states) > 1e-9

    @pytest.mark.parametrize("family", [{}, {"features": "independent"}, {"bits": "hard"}], ids=str)
    def test_stays_below_the_evidence(self, family):
        """G06: the exact evidence by enumeration; G18: the bound of a finite mean field with independent features."""
        n, d = np.meshgrid(np.arange(1, 5), np.arange(1, 4), indexing="ij")
        X = np.sin(n * d) + 0.7 * np.cos(0.3 * n + d)
        prior, observation = BetaBernoulli(1.5, n_features=2), LinearGaussian(noise_var=0.36, feature_var=1.21)
        inference = MeanField(n_restarts=6, tol=1e-10, **family)
        model = Model(prior, observation.adapt(X))
        result = ran(shape_of(X, inference, model, seed=0))
        assert result.posterior.bound < -16.4484199939
        if family.get("features") == "independent":
            assert result.posterior.bound == pytest.approx(-18.7039620948, abs=0.02)
        elif not family:
            assert result.posterior.bound > -18.7039620948

    def test_truncated_sticks_stay_below_theirs(self):
        """G20."""
        n, d = np.meshgrid(np.arange(1, 5), np.arange(1, 4), indexing="ij")
        X = np.sin(n * d) + 0.7 * np.cos(0.3 * n + d)
        observation = LinearGaussian(noise_var=0.36, feature_var=1.21)
        model = Model(StickBreakingIBP(1.5, truncation=2), observation.adapt(X))
        result = ran(shape_of(X, MeanField(n_restarts=3), model, seed=0))
        assert -20.0 < result.posterior.bound < -16.4935729825
        assert result.posterior.ibp_bound < result.posterior.bound

    def test_order_of_features(self, rng):
        """It means nothing to a finite prior; sticks want the frequent ones first."""
        X, _ = some_data(rng)
        codes = (rng.random((60, 3)) < [0.1, 0.3, 0.7]).astype(float)
        for prior in (BetaBernoulli(2.0, n_features=5), StickBreakingIBP(2.0, truncation=5)):
            model = Model(prior, LinearGaussian(noise_var=0.1, feature_var=1.0).adapt(X))
            data = MeanField().prepare(model, X)
            state = begin(data.problem, prior.init_weights(60), codes)
            turned = arrange(data.problem, state, [2, 1, 0])
            turned = global_step(data.problem, turned.local, turned.statistics, turned.q, turned.weights)
            if isinstance(prior, BetaBernoulli):
                assert turned.bound == pytest.approx(state.bound, rel=1e-12)
            else:
                assert turned.bound > state.bound + 1
                assert structure.sort_features(data.problem, state).bound == pytest.approx(turned.bound, abs=0.1)

    def test_unused_features_cost_nothing_but_their_weights(self, rng):
        """A state with room for more has the same rows and features, and the weights' own bound."""
        X, _ = some_data(rng)
        codes = (rng.random((60, 3)) < 0.4).astype(float)
        bounds = []
        for K in (3, 9):
            prior = BetaBernoulli(2.0, n_features=K)
            model = Model(prior, LinearGaussian(noise_var=0.1, feature_var=1.0).adapt(X))
            data = MeanField().prepare(model, X)
            state = begin(data.problem, prior.init_weights(60), codes)
            counts = all_counts(prior, state.weights, state.statistics)
            bounds.append(state.bound - prior.weights_bound(state.weights, counts, 60))
        assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)

    def test_useless_features_are_deleted(self, rng):
        X, _ = some_data(rng)
        codes = np.column_stack([(rng.random((60, 3)) < 0.4), np.zeros((60, 2))]).astype(float)
        prior = BetaBernoulli(2.0, n_features=8)
        model = Model(prior, LinearGaussian(noise_var=0.1, feature_var=1.0).adapt(X))
        data = MeanField().prepare(model, X)
        state = begin(data.problem, prior.init_weights(60), codes)
        pruned = structure.prune(data.problem, state)
        assert pruned.n_features <= 3
        assert pruned.bound >= state.bound - 1e-9 * abs(state.bound)
        assert bound_of(data.problem, pruned) == pytest.approx(pruned.bound, rel=1e-9)


class TestAnswers:
    @pytest.mark.parametrize("settings", thinned([
        {"n_restarts": 2}, {"start": "random"}, {"start": "random", "annealing": 16.0}, {"gradual": True},
        {"bits": "hard"}, {"features": "independent"}, {"precision": "single"},
    ], {"gradual": True}, {"bits": "hard"}), ids=str)  # fmt: skip
    def test_bars(self, settings):
        settings = {"n_restarts": 1} | settings
        model = LatentFeatures(inference=MeanField(**settings), random_state=1).fit(thali.datasets.bars(100).X)
        assert model.n_components_ == 4
        assert {tuple(f) for f in np.round(model.components_)} == {tuple(f) for f in BARS.features}

    @pytest.mark.parametrize("prior", PRIORS, ids=lambda spec: type(spec).__name__)
    def test_bars_with_any_prior(self, prior):
        model = LatentFeatures(prior=prior, inference=MeanField(n_restarts=1), random_state=1).fit(BARS.X)
        assert model.n_components_ == 4

    def test_without_moves_a_start_stays_what_it_is(self):
        model = LatentFeatures(inference=MeanField(n_restarts=1, moves=False, start="empty"), random_state=0)
        assert model.fit(BARS.X).n_components_ == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(3))
    def test_twenty_features_in_500_dims(self, seed):
        rng = np.random.default_rng(seed)
        Z, features = rng.random((500, 20)) < 0.15, rng.standard_normal((20, 500))
        X = Z @ features + 0.5 * rng.standard_normal((500, 500))
        model = LatentFeatures(inference=MeanField(n_restarts=2), random_state=seed).fit(X)
        assert abs(model.n_components_ - 20) <= 1
        both = np.corrcoef(np.vstack([features, model.components_]))
        assert (both[:20, 20:].max(axis=1) > 0.95).sum() >= 19

    def test_factors(self, rng):
        X, features = some_data(rng, "normal", n_rows=150, n_dims=12)
        model = LatentFeatures(FactorAnalysis(), inference=MeanField(n_restarts=1, tol=1e-5), random_state=0).fit(X)
        assert model.n_components_ == 3
        both = np.corrcoef(np.vstack([features, model.components_]))
        assert (np.abs(both[:3, 3:]).max(axis=1) > 0.9).all()
        assert model.transform(X).shape == (150, 3)
        mask = rng.random(X.shape) < 0.1
        fitted = LatentFeatures(FactorAnalysis(), inference=MeanField(n_restarts=1, max_iter=30), random_state=0)
        fitted.fit(np.where(mask, np.nan, X))
        scores = {by: fitted.heldout_score(X, mask, by=by) for by in ("row", "cell", "moment", "jensen", "plugin")}
        assert scores["row"] > np.mean(-0.5 * np.log(2 * np.pi * np.e * X.var()))
        assert scores["jensen"] < scores["moment"]

    def test_same_bits_on_any_number_of_threads(self):
        fits = [
            LatentFeatures(inference=MeanField(n_restarts=2, max_iter=8), random_state=0, n_jobs=n_jobs).fit(BARS.X)
            for n_jobs in (1, 2)
        ]
        assert np.array_equal(fits[0].history_["objective"], fits[1].history_["objective"])
        assert np.array_equal(fits[0].posterior_.z_prob, fits[1].posterior_.z_prob)

    def test_parts_do_not_matter(self, rng):
        """Sums over parts of the data are those of all of it."""
        X, _ = some_data(rng)
        codes = rng.random((60, 3))
        model = Model(IBP(), LinearGaussian().adapt(X))
        whole, gradual = MeanField().prepare(model, X), MeanField(gradual=True).prepare(model, X)
        assert len(whole.problem.parts) == 1
        assert len(gradual.problem.parts) == 8
        states = []
        for data in (whole, gradual):
            state = begin(data.problem, IBP().init_weights(60), codes)
            for _ in range(3):
                state = ascend(data.problem, state)
            states.append(state)
        assert states[0].bound == pytest.approx(states[1].bound, rel=1e-8)

    def test_the_room_for_features_grows(self, rng):
        X, features = some_data(rng, n_rows=120, n_dims=20, n_features=8)
        prior = IBP(mass=0.1)
        states, data = run(MeanField(start="empty"), X, prior)
        room = [len(prior.expected_weights(state.weights)) for state in (states[0], states[-1])]
        assert room[0] < 8 <= states[-1].n_features < room[1]
        assert largest_fall(states) <= 1e-9
        found = data.problem.model.observation.engine(MeanFieldRows).expected_features(states[-1].q)
        both = np.corrcoef(np.vstack([features, found]))
        assert (both[:8, 8:].max(axis=1) > 0.9).sum() >= 7


class TestSettings:
    def test_truncation_limits_the_features(self):
        for prior in (IBP(), StickBreakingIBP(), BetaProcess()):
            inference = MeanField(truncation=2, n_restarts=2, max_iter=8)
            model = LatentFeatures(prior=prior, inference=inference, random_state=0)
            assert model.fit(BARS.X).posterior_.z_prob.shape[1] <= 2

    def test_more_features_than_rows_are_not_used(self, rng):
        X = rng.standard_normal((5, 4))
        for prior in (BetaBernoulli(n_features=50), StickBreakingIBP(truncation=50)):
            model = LatentFeatures(prior=prior, inference=MeanField(n_restarts=2), random_state=0).fit(X)
            assert model.posterior_.z_prob.shape[1] <= 5

    def test_without_moves_no_restart_begins_with_nothing(self):
        model = LatentFeatures(inference=MeanField(moves=False, n_restarts=3, max_iter=5), random_state=0).fit(BARS.X)
        assert (model.history_["n_features"][:, 0] > 0).all()

    def test_settings_that_a_model_has_no_use_for_are_refused(self):
        with pytest.raises(
            InvalidParameterError, match="LinearGaussian has no weights of which bits could be independent"
        ):
            LatentFeatures(inference=MeanField(codes="independent"), random_state=0).fit(BARS.X)
        counts = LatentFeatures(PoissonGamma(), inference=MeanField(features="independent"), random_state=0)
        with pytest.raises(InvalidParameterError, match="PoissonGamma has one form of the features"):
            counts.fit(np.arange(12).reshape(4, 3))

    @pytest.mark.parametrize("settings", [
        {"max_iter": 0}, {"truncation": 0}, {"truncation": 2.5}, {"start": "warm"}, {"annealing": 0.5}, {"tol": -1.0},
        {"bits": "round"}, {"features": "some"}, {"codes": "none"}, {"precision": "half"}, {"moves": 2},
        {"gradual": None},
    ], ids=str)  # fmt: skip
    def test_bad_settings(self, settings):
        (name,) = settings
        with pytest.raises(InvalidParameterError, match=f"MeanField.{name} must be"):
            MeanField(**settings)

    def test_parts_that_do_not_fit(self):
        with pytest.raises(InvalidParameterError, match="at most the 3 features"):
            LatentFeatures(prior=BetaBernoulli(n_features=3), inference=MeanField(truncation=9)).fit(BARS.X)
        prior = thali.HierarchicalBetaProcess(weights=np.eye(60))
        with pytest.raises(IncompatibleModelError, match="VariationalWeights"):
            LatentFeatures(prior=prior, inference=MeanField()).fit(BARS.X)
        with pytest.raises(InvalidParameterError, match="discount"):
            LatentFeatures(prior=IBP(discount=0.3), inference=MeanField()).fit(BARS.X)
        with pytest.raises(InvalidParameterError, match="for samplers"):
            LatentFeatures(inference=MeanField(), target_ess=10.0).fit(BARS.X)

    def test_a_run_cut_short_says_so(self):
        hurried = LatentFeatures(inference=MeanField(n_restarts=30), random_state=0, max_time=1e-3).fit(BARS.X)
        assert hurried.stopped_by_ == "max_time"
        assert len(hurried.history_["settled"]) < 30
        short = LatentFeatures(inference=MeanField(n_restarts=1, max_iter=1, start="random"), random_state=0).fit(
            BARS.X
        )
        assert not short.converged_
        assert "the bound still rises" in short.check()

    def test_edges(self, rng):
        """One row, one dim, constant data, a wholly explained matrix."""
        for X in (np.ones((1, 3)), rng.standard_normal((4, 1)), np.zeros((6, 2)), np.eye(3)):
            model = LatentFeatures(inference=MeanField(n_restarts=2), random_state=0).fit(X)
            assert np.isfinite(model.score(X))
            assert model.impute(X).shape == X.shape
            assert model.sample(2).shape == (2, X.shape[1])


def test_pairs_of_starts_differ():
    """Restarts are told apart by their streams and their kind."""
    history = LatentFeatures(inference=MeanField(n_restarts=4, max_iter=1), random_state=0).fit(BARS.X).history_
    first = history["objective"][:, 0]
    assert all(a != b for a, b in itertools.combinations(first, 2))


class TestChoice:
    def test_large_data(self):
        small, large = (choose("auto", IBP(), LinearGaussian(), n, 50) for n in (1000, 10**6))
        assert not isinstance(small.inference, MeanField)
        assert isinstance(large.inference, MeanField)
        assert "1000000 x 50 is large" in large.reason

    def test_only_where_it_fits(self):
        for prior in (IBP(discount=0.2), thali.HierarchicalBetaProcess(weights=np.eye(3))):
            assert not serves(MeanField(), prior, LinearGaussian())
        assert not isinstance(choose("auto", IBP(discount=0.2), LinearGaussian(), 10**6, 50).inference, MeanField)


@pytest.mark.slow
def test_scikit_learn_is_content():
    check_estimator(LatentFeatures(inference=MeanField(n_restarts=1, max_iter=20), random_state=0), on_skip=None)


def test_numbers_too_large_for_single_precision():
    X = np.array([[0.0, 1.0], [1e76, 2.0], [3.0, 4.0]])
    model = LatentFeatures(inference=MeanField(precision="single"), random_state=0)
    with pytest.raises(thali.errors.InvalidDataError, match=r"Single precision holds .* Use precision"):
        model.fit(X)
