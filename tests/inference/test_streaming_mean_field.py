"""Mean field of a stream: sums of what is gone stand for its rows, in any batches, discounted or not."""

from typing import NamedTuple

import numpy as np
import pytest

import thali
from thali import (
    IBP,
    BetaBernoulli,
    FactorAnalysis,
    Gamma,
    IncompatibleModelError,
    InvalidParameterError,
    LatentFeatures,
    LinearGaussian,
    PoissonGamma,
    SparseFactorAnalysis,
    StickBreakingIBP,
    StreamingMeanField,
    datasets,
)
from thali.core.model import Model
from thali.core.protocols.engines.mean_field import Family, GrowingSums
from thali.core.statistics import add, scale
from thali.inference.streams.batch_fit import Batch, without_idle
from thali.inference.variational import ascent
from thali.inference.variational.ascent import State, split_rows
from thali.testing import check_inference

N_ROWS, N_DIMS, K = 40, 5, 3
GAUSSIAN = LinearGaussian(noise_var=0.25, feature_var=2.0)
MODELS = {
    "bits": (BetaBernoulli(mass=1.7, n_features=K), GAUSSIAN),
    "learned": (IBP(), LinearGaussian()),
    "weights": (StickBreakingIBP(mass=Gamma(2.0, 1.0), truncation=6), FactorAnalysis()),
    "counts": (IBP(), PoissonGamma()),
}


def rows_of(observation, rng, n_rows=N_ROWS, *, missing=True):
    Z = rng.random((n_rows, K)) < [0.5, 0.3, 0.6]
    if isinstance(observation, PoissonGamma):
        return rng.poisson(Z @ rng.gamma(2.0, 3.0, (K, N_DIMS)) + 0.2).astype(float)
    X = Z @ rng.normal(0, 2, (K, N_DIMS)) + rng.normal(0, 0.5, (n_rows, N_DIMS))
    return np.where(rng.random(X.shape) < 0.1, np.nan, X) if missing else X


class Some(NamedTuple):
    problem: ascent.Problem
    state: State


def some(name, rng, **settings):
    """A state that goes with all rows, features and hyperparameters at their optimum given the codes."""
    prior, observation = MODELS[name]
    X = rows_of(observation, rng, **settings)
    problem = split_rows(Model(prior, observation.adapt(X)), X, Family())
    state = ascent.begin(problem, prior.init_weights(N_ROWS), 0.1 + 0.8 * rng.random((len(X), K)))
    return Some(problem, ascent.ascend(problem, state))


def part(problem, state, first, last):
    """(problem, the factors) of some of the rows."""
    some = split_rows_of(problem, first, last)
    return some, tuple(type(mine)(*(field[first:last] for field in mine)) for mine in state.local)


def split_rows_of(problem, first, last):
    return problem._replace(parts=(problem.data.part(first, last),), starts=np.array([0, last - first]))


def two_batches(whole, rho=1.0, n_before=None):
    """The second half given the sums of the first."""
    problem, state = whole
    half = N_ROWS // 2
    before, early = part(problem, state, 0, half)
    after, late = part(problem, state, half, N_ROWS)
    _, sums = ascent.local_step(before, state.q, state.weights, early, 0)
    batch = Batch(after, scale(sums, rho), rho * half if n_before is None else n_before, 9, 50, 0.0)
    return batch, state._replace(local=late)


