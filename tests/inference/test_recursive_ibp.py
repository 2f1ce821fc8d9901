"""Streams by the recursive IBP: however rows are batched, stopped, kept and taken up, the same features."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import thali
from thali import IBP, FactorAnalysis, InverseGamma, LatentFeatures, LinearGaussian, NormalOffset, PerDim, RecursiveIBP
from thali.core.events import KINDS, Event
from thali.core.model import Model
from thali.core.protocols.engines.recursive import RecursiveRows, RowLaw
from thali.errors import InvalidParameterError
from thali.priors import recursion

FIXED = {"observation": LinearGaussian(noise_var=0.25, feature_var=1.0), "prior": IBP(mass=1.5)}
LEARNED = {"observation": LinearGaussian(), "prior": IBP()}


def rows(n=300, n_dims=6, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    A = 1.5 * rng.standard_normal((3, n_dims))
    X = (rng.random((n, 3)) < 0.4) @ A + 0.5 * rng.standard_normal((n, n_dims))
    return np.where(rng.random(X.shape) < missing, np.nan, X), A


def estimator(model=FIXED, **settings):
    return LatentFeatures(inference=RecursiveIBP(**settings), random_state=0, verbose=False, **model)


def numbers(model):
    """All that the filter knows, as numbers."""
    state = model._outcome.stream.tasks[0].state.state
    return [
        np.asarray(part)
        for part in (*state.known[1:], state.trace, state.due, state.every, state.n_times, state.waiting)
    ]


def assert_same(a, b):
    for mine, its in zip(numbers(a), numbers(b), strict=True):
        np.testing.assert_array_equal(mine, its)


def parts_of(X, seed):
    cuts = np.sort(np.random.default_rng(seed).integers(1, len(X), 6))
    return [part for part in np.split(X, cuts) if len(part)]


@pytest.fixture(scope="module")
def whole():
    return estimator().fit(rows()[0])


def test_features_are_found(whole):
    A = rows()[1]
    found = whole.components_
    assert whole.n_components_ == 3
    cosine = A @ found.T / np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(found, axis=1))
    assert (cosine.max(axis=1) > 0.95).all()
    assert whole.k_posterior_[3] > 0.9
    assert whole.posterior_.n_rows == 300


def test_batches_give_the_bits_of_one_array(whole):
    X = rows()[0]
    streamed = estimator()
    for part in parts_of(X, 1):
        streamed.partial_fit(part)
    assert_same(whole, streamed)
    assert_same(whole, estimator().fit(iter(parts_of(X, 2))))


@pytest.mark.parametrize(
    "settings",
    [{"forgetting": 0.98}, {"n_start": 0, "births": "anchored"}, {"recipe": "paper", "n_inner": 3}],
    ids=["forgetting", "from the first row", "paper"],
)
def test_batches_of_other_settings_with_missing_cells(settings):
    X = rows(150, missing=0.1)[0]
    one, other = estimator(**settings), estimator(**settings)
    for part in parts_of(X, 3):
        one.partial_fit(part)
    for part in parts_of(X, 4):
        other.partial_fit(part)
    assert_same(one, other)


def test_learned_hyperparameters_do_not_depend_on_batches_either():
    X, _ = rows(400)
    one, other = estimator(LEARNED), estimator(LEARNED)
    for part in parts_of(X, 5):
        one.partial_fit(part)
    for row in np.array_split(X[:130], 130):
        other.partial_fit(row)
    other.partial_fit(X[130:])
    assert_same(one, other)
    assert one.history_["noise_var"][0, -1] == pytest.approx(0.25, rel=0.3)
    assert one.n_components_ == 3


def test_first_rows_that_say_too_little_of_a_dim_do_not_end_a_stream():
    """Two dates in a row are alike as far as squares can tell; twenty are not."""
    X = np.column_stack([736_389.0 + np.arange(40), rows(40)[0]])
    model = estimator(LEARNED, n_start=20)
    for row in X:
        model.partial_fit(row[None])
    assert model.n_samples_seen_ == 40
    assert np.isfinite(model.score_samples(X)).all()


def test_it_is_saved_and_goes_on(whole, tmp_path):
    X = rows()[0]
    first = estimator().fit(X[:170])
    first.save(tmp_path / "a.thali")
    loaded = thali.load(tmp_path / "a.thali")
    assert_same(first, loaded)
    np.testing.assert_array_equal(first.components_, loaded.components_)
    np.testing.assert_array_equal(first.score_samples(X[:5]), loaded.score_samples(X[:5]))
    assert loaded.events_ == first.events_
    assert_same(whole, loaded.partial_fit(X[170:]))


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(whole, tmp_path):
    X = rows()[0]
    model = estimator().set_params(checkpoint=tmp_path / "run", max_time=1e-9)
    with pytest.warns(UserWarning, match="Stopped by max_time after"):
        model.fit(X)
    assert 0 < model.posterior_.n_rows < 300
    resumed = thali.resume(tmp_path / "run", X, max_time=None)
    assert_same(whole, resumed)


def test_a_batch_that_fails_is_not_taken_in(whole):
    X = rows()[0]
    model = estimator()

    def batches():
        yield X[:200]
        yield np.full((3, 6), np.inf)

    with pytest.raises(thali.InvalidDataError):
        model.fit(batches())
    assert model.posterior_.n_rows == 200
    with pytest.raises(thali.InvalidDataError):
        model.partial_fit(X[:5, :3])
    assert_same(whole, model.partial_fit(X[200:]))


def test_events_and_numbers():
    X = rows(200)[0]
    model = estimator(forgetting=0.95, fade_below=0.02).fit(X)
    born = [event for event in model.events_ if event.kind == "born"]
    assert all(isinstance(event, Event) and event.kind in KINDS for event in model.events_)
    assert [event.feature for event in born] == sorted({event.feature for event in born})
    assert all(event.value >= 0.5 for event in born)
    known = model._outcome.stream.tasks[0].state.state.known
    gone = {event.feature for event in model.events_ if event.kind in ("faded", "merged")}
    assert set(known.number[known.told].tolist()) == {event.feature for event in born} - gone
    model.partial_fit(8 + 0.5 * np.random.default_rng(0).standard_normal((60, 6)))  # something new
    assert any(event.kind == "born" and event.row == 200 for event in model.events_)
    faded = {event.feature for event in model.events_ if event.kind in ("faded", "merged")}
    model.partial_fit(0.5 * np.random.default_rng(1).standard_normal((150, 6)))  # and none of it any more
    faded |= {event.feature for event in model.events_ if event.kind in ("faded", "merged")}
    assert set(known.number.tolist()) <= faded


def test_a_feature_is_told_once_it_is_likely():
    """Of rows that are almost noise, many may be the first with a new feature, and hardly any is."""
    rng = np.random.default_rng(0)
    X = (rng.random((1500, 5)) < 0.3) @ rng.standard_normal((5, 10)) + 1.5 * rng.standard_normal((1500, 10))
    observation = LinearGaussian(noise_var=2.25, feature_var=1.0)
    model = estimator({"observation": observation, "prior": IBP(mass=1.5)}).fit(X)
    known = model._outcome.stream.tasks[0].state.state.known
    later = [event for event in model.events_ if event.row >= 100]
    assert known.n_born > 10
    assert len(later) < 5
    assert all(event.value >= 0.5 for event in later if event.kind == "born")


def test_drift_is_followed_and_told():
    rng = np.random.default_rng(0)
    n = 1500
    A = np.array([3.0, 0, 0, 1]) + np.linspace(0, 4, n)[:, None] * np.array([0, 1.0, 0, 0])
    z = rng.random(n) < 0.6
    X = z[:, None] * A + 0.5 * rng.standard_normal((n, 4))
    follows, keeps = (estimator(forgetting=rho).fit(X) for rho in (0.98, 1.0))
    far = [np.linalg.norm(model.components_ - A[-1], axis=1).min() for model in (follows, keeps)]
    assert far[0] < 0.6 < far[1]
    assert "drifted" in {event.kind for event in follows.events_}


@pytest.mark.parametrize("rho", [1.0, 0.95])
@pytest.mark.parametrize("births", recursion.BIRTHS)
def test_chances_of_a_row_sum_to_the_mass_where_data_say_nothing(rho, births):
    """Rows without a seen cell: each takes what the prior says."""
    model = estimator(n_start=0, births=births, forgetting=rho, fade_below=0.0)
    state = model.inference.begin(None, Model(IBP(mass=1.5), FIXED["observation"]), 2)
    known, _ = engine().filter_rows(
        state.known, np.array([[3.0, -2.0]]), model.inference._law(state), model.inference.plan
    )
    known = known._replace(counts=known.counts * 1.5 / known.counts.sum())
    for _ in range(30):
        known, _ = engine().filter_rows(
            known, np.full((1, 2), np.nan), model.inference._law(state), model.inference.plan
        )
    running = recursion.Running(0, known.counts, known.exists)
    before = 1.0 + known.weight
    q = recursion.birth_probs(running, 1.5 / before, births, 60)
    q[: len(known.counts)] += known.counts / before
    lost = 1.5 * (1 + known.weight) / before - q.sum()  # what went to new features, which no row can have
    assert 0 <= lost < 1.5
    assert q.sum() == pytest.approx((known.counts.sum() + 1.5) / before, rel=1e-6)


def test_missing_cells_say_nothing():
    X = rows(200, missing=0.3)[0]
    model = estimator().fit(X)
    assert model.n_components_ == 3
    filled = model.impute(X)
    assert np.isfinite(filled).all()
    known = model._outcome.stream.tasks[0].state.state.known
    assert known.rows.shape == (known.n_features, 6)
    assert (known.rows.sum(axis=1) < 6 * known.counts).all()


def test_the_number_of_features_is_that_of_the_births():
    X = rows(60)[0]
    for births in recursion.BIRTHS:
        model = estimator(births=births, n_start=0).fit(X)
        law, exists = model.k_posterior_, model.posterior_.running.exists
        assert sum(law.values()) == pytest.approx(1.0, abs=1e-9)
        wanted = len(exists) if births == "anchored" else exists.sum()
        assert model.posterior_.k_mean == pytest.approx(wanted, rel=1e-6)


def engine(observation=FIXED["observation"]):
    return observation.engine(RecursiveRows)


def test_features_of_given_bits_are_the_joint_optimum():
    X, _ = rows(40, missing=0.2)
    z = np.random.default_rng(1).random((40, 3))
    known = engine().known_of(X, z, z, FIXED["observation"])
    seen = ~np.isnan(X)

    def error(mean):
        left = np.where(seen, X - z[:, first] @ mean, 0.0)
        return (left**2).sum() + ((z * (1 - z))[:, first].T @ seen * mean**2).sum() + 0.25 * (mean**2).sum()

    first = [int(np.flatnonzero(np.isclose(z.sum(axis=0), count))[0]) for count in known.counts]
    least = error(known.mean)
    for _ in range(5):
        assert error(known.mean + 1e-3 * np.random.default_rng(2).standard_normal(known.mean.shape)) > least
    np.testing.assert_allclose(known.rows, z[:, first].T @ seen)


def test_doubles_and_sums_are_merged():
    """Features a and b, a once more, and their sum: two are left, and what has gone is told."""
    a, b = np.array([4.0, 0, 1, 0]), np.array([0, 3.0, 0, -2])
    bits = np.repeat(np.eye(4), [30, 30, 10, 10], axis=0)
    X = bits @ np.array([a, b, a, a + b]) + 0.1 * np.random.default_rng(0).standard_normal((80, 4))
    law, plan = RowLaw(1.5, 1.0, "anchored"), RecursiveIBP().plan
    known, notes = engine().in_order(engine().known_of(X, bits, bits, FIXED["observation"]), law, plan)
    assert known.number.tolist() == [0, 1]
    np.testing.assert_allclose(known.mean, [a, b], atol=0.2)
    np.testing.assert_allclose(known.counts, [50, 40])
    assert [(KINDS[note.kind], note.feature) for note in notes] == [("merged", 2), ("merged", 3)]
    apart, notes = engine().in_order(
        engine().known_of(X + bits[:, 2:3] * [0, 0, 0, 3.0], bits, bits, FIXED["observation"]), law, plan
    )
    assert 2 in apart.number.tolist()


def test_everything_that_an_estimator_can_do(whole):
    X = rows(seed=1)[0][:20]
    assert whole.presence(X).shape == whole.transform(X).shape == (20, 3)
    assert np.isfinite(whole.score(X))
    mask = np.zeros(X.shape, dtype=bool)
    mask[:, 0] = True
    assert np.isfinite(whole.heldout_score(X, mask))
    assert whole.sample(4).shape == (4, 6)
    assert whole.novelty(np.vstack([X[:1], np.full((1, 6), 9.0)]))[1] > 0.9
    assert "not judged: 300 rows" in whole.check()
    assert whole.history_["bound"].shape == whole.history_["n_rows"].shape
    with pytest.raises(InvalidParameterError, match="was not kept"):
        whole.posterior_.bits(0, 0)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"observation": LinearGaussian(), "prior": IBP(mass=InverseGamma())}, "mass is a number or a Gamma"),
        ({"observation": LinearGaussian(), "prior": IBP(mass=1.0, discount=0.3)}, "no discount"),
    ],
)
def test_what_cannot_be_learned_is_refused(model, words):
    with pytest.raises(InvalidParameterError, match=words):
        estimator(model).fit(rows(20)[0])


def test_noise_of_each_dim_and_an_offset_are_those_of_the_first_rows():
    X, _ = rows(300)
    unit = np.array([1.0, 1, 2, 1, 1, 1])
    observation = LinearGaussian(noise_var=PerDim(), offset=NormalOffset())
    model = estimator({"observation": observation, "prior": IBP()}).fit(unit * X + 20)
    fixed = model.posterior_.concrete(0, 0).observation
    np.testing.assert_allclose(fixed.noise_var, 0.25 * unit**2, rtol=0.7)
    assert fixed.offset.shape == (6,)
    assert model.n_components_ >= 3
    with pytest.raises(InvalidParameterError, match="mean field of the first rows"):
        estimator({"observation": observation, "prior": IBP()}, n_start=0).fit(X)


def test_noise_of_each_dim_and_an_offset_are_taken_into_account():
    X, _ = rows()
    unit = np.array([0.1, 1, 10, 1, 1, 3])
    observation = LinearGaussian(noise_var=0.25 * unit**2, feature_var=4.0, offset=5.0 * unit)
    model = estimator({"observation": observation, "prior": IBP(mass=1.5)}, n_start=0).fit((X + 5) * unit)
    plain = LinearGaussian(noise_var=0.25, feature_var=1.0)
    plain = estimator({"observation": plain, "prior": IBP(mass=1.5)}, n_start=0).fit(X)
    np.testing.assert_allclose(model.components_, plain.components_ * unit, rtol=1e-6)
    gap = np.log(unit).sum()
    np.testing.assert_allclose(model.score_samples((X[:9] + 5) * unit), plain.score_samples(X[:9]) - gap, rtol=1e-6)


def test_memory_does_not_grow():
    model = estimator()
    X = rows(2000)[0]
    sizes = []
    for n in range(20):
        model.partial_fit(X[100 * n : 100 * n + 100])
        sizes.append(sum(part.nbytes for part in numbers(model)))
    assert max(sizes[5:]) < 1.5 * sizes[3] + 8 * 5 * 256


# ---- rows that share a posterior


@pytest.mark.parametrize(
    ("model", "settings"),
    [(FIXED, {}), (FIXED, {"forgetting": 0.98, "n_start": 0}), (LEARNED, {"births": "anchored"})],
    ids=["fixed", "forgetting", "learned"],
)
def test_batches_that_share_a_posterior_do_not_depend_on_how_rows_come(model, settings):
    X = rows(330, missing=0.02 if model is FIXED else 0.0)[0]
    one, other = (estimator(model, batch=20, **settings) for _ in range(2))
    for part in (X[:7], X[7:8], X[8:150], X[150:]):
        one.partial_fit(part)
    other.partial_fit(X[:97])
    for row in X[97:125]:
        other.partial_fit(row[None])
    other.partial_fit(X[125:])
    assert_same(one, other)
    state = one._outcome.stream.tasks[0].state.state
    assert 0 < len(state.waiting) < 20
    assert one.n_samples_seen_ == one.posterior_.n_rows == 330
    assert one.n_components_ == 3
    row_by_row = estimator(model, **settings).fit(X)
    assert not np.array_equal(one.components_, row_by_row.components_)


def test_a_batch_that_is_not_full_is_saved_and_goes_on(tmp_path):
    X = rows()[0]
    whole = estimator(batch=64).fit(X)
    first = estimator(batch=64).fit(X[:201])
    assert len(first._outcome.stream.tasks[0].state.state.waiting) == 201 - 100 - 64
    first.save(tmp_path / "a.thali")
    loaded = thali.load(tmp_path / "a.thali")
    assert_same(first, loaded)
    np.testing.assert_array_equal(first.score_samples(X[:5]), loaded.score_samples(X[:5]))
    assert_same(whole, loaded.partial_fit(X[201:]))
    model = estimator(batch=64).set_params(checkpoint=tmp_path / "run", max_time=1e-9)
    with pytest.warns(UserWarning, match="Stopped by max_time after"):
        model.fit(X)
    assert 0 < model.posterior_.n_rows < 300
    assert_same(whole, thali.resume(tmp_path / "run", X, max_time=None))


def test_one_row_at_a_time_is_a_batch_of_one(whole):
    assert_same(whole, estimator(batch=1).fit(rows()[0]))


def test_a_batch_that_is_not_full_shows_its_rows():
    """Its rows are in the posterior, as if they were a batch; a bad one is not taken in."""
    X = rows(140)[0]
    model = estimator(batch=100).fit(X[:110])
    before = model.components_
    model.partial_fit(X[110:])
    assert not np.array_equal(before, model.components_)
    assert model.posterior_.running.counts.sum() > 0.9 * 140
    state = model._outcome.stream.tasks[0].state
    with pytest.raises(thali.InvalidDataError):
        model.partial_fit(np.full((2, 6), np.inf))
    assert model._outcome.stream.tasks[0].state is state
    with pytest.raises(ValueError, match="rows of its batch"):
        model.inference.check_sound(state.state._replace(waiting=X), state.state.model, 6)


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        (FIXED, {"recipe": "paper"}, "takes rows one by one"),
        ({"observation": FactorAnalysis(), "prior": IBP()}, {}, "takes rows one by one: the weights"),
    ],
)
def test_what_has_no_batches_is_refused(model, settings, words):
    with pytest.raises(InvalidParameterError, match=words):
        estimator(model, batch=10, **settings).fit(rows(30)[0])


# ---- the density of the next row


def by_hand(x, chance, mean, var, noise):
    """Enumeration by scipy's normal density of the cells that are seen."""
    seen, terms = ~np.isnan(x), []
    for z in itertools.product([0, 1], repeat=len(chance)):
        z = np.array(z)
        prior = np.log(np.where(z, chance, 1 - chance)).sum()
        terms.append(prior + norm.logpdf(x, z @ mean, np.sqrt(noise + z @ var))[seen].sum())
    return logsumexp(terms)


