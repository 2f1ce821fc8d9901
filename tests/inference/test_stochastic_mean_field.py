"""Mean field by blocks of rows against mean field of all rows at once."""

from typing import NamedTuple

import numpy as np
import pytest
from runs import shape_of

from thali import (
    IBP,
    ICA,
    BetaBernoulli,
    BetaProcess,
    FactorAnalysis,
    Gamma,
    InvalidParameterError,
    LinearGaussian,
    PoissonGamma,
    StochasticMeanField,
)
from thali.core.model import Model
from thali.core.protocols.engines.mean_field import MeanFieldRows
from thali.core.statistics import combine
from thali.data.row_blocks import RowBlocks
from thali.inference.calibration.noise_floor import calibrate
from thali.inference.variational import ascent
from thali.inference.variational import stochastic_mean_field as stochastic
from thali.inference.variational.first_rows import first_rows
from thali.inference.variational.stochastic_mean_field import BlockState, _memoised
from thali.inference.variational.structure_moves import sort_features
from thali.running import runner
from thali.running.stopping import Clock

N_ROWS, N_DIMS = 60, 5
PRIORS = {
    "IBP": IBP(),
    "IBP, two parameters": IBP(mass=Gamma(1.0, 1.0), concentration=2.0),
    "finite": BetaBernoulli(mass=2.0, n_features=5),
    "beta process": BetaProcess(truncation=8, rounds=10),
}


def never():
    return False


def some_data(rng, *, missing=False):
    Z = rng.random((N_ROWS, 3)) < [0.5, 0.3, 0.6]
    X = Z @ rng.normal(0, 2, (3, N_DIMS)) + rng.normal(0, 0.5, (N_ROWS, N_DIMS))
    return np.where(rng.random(X.shape) < 0.1, np.nan, X) if missing else X


def quick(**settings):
    return StochasticMeanField(**{"n_restarts": 1, "batch_size": 16, "n_start": N_ROWS, "moves": False} | settings)


def adapted(X, prior=None):
    return Model(prior or IBP(), LinearGaussian().adapt(X))


def batch_state(rng, inference, X, prior=None):
    """(problem, a state of a fit of all rows that is not at its optimum)."""
    data = inference.first.prepare(adapted(X, prior), X)
    return data.problem, inference.first.init(rng, data.problem.model, data, 0)


def same_factors(got, wanted, **tolerance):
    np.testing.assert_allclose(got.q.mean, wanted.q.mean, **tolerance)
    np.testing.assert_allclose(got.q.cov, wanted.q.cov, **tolerance)
    for mine, its in zip(got.weights, wanted.weights, strict=True):
        if isinstance(mine, np.ndarray):
            np.testing.assert_allclose(mine, its, **tolerance)
    assert got.bound == pytest.approx(wanted.bound, rel=tolerance["rtol"])


def as_blocks(problem, state, local):
    _, statistics, q, weights, bound, _ = state
    sums = {0: statistics}
    return BlockState(
        problem.model, q, weights, state.n_features, statistics, problem.n_rows, 0, 0, bound, sums, local, None
    )


class TestOneBlock:
    @pytest.mark.parametrize("method", ["memoised", "robbins-monro"])
    @pytest.mark.parametrize("missing", [False, True])
    def test_equals_a_pass_over_all_rows(self, method, missing, rng):
        """To the bit: one block with all rows, and rate 1."""
        X = some_data(rng, missing=missing)
        inference = quick(method=method, delay=0.0, n_inner=1, batch_size=N_ROWS)
        problem, state = batch_state(rng, inference, X)
        got = inference.visit(as_blocks(problem, state, {0: state.local}), X, 0, n_all=N_ROWS, keep=True)
        wanted = ascent.ascend(problem, state)
        if method == "robbins-monro":
            same_factors(got, wanted, rtol=0)
        else:  # subtracting and adding the same sums rounds
            same_factors(got, wanted, rtol=1e-9, atol=1e-9)

    def test_a_smaller_rate_is_seen(self, rng):
        X = some_data(rng)
        inference = quick(method="robbins-monro", delay=0.1, n_inner=1, batch_size=N_ROWS)
        problem, state = batch_state(rng, inference, X)
        got = inference.visit(as_blocks(problem, state, {0: state.local}), X, 0, n_all=N_ROWS, keep=True)
        with pytest.raises(AssertionError):
            same_factors(got, ascent.ascend(problem, state), rtol=1e-6)