def assert_same_factors(got, wanted):
    for mine, its in ((got.q, wanted.q), (got.weights, wanted.weights), (got.statistics, wanted.statistics)):
        for a, b in zip(mine, its, strict=True):
            if isinstance(a, np.ndarray):
                np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    assert got.bound == pytest.approx(wanted.bound, rel=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_sums_stand_for_the_rows_that_are_gone(name, rng):
    """Given the codes, features and weights after two batches are those of the conjugate update from all rows."""
    whole = some(name, rng)
    wanted = ascent.refit(whole.problem, *whole.state[:1], whole.state.q, whole.state.weights)
    batch, state = two_batches(whole)
    assert_same_factors(batch.updated(state, n_passes=0), wanted)
    wrong, state = two_batches(whole, n_before=0.0)  # the mutant: weights as if there were the rows of the batch alone
    with pytest.raises(AssertionError):
        assert_same_factors(wrong.updated(state, n_passes=0), wanted)


def test_rows_that_count_for_less_are_no_whole_number(rng):
    """Closed forms: Beta(mass / K + S1, 1 + n - S1), and a ridge regression with weights of the rows."""
    whole = some("bits", rng, missing=False)
    rho, half = 0.37, N_ROWS // 2
    batch, state = two_batches(whole, rho)
    got = batch.updated(state, n_passes=0)
    z, share = whole.state.local[0].z_prob, np.where(np.arange(N_ROWS) < half, rho, 1.0)
    counts, n = share @ z, share.sum()
    np.testing.assert_allclose(got.weights.tau, [1.7 / K + counts, 1.0 + n - counts], rtol=1e-12)
    X = whole.problem.data.X
    gram = (z * share[:, None]).T @ z
    np.fill_diagonal(gram, counts)
    mean = np.linalg.solve(gram + np.eye(K) * 0.25 / 2.0, (z * share[:, None]).T @ X)
    np.testing.assert_allclose(got.q.mean, mean, rtol=1e-9)


def test_golden_sticks():
    """G13: the multinomial bound and the sticks, here from sums of rows that count for less, scaled up to G13's."""
    prior = StickBreakingIBP(mass=1.7, truncation=4)
    tau = np.array([[2.0, 3.0, 1.5, 1.2], [1.0, 1.4, 2.0, 1.1]])
    from thali.priors.sticks.weights import multinomial_complement, multinomial_update

    bound = [-1.5, -0.99697028278, -0.56802660336, -0.48630799733]
    assert multinomial_complement(tau) == pytest.approx(bound, rel=1e-9)
    counts = np.array([6.2, 4.1, 2.3, 0.7])
    wanted = [[26.286815032, 14.456169263, 5.351290745, 2.4], [12.413184968, 6.6306457692, 6.0048785176, 1.651290745]]
    np.testing.assert_allclose(multinomial_update(tau, 1.7, counts, 9), wanted, rtol=1e-9)
    # the update is linear in counts and rows: at .37 of both, .37 of what they add
    less = multinomial_update(tau, 1.7, 0.37 * counts, 0.37 * 9)
    np.testing.assert_allclose(less, 0.63 * np.array([[1.7] * 4, [1.0] * 4]) + 0.37 * np.array(wanted), rtol=1e-9)
    q = prior.init_weights(9)
    before = -np.inf
    for _ in range(5):  # and so it ascends, for any n
        q = prior.update_weights(q, 0.37 * counts, 3.33)
        after = prior.weights_bound(q, 0.37 * counts, 3.33)
        assert after >= before
        before = after


@pytest.mark.parametrize("name", MODELS)
def test_the_bound_never_falls_in_a_batch(name, rng):
    batch, state = two_batches(some(name, rng), rho=0.6)
    state = batch.updated(state, n_passes=0)
    for _ in range(15):
        before, state = state.bound, batch.updated(state)
        assert state.bound >= before - 1e-9 * abs(before)


@pytest.mark.parametrize("name", MODELS)
def test_sums_with_a_feature_that_no_row_has(name, rng):
    """As if the rows had had it, off, and with weights as in their prior."""
    problem, state = some(name, rng)
    engine = problem.engine
    q = engine.add_feature(state.q)
    local = engine.add_column(state.local[0], np.zeros(N_ROWS))
    off = {"z_prob": 0.0}
    if name == "counts":
        off |= {"w_shape": q.observation.weight_shape, "w_on": 1.0, "w_off": q.observation.weight_rate}
    columns = {field: np.column_stack([getattr(local, field)[:, :K], np.full(N_ROWS, v)]) for field, v in off.items()}
    _, wanted = ascent.local_step(problem, q, state.weights, (local._replace(**columns),), 0)
    _, sums = ascent.local_step(problem, state.q, state.weights, state.local, 0)
    got = problem.model.observation.engine(GrowingSums).with_unused(q, sums, N_ROWS)
    for mine, its, field in zip(got, wanted, got._fields, strict=True):
        if name == "counts" and field in ("allocated", "rest"):  # a share of `leak` of the counts goes to it
            np.testing.assert_allclose(mine, its, rtol=0.02, atol=0.5)
        else:
            np.testing.assert_allclose(mine, its, rtol=1e-9, atol=1e-9)
    if name != "counts":
        assert_same_columns(engine.keep_columns(got, np.arange(K)), sums)


def assert_same_columns(got, wanted):
    for mine, its in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(mine, its)


def test_idle_features_go_and_others_stay(rng):
    X = rows_of(GAUSSIAN, rng, missing=False)
    problem = split_rows(Model(IBP(), GAUSSIAN), X, Family())
    start = rng.random((N_ROWS, 6))
    batch = Batch(problem, None, 0.0, 9, 50, 1e-6)
    state = batch.settled(ascent.begin(problem, IBP().init_weights(100), start))
    smaller, fewer = without_idle(batch, state)
    assert fewer.n_features <= state.n_features
    assert fewer.bound >= state.bound
    for k in range(fewer.n_features):
        _, less = smaller.columns(fewer, np.delete(np.arange(fewer.n_features), k))
        if k == np.argmin(fewer.statistics.counts):
            assert smaller.updated(less, n_passes=0).bound < fewer.bound


# ---- forgetting


def test_discounts():
    assert [StreamingMeanField().kept(t) for t in (1, 2, 100)] == [1.0] * 3
    forgets = StreamingMeanField(forgetting=0.5, delay=2.0)
    assert [forgets.kept(t) for t in (2, 14)] == pytest.approx([0.5, 0.75])
    assert StreamingMeanField(forgetting=0.5, delay=0.0).kept(1) == 0.0


@pytest.mark.parametrize(
    "prior", [BetaBernoulli(n_features=2), StickBreakingIBP(truncation=2)], ids=["finite", "sticks"]
)
def test_no_row_is_without_a_feature_that_all_have(prior, rng):
    """N - S is zero, not below it, after many discounts."""
    X = np.full((240, 4), 5.0) + 0.1 * rng.standard_normal((240, 4))
    inference = StreamingMeanField(batch_size=3, forgetting=0.7, tol=1e-2)
    model = Model(prior, LinearGaussian(noise_var=0.01, feature_var=25.0))
    state, _ = inference.absorb(rng, inference.begin(rng, model, 4), X)
    assert state.statistics.counts.max() <= state.n_counted * (1 + 1e-12)
    assert 3 < state.n_counted < 240
    assert (state.weights.tau > 0).all()
    inference.check_sound(state, model, 4)


def test_with_forgetting_it_follows_a_change(rng):
    """The level of a feature moves; what is kept of the old one is a small share."""
    Z = rng.random((1500, 1)) < 0.5
    X = Z * np.where(np.arange(1500)[:, None] < 1000, 4.0, 6.0) * np.ones(6) + 0.3 * rng.standard_normal((1500, 6))
    model = {"observation": LinearGaussian(noise_var=0.09, feature_var=25.0), "prior": BetaBernoulli(n_features=1)}
    kept, follows = (
        LatentFeatures(**model, inference=StreamingMeanField(batch_size=50, forgetting=f), random_state=0).fit(X)
        for f in (None, 0.4)
    )
    share = (1000 * 4.0 + 500 * 6.0) / 1500
    assert kept.components_.mean() == pytest.approx(share, abs=0.1)
    assert follows.components_.mean() > 5.9


# ---- a stream


def estimator(name="bits", **settings):
    prior, observation = MODELS[name]
    inference = StreamingMeanField(**{"batch_size": 16, "truncation": 3} | settings)
    return LatentFeatures(observation, prior, inference, random_state=4, verbose=False)


def assert_same_bits(a, b):
    for name in ("q", "weights"):
        for mine, its in zip(getattr(a.posterior_.factors, name), getattr(b.posterior_.factors, name), strict=True):
            if isinstance(mine, np.ndarray):
                assert np.array_equal(mine, its)
    assert all(np.array_equal(a.history_[name], b.history_[name]) for name in a.history_)


@pytest.mark.parametrize("settings", [{}, {"start": "uniform", "forgetting": 0.8}], ids=["births", "uniform"])
def test_any_batches_give_the_same_bits_also_through_a_file(settings, rng, tmp_path):
    X = rows_of(GAUSSIAN, rng, 70)
    whole = estimator(**settings).fit(X)
    parts = estimator(**settings)
    for first, last in ((0, 1), (1, 30), (30, 31)):
        parts.partial_fit(X[first:last])
    parts.save(tmp_path / "stream.thali")
    loaded = thali.load(tmp_path / "stream.thali")
    for model in (parts, loaded):
        assert_same_bits(model.partial_fit(X[31:]), whole)
    assert whole.history_["n_rows"][0].tolist() == [16, 32, 48, 64, 70]
    assert np.isfinite(whole.score(X))
    assert whole.transform(X[:3]).shape == (3, whole.n_components_)
    assert not np.isnan(whole.impute(X)).any()


@pytest.mark.slow
def test_features_of_bars():
    """Found among hundreds of rows that were seen once, in any of which half of the features are on."""
    data = datasets.bars(500, random_state=0)
    model = LatentFeatures(
        LinearGaussian(noise_var=0.25, feature_var=0.5), IBP(mass=2.0), StreamingMeanField(), random_state=0
    ).fit(data.X)
    assert model.n_components_ == 4
    like = np.corrcoef(np.vstack([model.components_, data.features]))[:4, 4:]
    assert (like.max(axis=0) > 0.95).all()


def test_as_published_all_features_are_there_from_the_first_row_on(rng):
    X = rows_of(GAUSSIAN, rng)
    model = estimator(start="uniform", batch_size=1).partial_fit(X[:1])
    assert model.posterior_.z_prob.shape == (0, 3)
    assert model.partial_fit(X[1:]).posterior_.z_prob.shape == (0, 3)


def test_row_by_row_with_births(rng):
    X = rows_of(GAUSSIAN, rng)
    model = estimator(batch_size=1).fit(X)
    assert 1 <= model.n_components_ <= 3
    assert np.isfinite(model.score(X))


def test_memory_does_not_grow(rng):
    inference = StreamingMeanField(batch_size=2, truncation=2, start="uniform", n_inner=1)
    model = Model(BetaBernoulli(n_features=2), GAUSSIAN)
    state = inference.begin(rng, model, N_DIMS)
    sizes = []
    for _ in range(2):
        state, _ = inference.absorb(rng, state, rows_of(GAUSSIAN, rng, 1201, missing=False))
        sizes.append(len(state.trace))
        assert inference.history(state)["n_rows"][0, -1] == state.n_rows
        inference.check_sound(state, model, N_DIMS)
    assert max(sizes) < 512


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"truncation": 4}, "at most the 3 features"),
        ({"forgetting": 0.0}, "forgetting must be None or a positive number"),
        ({"start": "empty"}, "start"),
    ],
)
def test_what_cannot_be_asked(changes, why):
    with pytest.raises(InvalidParameterError, match=why):
        estimator(**changes).fit(np.zeros((3, 2)))


