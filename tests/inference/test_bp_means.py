"""BP-means: golden values, a monotone objective, the global minimum of tiny data, and the limit it comes from."""

import itertools
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from thali import IBP, BetaBernoulli, BPMeans, LinearGaussian, NormalOffset, PerDim, datasets
from thali.core.model import Model
from thali.core.protocols.engines.chains import MarginalRows
from thali.core.protocols.engines.point import PointRows
from thali.inference import bp_means
from thali.inference.bp_means import noise_penalty
from thali.observations.gaussian.least_squares import PointData, Statistics
from thali.testing.enumerate import all_classes

GOLDEN = np.array([[2.0, 0.0], [2.6, 0.2], [0.1, 2.0], [2.2, 2.4], [1.7, -0.2]])
RULES = bp_means.CANDIDATES


def hard(X, observation=None):
    """(adapted model, its data)."""
    observation = LinearGaussian() if observation is None else observation
    adapted = observation.adapt(observation.check_data(X))
    return adapted, adapted.engine(PointRows).prepare(np.asarray(X, dtype=float))


def restarts(rng, inference, X, observation=None, prior=None):
    """States after each pass, of each restart."""
    model = Model(IBP() if prior is None else prior, hard(X, observation)[0])
    data = inference.prepare(model, X)
    for restart in range(inference.n_restarts):
        states = [inference.init(rng, model, data, restart)]
        changed = True
        while changed and len(states) <= inference.max_iter:
            state, changed = inference.step(rng, states[-1], model, data)
            states.append(state)
        yield model, data, states


def tiny(rng, n_rows=5, n_dims=3, missing=0.0):
    Z = np.array([[1, 0], [1, 1], [0, 1], [0, 0]])[np.arange(n_rows) % 4]
    A = rng.standard_normal((2, n_dims))
    X = 2.5 * Z @ (A / np.linalg.norm(A, axis=1, keepdims=True)) + 0.3 * rng.standard_normal((n_rows, n_dims))
    holes = rng.random(X.shape) < missing
    holes[np.arange(n_rows), np.arange(n_rows) % n_dims] = False
    return np.where(holes, np.nan, X)


def least_error(X, Z):
    """min over A of |X - Z A|^2 over the observed cells, dim by dim."""
    total = 0.0
    for x in X.T:
        seen = ~np.isnan(x)
        z, y = Z[seen].astype(float), x[seen]
        total += np.sum((y - z @ np.linalg.pinv(z) @ y) ** 2) if z.size else np.sum(y**2)
    return float(total)


def global_minimum(X, penalty, most=3):
    """Over all sets of up to `most` different columns: another copy of a column costs and does nothing."""
    columns = [np.array(c, dtype=np.uint8) for c in itertools.product([0, 1], repeat=len(X)) if any(c)]
    empty = np.zeros((len(X), 0), dtype=np.uint8)
    return min(
        least_error(X, np.stack(chosen, axis=1) if chosen else empty) + penalty * k
        for k in range(most + 1)
        for chosen in itertools.combinations(columns, k)
    )


# ---- one pass


def test_golden_pass():
    """One pass from no features in the given order of the rows, features of lone rows, penalty 1."""
    observation, data = hard(GOLDEN)
    empty = np.zeros((5, 0), dtype=np.uint8)
    Z, _ = observation.engine(PointRows).sweep(data, empty, np.zeros((0, 2)), 1.0, 100, np.arange(5))
    assert np.array_equal(Z, [[1, 0], [1, 0], [0, 1], [1, 1], [1, 0]])
    A = observation.engine(PointRows).features(data, Z)
    np.testing.assert_allclose(A, [[2.1, 0.057142857143], [0.1, 2.1714285714]], atol=1e-9)
    assert observation.engine(PointRows).error(data, Z, A) + 2 == pytest.approx(2.5685714286, abs=1e-9)