@pytest.mark.parametrize("births", ["comonotone", "anchored"])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_scores_are_those_of_the_next_row(births, missing):
    """Known features with the chances of the filter, births among them, and new ones, all enumerated."""
    X = rows(40, missing=missing)[0]
    model = estimator(births=births, n_start=0).fit(X)
    known, law = model._outcome.stream.tasks[0].state.state.known, model.posterior_.law
    assert known.rows.shape[1] == (6 if missing else 1)
    running = recursion.Running(40, known.counts, known.exists)
    chance = recursion.next_row(running, law.mass, law.concentration, births)
    chance = chance[chance > 1e-9]
    n_new = len(chance) - known.n_features
    mean = np.vstack([known.mean, np.zeros((n_new, 6))])
    var = np.vstack([np.broadcast_to(0.25 / (0.25 + known.rows), known.mean.shape), np.ones((n_new, 6))])
    new, wanted = rows(43, missing=missing)[0][40:], []
    new[0] *= -3.0  # which only a new feature explains
    for x in new:
        wanted.append(by_hand(x, chance, mean, var, 0.25))
    np.testing.assert_allclose(model.score_samples(new), wanted, atol=1e-6)
    assert model.score(new) == pytest.approx(np.mean(wanted), abs=1e-6)
    mask = np.zeros(new.shape, dtype=bool)
    mask[:, 2] = ~np.isnan(new[:, 2])
    less = np.where(mask, np.nan, new)
    gap = sum(wanted) - sum(by_hand(x, chance, mean, var, 0.25) for x in less)
    assert model.heldout_score(new, mask) == pytest.approx(gap / mask.sum(), abs=1e-6)