def run_on(X, inference, *, prior=None, seed=0, on_disk=False):
    blocks = RowBlocks(X, inference.batch_size)
    blocks.on_disk = on_disk
    shape = shape_of(blocks, inference, adapted(X, prior), seed=seed)
    runner.run(shape, Clock(None))
    return shape.tasks[0].state


class TestMemoised:
    @pytest.mark.parametrize("missing", [False, True])
    def test_sums_of_blocks_are_those_of_all_rows(self, missing, rng):
        """After any pass the sums are those of the rows' factors as they stand, and q and weights go with them."""
        X = some_data(rng, missing=missing)
        inference = quick(n_epochs=2, tol=0.0)
        state = run_on(X, inference).state
        assert sorted(state.sums) == [0, 1, 2, 3]
        problem = ascent.split_rows(state.model, X, inference.family)
        parts = [part for index in sorted(state.local) for part in state.local[index]]
        local = type(parts[0])(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))
        _, wanted = ascent.local_step(problem, state.q, state.weights, (local,), n_passes=0)
        for sums in (combine(state.sums.values()), state.statistics):
            for mine, its in zip(sums, wanted, strict=True):
                np.testing.assert_allclose(mine, its, rtol=1e-9, atol=1e-9)
        assert state.n_rows == N_ROWS

    def test_sums_that_stay_are_seen(self, rng, monkeypatch):
        """Mutant: a block that comes again is added, and its old sums are not taken away."""
        monkeypatch.setattr(stochastic, "_memoised", lambda state, old, new: _memoised(state, None, new))
        X = some_data(rng)
        state = run_on(X, quick(n_epochs=1)).state
        again = quick().visit(state._replace(bound=-np.inf), X[:16], 0, n_all=N_ROWS, keep=True)
        assert again.statistics.gram[-1, -1] != pytest.approx(N_ROWS)

    @pytest.mark.parametrize("on_disk", [False, True])
    @pytest.mark.parametrize("name", PRIORS)
    def test_the_bound_never_falls(self, name, on_disk, rng):
        """From visit to visit once all rows were seen; rows begin anew on disk."""
        X = some_data(rng, missing=on_disk)
        inference = quick(n_inner=1 if on_disk else 2, n_epochs=1)
        state = run_on(X, inference, prior=PRIORS[name], on_disk=on_disk).state
        bounds = [state.bound]
        blocks = RowBlocks(X, 16)
        for _ in range(6):
            for index in range(blocks.n_blocks):
                state = inference.visit(state, blocks.block(index), index, n_all=N_ROWS, keep=not on_disk)
                bounds.append(state.bound)
            state = inference.in_order(state)
            bounds.append(state.bound)
        assert np.diff(bounds).min() >= -1e-9 * abs(bounds[-1])
        assert bounds[-1] > bounds[0]

    @pytest.mark.parametrize("mutant", [False, True])
    def test_rows_that_begin_badly_do_not_lower_it(self, mutant, rng, monkeypatch):
        """The old sums of a block stay if they are better; the mutant always takes the new ones."""
        X = some_data(rng)
        inference = quick(n_epochs=1, n_inner=1)
        state = run_on(X, inference, on_disk=True).state
        assert state.n_features == 3
        monkeypatch.setattr(
            stochastic,
            "first_rows",
            lambda problem, q, weights, k: tuple(
                problem.model.observation.engine(MeanFieldRows).init_rows(part, rng.random((len(part), k)))
                for part in problem.parts
            ),
        )
        bounds = [state.bound]
        for index in [0, 1, 2, 3] * 5:
            known = state._replace(bound=-np.inf) if mutant else state
            state = inference.visit(known, X[16 * index : 16 * index + 16], index, n_all=N_ROWS)
            bounds.append(state.bound)
        falls = np.diff(bounds).min() < -1e-9 * abs(bounds[-1])
        assert falls == mutant

    @pytest.mark.parametrize("observation", [FactorAnalysis(), ICA(), PoissonGamma()], ids=lambda o: type(o).__name__)
    def test_the_bound_never_falls_for_other_models(self, observation, rng):
        """On disk, where rows begin anew."""
        X = some_data(rng)
        X = rng.poisson(np.abs(X)).astype(float) if isinstance(observation, PoissonGamma) else X
        inference = quick(n_epochs=1)
        blocks = RowBlocks(X, 16)
        blocks.on_disk = True
        shape = shape_of(blocks, inference, calibrate(Model(IBP(), observation), X), seed=rng)
        runner.run(shape, Clock(None))
        state = shape.tasks[0].state.state
        bounds = [state.bound]
        for index in [0, 1, 2, 3] * 3:
            state = inference.visit(state, blocks.block(index), index, n_all=N_ROWS)
            bounds.append(state.bound)
        assert np.diff(bounds).min() >= -1e-9 * abs(bounds[-1])
        assert bounds[-1] > bounds[0]

    def test_ends_where_all_rows_at_once_end(self, rng):
        X = some_data(rng)
        inference = quick(n_epochs=100, tol=1e-12, start="spectral")
        state = run_on(X, inference).state
        data = inference.first.prepare(adapted(X), X)
        batch = inference.first.init(np.random.default_rng(0), data.problem.model, data, 0)
        for _ in range(4):
            batch = sort_features(data.problem, batch)
            for _ in range(100):
                batch = ascent.ascend(data.problem, batch)
        assert state.bound == pytest.approx(batch.bound, rel=1e-5)
        assert state.n_features == batch.n_features

    def test_a_first_pass_that_is_not_finished_stands_for_what_it_saw(self, rng):
        X = some_data(rng)
        inference = quick()
        state = inference.begin(rng, adapted(X), X, N_ROWS, never)
        for index, n_rows in enumerate((16, 32, 48)):
            state = inference.visit(state, X[16 * index : 16 * index + 16], index, n_all=N_ROWS)
            assert state.n_rows == n_rows
            assert state.statistics.gram[-1, -1] == n_rows
            assert not state.local
        assert inference.in_order(state).statistics.gram[-1, -1] == 48