def test_recursive_averages_are_not_least_squares():
    """The zero-noise limit of the recursive filter has the same Z and worse features: its objective is higher."""
    observation, data = hard(GOLDEN)
    Z = np.array([[1, 0], [1, 0], [0, 1], [1, 1], [1, 0]], dtype=np.uint8)
    A = np.array([[2.1, 0.1], [0.1 / 3, 2.1]])
    assert observation.engine(PointRows).error(data, Z, A) + 2 == pytest.approx(2.5888888889, abs=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_refit_looks_at_each_row(rng, missing):
    """The gain of a lone feature, all others fitted anew, is the difference of two least squared errors."""
    for _ in range(20):
        X = tiny(rng, 6, 3, missing)
        _, data = hard(X)
        Z = (rng.random((6, 2)) < 0.5).astype(np.uint8)
        statistics = Statistics(data, Z)
        Z[2] = 1 - Z[2]
        statistics.change_row(2, (1 - Z[2]).astype(float), Z[2].astype(float))
        for n in range(6):
            own = np.zeros((6, 1), dtype=np.uint8)
            own[n] = 1
            gain = least_error(X, Z) - least_error(X, np.hstack([Z, own]))
            assert statistics.gain_of_own(n, Z[n].astype(float)) == pytest.approx(gain, abs=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_worth_of_features(rng, missing):
    """What is lost without a feature; a feature that repeats others is worth nothing."""
    for _ in range(20):
        X = tiny(rng, 6, 3, missing)
        observation, data = hard(X)
        Z = (rng.random((6, 4)) < 0.5).astype(np.uint8)
        Z[:, 3] = Z[:, 0]
        worth = observation.engine(PointRows).worth(data, Z)
        loss = [least_error(X, np.delete(Z, k, axis=1)) - least_error(X, Z) for k in range(4)]
        np.testing.assert_allclose(worth, loss, atol=1e-8)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_shared_feature_gains_what_it_says(rng, missing):
    for _ in range(10):
        X = tiny(rng, 20, 4, missing)
        observation, data = hard(X)
        empty = np.zeros((20, 0), dtype=np.uint8)
        column, gain = observation.engine(PointRows).column(rng, data, empty, np.zeros((0, 4)), 4)
        assert np.nansum(X**2) - least_error(X, column[:, None]) == pytest.approx(gain)
        single = max(np.nansum(X**2, axis=1))
        assert gain >= single * (1 - 1e-9) or gain > 0.8 * single


def test_as_quoted_the_refit_rule_takes_useless_features():
    """Compared with features that are not fitted anew, refitting alone pays for a feature of a lone row."""
    X = np.array([[1.0], [1.0], [1.0], [1.2]])
    Z = np.ones((4, 1), dtype=np.uint8)
    stale = np.array([[0.2]])
    penalty = 0.5
    own = np.array([[0], [0], [0], [1]], dtype=np.uint8)
    with_own = least_error(X, np.hstack([Z, own])) + 2 * penalty
    observation, data = hard(X)
    assert with_own < observation.engine(PointRows).error(data, Z, stale) + penalty  # the quoted comparison accepts it
    assert with_own > least_error(X, Z) + penalty  # it is worse than what is found without
    found, _ = observation.engine(PointRows).refit_sweep(data, Z, stale, penalty, 10, np.arange(4))
    assert found.shape == (4, 1)


# ---- whole runs


def check_runs(rng, kind, cases=((4, 0.3), (4, 1.5)), n_restarts=25):
    """The objective is what it should be, never rises, ends at least squares and reaches the global minimum."""
    for n_rows, penalty in cases:
        X = tiny(rng, n_rows, 2)
        lowest = global_minimum(X, penalty)
        inference = kind(penalty=penalty, n_restarts=n_restarts)
        ends = []
        for _, _, states in restarts(rng, inference, X, prior=BetaBernoulli(n_features=3)):
            objective = np.array([state.objective for state in states])
            assert (np.diff(objective) <= 1e-9 * objective[0]).all()
            end = states[-1]
            assert end.objective == pytest.approx(least_error(X, end.z) + penalty * end.n_features)
            assert end.z.any(axis=0).all()
            assert np.nansum((X - end.z @ end.features) ** 2) == pytest.approx(least_error(X, end.z), abs=1e-9)
            ends.append(end.objective)
        assert min(ends) >= lowest - 1e-9
        assert min(ends) <= lowest + 1e-9


def test_runs(rng):
    check_runs(rng, BPMeans)


@pytest.mark.slow
@pytest.mark.parametrize(("candidates", "wanted"), [("shared", 0.9), ("residual", 0.4), ("refit", 0.4)])
def test_the_global_minimum_is_found_and_never_undercut(rng, candidates, wanted):
    """With missing cells, too. The published rules have no way out of a local minimum but another restart."""
    reached = []
    for n_rows, penalty, missing in itertools.product((4, 5), (0.1, 0.5, 1.0, 3.0), (0.0, 0.2)):
        X = tiny(rng, n_rows, 3, missing)
        lowest = global_minimum(X, penalty)
        inference = BPMeans(penalty=penalty, candidates=candidates, n_restarts=40)
        runs = restarts(rng, inference, X, prior=BetaBernoulli(n_features=3))
        found = min(states[-1].objective for *_, states in runs)
        assert found >= lowest - 1e-9
        reached.append(found <= lowest + 1e-9)
    assert np.mean(reached) >= wanted


def mutated(old, new):
    """BPMeans with a mistake in it."""
    source = Path(bp_means.__file__).read_text()
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times"
    module = ModuleType("thali_mutant_bp_means")
    sys.modules[module.__name__] = module  # a dataclass looks for its module there
    exec(compile(source.replace(old, new), "mutant", "exec"), vars(module))
    return module.BPMeans


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ data.penalty * Z.shape[1]", "+ data.penalty * float(Z.sum())"),
        (
            "new = self._state(model, data, Z)\n",
            "new = self._state(model, data, Z)._replace(features=state.features)\n",
        ),
        ("if worth[least] > data.penalty", "if worth[least] < data.penalty"),
        ("if gain > data.penalty", "if gain > -data.penalty"),
    ],
    ids=["penalty per entry", "stale features", "sign of the worth", "sign of the penalty"],
)
def test_a_mistake_is_seen(rng, old, new):
    with pytest.raises((AssertionError, ValueError)):
        check_runs(rng, mutated(old, new))