def test_golden_density_of_the_next_row():
    """G12: four features with variances of their own, from what a filter knows."""
    nothing = engine(LinearGaussian(noise_var=0.4, feature_var=1.0)).nothing_known(3)
    var = np.array([0.02, 0.05, 0.3, 1.0])
    known = nothing._replace(
        mean=np.array([[1.0, 0.0, 2.0], [-1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 0.0]]),
        rows=(0.4 / var - 0.4)[:, None], counts=np.zeros(4),
    )  # fmt: skip
    found = engine(nothing.observation).log_density(
        known, np.array([[0.2, 1.1, 1.9]]), np.array([0.7, 0.5, 0.2, 0.05]), "auto", 100
    )
    assert found[0] == pytest.approx(-2.8233785669, abs=1e-9)


def test_estimates_of_the_density_by_name(whole):
    X = rows()[0][:8]
    exact = whole.posterior_.log_density(X, "exact")
    np.testing.assert_array_equal(whole.score_samples(X), exact)
    for how, far in (("importance", 0.2), ("marginal", 1.5), ("joint", 1.5)):
        found = whole.posterior_.log_density(X, how, n_samples=2000)
        assert 0 < np.abs(found - exact).max() < far
    with pytest.raises(InvalidParameterError, match="'importance'"):
        whole.posterior_.log_density(X, "encoder")