def test_dims_that_own_bits_cannot_be_streamed():
    with pytest.raises(IncompatibleModelError, match="GrowingSums"):
        LatentFeatures(SparseFactorAnalysis(), IBP(), StreamingMeanField()).fit(np.zeros((3, 2)))


# ---- states from files


@pytest.mark.parametrize("name", ["bits", pytest.param("weights", marks=pytest.mark.slow)])
def test_contract(name, rng):
    prior, observation = MODELS[name]
    X = rows_of(observation, rng, 3, missing=False)
    check_inference(StreamingMeanField(batch_size=7, truncation=3), Model(prior, observation), X, rng)


HOSTILE = {
    "seed": -1,
    "n_rows": 39,
    "n_batches": 3,
    "n_counted": 1e9,
    "bound": np.nan,
    "refused": np.array([np.inf, 0.0]),
    "waiting": np.zeros((8, N_DIMS + 1)),
    "trace": np.array([[3.0, 1.0, 1.0], [2.0, 1.0, 1.0]]),
    "stride": 0,
    "q": None,
    "statistics": None,
    "no_rows": (np.zeros((0, 1)),),
}


@pytest.mark.parametrize("field", HOSTILE)
def test_hostile_states_are_refused(field, rng):
    prior, observation = MODELS["bits"]
    inference, model = StreamingMeanField(batch_size=16), Model(prior, observation)
    state, _ = inference.absorb(rng, inference.begin(rng, model, N_DIMS), rows_of(GAUSSIAN, rng))
    inference.check_sound(state, model, N_DIMS)
    with pytest.raises(ValueError, match=r"its|it has"):
        inference.check_sound(state._replace(**{field: HOSTILE[field]}), model, N_DIMS)