@pytest.mark.parametrize("candidates", RULES)
@pytest.mark.parametrize(
    ("observation", "missing"),
    [
        (LinearGaussian(), 0.0),
        (LinearGaussian(), 0.2),
        (LinearGaussian(offset=NormalOffset()), 0.2),
        (LinearGaussian(noise_var=PerDim(), offset=[0.3] * 36), 0.0),
    ],
    ids=["plain", "missing", "learned offset", "per dim"],
)
def test_objective_never_rises(rng, candidates, observation, missing):
    X = datasets.bars(40).X
    X = np.where(rng.random(X.shape) < missing, np.nan, X)
    penalty = None if candidates == "shared" else 15.0
    inference = BPMeans(candidates=candidates, penalty=penalty, max_iter=20, n_restarts=4)
    for model, data, states in restarts(rng, inference, X, observation):
        objective = np.array([state.objective for state in states])
        assert (np.diff(objective) <= 1e-9 * objective[0]).all()
        end = states[-1]
        left = model.observation.engine(PointRows).error(data.hard, end.z, end.features)
        assert end.objective == pytest.approx(left + data.penalty * end.n_features)


@pytest.mark.parametrize("candidates", RULES)
def test_an_end_is_a_fixed_point(rng, candidates):
    """No single bit, no feature of a lone row by that rule and no dropped feature lowers the objective."""
    X = tiny(rng, 12)
    inference = BPMeans(candidates=candidates, penalty=1.0, n_restarts=5)
    for model, data, states in restarts(rng, inference, X):
        end = states[-1]
        observation = model.observation
        for n, k in itertools.product(*map(range, end.z.shape)):
            other = end.z.copy()
            other[n, k] ^= 1
            flipped = observation.engine(PointRows).error(data.hard, other, end.features)
            assert flipped >= observation.engine(PointRows).error(data.hard, end.z, end.features) - 1e-9
        for k in range(end.n_features):
            without = np.delete(end.z, k, axis=1)
            assert least_error(X, without) + end.n_features - 1 >= end.objective - 1e-9
        left = ((X - end.z @ end.features) ** 2).sum(axis=1)
        if candidates == "residual":
            assert left.max() <= 1.0 + 1e-9
        for n in range(len(X)) if candidates == "refit" else ():
            own = np.eye(len(X), dtype=np.uint8)[:, [n]]
            assert least_error(X, np.hstack([end.z, own])) + 1.0 >= least_error(X, end.z) - 1e-9


def test_a_learned_offset_is_fitted(rng):
    """It costs nothing: shifted data have the same answer."""
    X = datasets.bars(80).X
    observation = LinearGaussian(offset=NormalOffset())
    inference = BPMeans(n_restarts=1)
    (*_, here), (*_, there) = (
        next(restarts(np.random.default_rng(0), inference, data, observation)) for data in (X, X + 7.0)
    )
    assert np.array_equal(here[-1].z, there[-1].z)
    assert here[-1].objective == pytest.approx(there[-1].objective)
    np.testing.assert_allclose(here[-1].features, there[-1].features, atol=1e-8)
    dense = np.hstack([here[-1].z, np.ones((80, 1))])
    np.testing.assert_allclose(here[-1].features, np.linalg.lstsq(dense, X - X.mean(axis=0), rcond=None)[0], atol=1e-8)


def test_fixed_noise_per_dim_weighs_the_dims(rng):
    """Errors are in units of the noise: the same as scaled data with unit noise."""
    X, sd = datasets.bars(50).X, rng.uniform(0.5, 2.0, 36)
    inference = BPMeans(n_restarts=1)
    (*_, ours), (*_, scaled) = (
        next(restarts(np.random.default_rng(0), inference, data, LinearGaussian(noise_var=noise)))
        for data, noise in ((X * sd, 0.25 * sd**2), (X / 0.5, np.ones(36)))
    )
    assert np.array_equal(ours[-1].z, scaled[-1].z)
    assert ours[-1].objective == pytest.approx(scaled[-1].objective)