class TestRowsBegin:
    """With three features in five dims coordinate ascent from the prior's probabilities is stuck in many rows."""

    def loss(self, rng, begin):
        """By how much the bound is lower than with rows at the bits that made them."""
        Z = (rng.random((500, 3)) < 0.4).astype(float)
        X = Z @ rng.normal(size=(3, N_DIMS)) + rng.normal(0, 0.3, (500, N_DIMS))
        model = adapted(X)
        problem = ascent.split_rows(model, X, quick().family)
        state = ascent.begin(problem, model.prior.init_weights(500), Z)
        for _ in range(10):
            state = ascent.ascend(problem, state)
        local = begin(problem, state.q, state.weights, 3)
        local, statistics = ascent.local_step(problem, state.q, state.weights, local, 3)
        return state.bound - ascent.global_step(problem, local, statistics, state.q, state.weights).bound

    def test_near_the_optimum(self, rng):
        assert np.mean([self.loss(rng, first_rows) for _ in range(4)]) < 10.0

    def test_the_prior_alone_is_seen(self, rng):
        def from_prior(problem, q, weights, n_features):
            chance = problem.model.prior.expected_weights(weights)[:n_features]
            return tuple(
                problem.model.observation.engine(MeanFieldRows).init_rows(p, np.tile(chance, (len(p), 1)))
                for p in problem.parts
            )

        assert np.mean([self.loss(rng, from_prior) for _ in range(4)]) > 10.0

    def test_no_features(self, rng):
        X = some_data(rng)
        problem = ascent.split_rows(adapted(X), X, quick().family)
        (local,) = first_rows(problem, None, None, 0)
        assert local.z_prob.shape == (N_ROWS, 0)


class Sums(NamedTuple):
    counts: float