def test_a_new_row_means_the_same_to_all_methods(whole):
    """A row of a known feature, one that only a new feature explains, and rows without a cell."""
    a = whole.components_[0]
    X = np.array([a, 9.0 * np.array([1, -1, 1, -1, 1, -1.0]), np.full(6, np.nan)])
    novelty = whole.novelty(X)
    rate = float(whole.posterior_.encoder.rate)
    assert novelty[0] < 0.01
    assert novelty[1] > 0.99
    assert novelty[2] == pytest.approx(-np.expm1(-rate))
    assert whole.score_samples(X)[2] == 0.0
    chance = whole.posterior_.running.counts / 301
    order = whole.posterior_.consensus.columns
    np.testing.assert_allclose(whole.presence(X)[2], chance[order], atol=1e-3)
    np.testing.assert_allclose(whole.impute(X)[2], chance[order] @ whole.components_, atol=1e-2)
    drawn = whole.sample(20_000, random_state=1)
    np.testing.assert_allclose(drawn.mean(axis=0), chance[order] @ whole.components_, atol=0.06)


# ---- factor analysis

ANALYSIS = FactorAnalysis(noise_var=0.1, feature_var=1.0, offset=None, noise_floor=0.0)
FACTORS = {"observation": ANALYSIS, "prior": IBP(mass=1.5)}