def test_sums_with_negative_counts_are_refused(rng):
    prior, observation = MODELS["bits"]
    inference, model = StreamingMeanField(batch_size=16), Model(prior, observation)
    state, _ = inference.absorb(rng, inference.begin(rng, model, N_DIMS), rows_of(GAUSSIAN, rng))
    for wrong in (scale(state.statistics, -1.0), add(state.statistics, scale(state.statistics, np.nan))):
        with pytest.raises(ValueError, match="its factors"):
            inference.check_sound(state._replace(statistics=wrong), model, N_DIMS)


def test_features_whose_covariance_has_no_digits_left_are_refused():
    """Weights of 1e11 with variances of 1: the precision of the features is singular as far as digits go."""
    observation = FactorAnalysis(noise_var=1.0, feature_var=None, offset=None, noise_floor=0.0)
    model = LatentFeatures(observation, IBP(), StreamingMeanField(batch_size=1, start="uniform"), random_state=0)
    for row in ([[1e12]], [[1e9, 2e9]]):
        with pytest.raises(InvalidParameterError, match="no digits left"):
            model.fit(np.array(row))
    with pytest.raises(InvalidParameterError, match="no digits left"):
        model.partial_fit(np.array([[1e12]]))
    model.partial_fit(np.ones((3, 1)))
    before = model.score_samples(np.ones((1, 1)))
    with pytest.raises(InvalidParameterError, match="stay in range"), pytest.warns(UserWarning, match="Row 0"):
        model.partial_fit(np.array([[1e12]]))
    assert model.n_samples_seen_ == 3
    np.testing.assert_array_equal(model.score_samples(np.ones((1, 1))), before)