class TestRunningMean:
    def test_rates(self):
        inference = StochasticMeanField(delay=3.0, forgetting=0.6)
        assert inference.rate(1) == pytest.approx(4**-0.6)
        assert inference.rate(100) == pytest.approx(103**-0.6)
        assert StochasticMeanField(delay=0.0).rate(1) == 1.0

    def test_with_forgetting_one_it_is_the_mean_of_all_blocks(self):
        inference = StochasticMeanField(method="robbins-monro", delay=0.0, forgetting=1.0)
        values = [3.0, 5.0, 10.0, 2.0]
        state = BlockState(None, None, None, 1, Sums(99.0), 7, 0, 0, 0.0, {}, {}, None)
        for visits, value in enumerate(values):
            state = state._replace(statistics=inference._blended(state, Sums(value), 7), n_visits=visits + 1)
            assert state.statistics.counts == pytest.approx(np.mean(values[: visits + 1]))

    def test_it_grows_with_the_rows(self):
        """The old mean is scaled to as many rows as there are now."""
        inference = StochasticMeanField(method="robbins-monro", delay=1.0, forgetting=1.0)
        state = BlockState(None, None, None, 1, Sums(8.0), 4, 4, 1, 0.0, {}, {}, None)
        # 8 of 4 rows is 20 of 10; rate 1/3
        assert inference._blended(state, Sums(5.0), 10).counts == pytest.approx(20 * 2 / 3 + 5 / 3)

    @pytest.mark.parametrize("n_rows", [None, 1000])
    def test_rows_that_it_stands_for(self, n_rows, rng):
        X = some_data(rng)
        inference = quick(method="robbins-monro", n_rows=n_rows)
        state = inference.begin(rng, adapted(X), X[:30], None, never)
        for seen in (20, 40, 60):
            state = inference.visit(state, X[seen - 20 : seen])
            assert state.n_rows == (n_rows or seen)
            assert state.statistics.gram[-1, -1] == pytest.approx(n_rows or seen)
        assert not state.sums

    def test_ends_near_the_optimum(self, rng):
        X = some_data(rng)
        wanted = run_on(X, quick(n_epochs=200, tol=1e-9)).state
        got = run_on(X, quick(method="robbins-monro", n_epochs=40, n_inner=3)).state
        assert got.bound == pytest.approx(wanted.bound, rel=0.02)
        assert got.n_features == wanted.n_features


class TestRun:
    def test_the_number_of_threads_does_not_matter(self, rng, monkeypatch):
        X = some_data(rng, missing=True)
        monkeypatch.setattr(ascent, "_FEWEST", 5)
        monkeypatch.setattr(ascent, "_CELLS", 5 * N_DIMS)
        found = []
        for n_cores in (1, 3):
            monkeypatch.setattr("thali.numerics.threads.n_cores", lambda n=n_cores: n)
            found.append(run_on(X, quick(n_epochs=3)).state)
        np.testing.assert_array_equal(found[0].q.mean, found[1].q.mean)
        assert found[0].bound == found[1].bound

    def test_features_are_found_after_an_empty_start(self, rng):
        """None of them in the rows that it begins with; moves on other rows bring them."""
        X = np.vstack([rng.normal(0, 0.3, (10, N_DIMS)), some_data(rng), some_data(np.random.default_rng(5))])
        inference = quick(n_start=70, start="empty", moves=True)
        model = adapted(X)
        state = inference.replace(moves=False).begin(rng, model, X[:10], len(X), never)
        assert state.n_features == 0
        trial = inference.with_more(rng, state, X)
        assert trial.n_features > 0

    def test_moves_are_kept_if_all_rows_agree(self, rng):
        X = some_data(rng)
        with_moves, without = (
            run_on(X, quick(moves=moves, start="empty", n_start=20)).state for moves in (True, False)
        )
        assert without.n_features == 0
        assert with_moves.n_features == 3
        assert with_moves.bound > without.bound

    def test_a_feature_that_the_first_rows_do_not_have(self, rng, monkeypatch):
        """It is in the last few rows of many; they are explained worst. Other rows would not show it."""
        Z = np.column_stack([rng.random(600) < 0.5, np.arange(600) >= 594])
        X = Z @ rng.normal(0, 2, (2, 8)) + rng.normal(0, 0.3, (600, 8))
        inference = quick(n_start=40, moves=True, batch_size=100)
        run = run_on(X, inference, seed=3, on_disk=True)
        assert run.state.n_features == 2
        assert run.state.statistics.counts[-1] == pytest.approx(6.0, abs=0.01)
        monkeypatch.setattr(StochasticMeanField, "misfit", lambda self, state, rows: -rows[:, 0])  # mutant
        assert run_on(X, inference, seed=3, on_disk=True).state.n_features == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "sgd"}, "method must be one of 'memoised', 'robbins-monro'"),
        ({"batch_size": 0}, "batch_size must be an integer, 1 or more"),
        ({"n_inner": 0}, "n_inner"),
        ({"n_epochs": 0}, "n_epochs"),
        ({"delay": -1.0}, "delay"),
        ({"forgetting": 0.5}, "forgetting must be a number above 0.5, up to 1"),
        ({"forgetting": 1.1}, "forgetting"),
        ({"n_rows": 0}, "n_rows must be None or an integer"),
        ({"truncation": 0}, "truncation"),
        ({"start": "best"}, "start must be one of"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_settings(settings, words):
    with pytest.raises(InvalidParameterError, match=words):
        StochasticMeanField(**settings)