def test_a_finite_prior_caps_the_features(rng):
    X = datasets.bars(60).X
    for candidates in RULES:
        inference = BPMeans(candidates=candidates, penalty=5.0, n_restarts=5, max_iter=10)
        for *_, states in restarts(rng, inference, X, prior=BetaBernoulli(n_features=2)):
            assert max(state.n_features for state in states) <= 2


# ---- the penalty


@pytest.mark.parametrize("noise_var", [0.01, 0.05, 0.25, 0.5, 1.0])
def test_default_penalty_finds_the_four_glyphs(rng, noise_var):
    truth = datasets.bars(noise_var=noise_var)
    ends = [states[-1] for *_, states in restarts(rng, BPMeans(n_restarts=1), truth.X)]
    best = min(ends, key=lambda state: state.objective)
    assert best.n_features == 4
    rounded = {tuple(np.round(feature)) for feature in best.features}
    if noise_var <= 0.25:
        assert rounded == {tuple(feature) for feature in truth.features}


@pytest.mark.parametrize(("n_rows", "n_dims"), [(60, 5), (300, 30), (40, 100)])
def test_noise_cannot_pay_the_default_penalty(rng, n_rows, n_dims):
    """The best feature of pure noise, beside a free offset, comes near the penalty and stays below it."""
    X = rng.standard_normal((n_rows, n_dims))
    observation = LinearGaussian(noise_var=1.0, offset=NormalOffset())
    cap = BetaBernoulli(n_features=1)
    penalty = noise_penalty(n_rows, n_dims, 1.0)
    ends = [
        states[-1] for *_, states in restarts(rng, BPMeans(penalty=1e-6, n_restarts=10), X, observation, cap)
    ]  # fmt: skip
    gain = np.sum((X - X.mean(axis=0)) ** 2) - min(end.objective for end in ends)
    assert 0.5 * penalty < gain < penalty
    for *_, states in restarts(rng, BPMeans(), X, observation):
        assert states[-1].n_features == 0


def test_the_penalty_follows_the_model(rng):
    X = datasets.bars(50).X
    for observation, noise in (
        (LinearGaussian(noise_var=0.25), 0.25),
        (LinearGaussian(noise_var=np.full(36, 0.25)), 1.0),
        (LinearGaussian(noise_floor=0.9), 0.9 * np.var(X, axis=0).mean()),
    ):
        model = Model(IBP(), observation.adapt(X))
        assert BPMeans().prepare(model, X).penalty == pytest.approx(noise_penalty(50, 36, noise), rel=0.02)
    assert BPMeans(penalty=3.0).prepare(Model(IBP(), LinearGaussian().adapt(X)), X).penalty == 3.0


# ---- where it comes from


def test_zero_noise_limit(rng):
    """-2 s log p(X, Z) with mass = exp(-penalty / (2 s)) tends to the objective, for every Z."""
    X, penalty = np.array([[1.5, 0.0], [1.4, 1.2], [0.1, 1.1]]), 0.4
    classes = [Z for Z in all_classes(3, 3)]
    objective = np.array([least_error(X, Z) + penalty * Z.shape[1] for Z in classes])
    gaps = []
    for noise in (1e-2, 1e-3):
        prior, observation = (
            IBP(mass=math.exp(-0.5 * penalty / noise)),
            LinearGaussian(noise_var=noise, feature_var=1.0),
        )
        joint = np.array([prior.log_prob(Z) + observation.engine(MarginalRows).log_marginal(X, Z) for Z in classes])
        gaps.append(np.abs(-2 * noise * joint - objective).max())
        best = classes[int(np.argmax(joint))]
    assert gaps[1] < 0.25 * gaps[0]  # as s log(1/s)
    assert gaps[1] < 0.1
    ends = [states[-1] for *_, states in restarts(rng, BPMeans(penalty=penalty, n_restarts=20), X)]
    found = min(ends, key=lambda state: state.objective)
    assert found.objective == pytest.approx(objective.min())
    assert least_error(X, best) + penalty * best.shape[1] == pytest.approx(objective.min())


def test_patterns_of_missing_cells(rng):
    X = np.array([[1.0, np.nan, 2.0], [np.nan, 1.0, 3.0]])
    data = PointData.of(X, np.zeros(3), np.ones(3), False)
    assert sorted(map(tuple, (p.dims for p in data.patterns))) == [(0,), (1,), (2,)]
    assert not data.residual(np.ones((2, 1)), np.array([[1.0, 1.0, 2.0]]))[:, :2].any()