def test_factors_are_found_and_do_not_depend_on_batches():
    rng = np.random.default_rng(0)
    A = 1.5 * rng.standard_normal((3, 6))
    X = ((rng.random((200, 3)) < 0.5) * rng.standard_normal((200, 3))) @ A + 0.3 * rng.standard_normal((200, 6))
    model, streamed = estimator(FACTORS).fit(X), estimator(FACTORS)
    for part in parts_of(X, 1):
        streamed.partial_fit(part)
    assert_same(model, streamed)
    found = model.components_
    cosine = np.abs(A @ found.T) / np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(found, axis=1))
    assert (cosine.max(axis=1) > 0.95).all()
    assert len(found) <= 4
    assert model.transform(X[:5]).shape == (5, len(found))
    # two estimates of the density that draw weights in different ways
    one, other = (model.posterior_.log_density(X[1:4], how, n) for how, n in (("auto", 2000), ("marginal", 40_000)))
    np.testing.assert_array_equal(model.score_samples(X[:5]), model.posterior_.log_density(X[:5], "importance"))
    np.testing.assert_allclose(one, other, atol=0.1)


@pytest.mark.parametrize(
    ("observation", "settings", "words"),
    [
        (ANALYSIS.replace(ard=2.0), {}, "one scale for all weights"),
        (ANALYSIS, {"recipe": "paper"}, "has no recipe 'paper'"),
    ],
)
def test_what_recursive_factor_analysis_has_not_is_refused(observation, settings, words):
    with pytest.raises(InvalidParameterError, match=words):
        estimator({"observation": observation, "prior": IBP(mass=1.5)}, **settings).fit(rows(20)[0])
