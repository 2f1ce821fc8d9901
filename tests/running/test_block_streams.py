"""Batches of rows for `StochasticMeanField`, however small, and errors on the way."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import thali
from thali import IBP, InvalidDataError, InvalidFileError, LatentFeatures, LinearGaussian, PoissonGamma
from thali.data.young_rows import YoungRows
from thali.errors import ThaliError
from thali.inference import StochasticMeanField
from thali.running import fitting


@pytest.fixture(name="X", scope="module")
def made_of_three():
    rng = np.random.default_rng(3)
    Z = rng.random((120, 3)) < [0.5, 0.3, 0.6]
    return Z @ rng.normal(0, 2, (3, 6)) + rng.normal(0, 0.3, (120, 6))


def estimator(observation=None, **settings):
    inference = StochasticMeanField(**{"n_restarts": 1} | settings)
    return LatentFeatures(observation or LinearGaussian(), IBP(), inference=inference, random_state=0)


def streamed(model, X, size):
    for start in range(0, X.shape[0], size):
        model.partial_fit(X[start : start + size])
    return model


def assert_same(a, b):
    np.testing.assert_array_equal(a.components_, b.components_)
    assert a.posterior_.bound == b.posterior_.bound
    assert a.check() == b.check()
    assert a.history_.keys() == b.history_.keys()
    assert all(np.array_equal(a.history_[name], b.history_[name]) for name in a.history_)


# ---- few rows at a time


def test_small_batches_find_what_large_ones_find(X):
    found = {size: streamed(estimator(), X, size) for size in (17, 120)}
    for model in found.values():
        assert model.n_components_ == 3
        assert model.posterior_.n_rows == 120
        assert model.score(X) == pytest.approx(found[120].score(X), abs=0.05)
    one = streamed(estimator(), X[:25], 1)
    assert one.n_components_ == 3
    assert one.history_["n_rows"].tolist() == [list(range(1, 26))]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["memoised", "robbins-monro"])
def test_bars_one_row_at_a_time(method):
    X = thali.datasets.bars().X
    found = [streamed(estimator(method=method, n_restarts=3), X, size) for size in (1, 7, 50, 500)]
    assert [model.n_components_ for model in found] == [4, 4, 4, 4]
    scores = [model.score(X) for model in found]
    assert max(scores) - min(scores) < {"memoised": 0.1, "robbins-monro": 0.5}[method]  # a running mean forgets


def test_a_row_after_many_does_not_count_as_a_block(X, monkeypatch):
    def change():
        model = estimator(method="robbins-monro", n_start=120).partial_fit(X)
        before = np.sort(model.posterior_.row_counts)
        return np.abs(np.sort(model.partial_fit(X[:1]).posterior_.row_counts) - before).max()

    assert change() < 5
    blended = StochasticMeanField._blended
    monkeypatch.setattr(StochasticMeanField, "_blended", lambda self, *args: blended(self, *args[:3]))
    assert change() > 20  # one row of 121 would count by 0.46


@pytest.mark.slow
def test_a_fit_of_a_few_rows_begins_anew_too(X):
    model = estimator().fit(X[:1])
    for start in range(1, 120, 17):
        model.partial_fit(X[start : start + 17])
    assert model.n_components_ == 3
    assert model.posterior_.n_rows == 120


@pytest.mark.slow
def test_counts_in_small_batches():
    rng = np.random.default_rng(0)
    features = np.kron(np.eye(3), np.full((1, 4), 5.0))
    Z = np.eye(3)[rng.integers(3, size=60)] + (rng.random((60, 3)) < 0.2)
    counts = rng.poisson(Z * rng.gamma(5.0, 0.5, (60, 3)) @ features).astype(float)
    dense, sparse = (streamed(estimator(PoissonGamma()), data, 4) for data in (counts, csr_matrix(counts)))
    assert dense.n_components_ == sparse.n_components_ == 3
    assert sparse.posterior_.bound == pytest.approx(dense.posterior_.bound)


def stream_of(model):
    return model._outcome.stream.tasks[0].state


def test_rows_are_forgotten_when_there_are_enough(X, tmp_path):
    model = estimator(n_start=50)
    kept = []
    for start in range(0, 120, 20):
        model.partial_fit(X[start : start + 20])
        kept.append(None if stream_of(model).young is None else stream_of(model).young.n_rows)
    assert kept == [20, 40, None, None, None, None]
    assert stream_of(model).n_begun == 60
    assert model.n_components_ == 3


@pytest.mark.parametrize("sparse", [False, True])
def test_young_rows_are_in_the_file(X, sparse, tmp_path):
    observation = PoissonGamma() if sparse else LinearGaussian()
    X = csr_matrix(np.round(np.abs(X))) if sparse else X
    model = streamed(estimator(observation, moves=False), X[:30], 10)
    model.save(tmp_path / "young.thali")
    again = thali.load(tmp_path / "young.thali")
    assert_same(again, model)
    for start in (30, 40, 75):
        for one in (model, again):
            one.partial_fit(X[start : start + 10])
        assert_same(again, model)
    task = model._outcome.stream.tasks[0]
    task.state = task.state._replace(young=YoungRows.of(task.state.young.matrix()[:5]))
    model.save(tmp_path / "odd.thali")
    with pytest.raises(InvalidFileError, match="first rows"):
        thali.load(tmp_path / "odd.thali")


# ---- errors


class _Fails:
    def __init__(self, error):
        self.error = error

    def __call__(self, *args, **settings):
        raise self.error


PLACES = {
    "a visit": (StochasticMeanField, "visit"),
    "a beginning": (StochasticMeanField, "begin"),
    "the posterior": (StochasticMeanField, "posterior"),
    "the finiteness": (fitting, "check_finite"),
    "the adoption": (LatentFeatures, "_adopt"),
}


@pytest.mark.parametrize(("place", "fitted"), [*((place, False) for place in PLACES), ("the adoption", True)])
def test_an_error_leaves_the_stream_as_it_was(X, place, fitted):
    def begun():
        model = estimator(moves=False, n_epochs=2)
        return model.fit(X[:30]) if fitted else streamed(model, X[:30], 15)

    model, same = begun(), begun()
    acts = (model.partial_fit, model.fit, lambda rows: model.fit(iter([rows[:, :4]])))
    for act, error in zip(acts, (MemoryError("no room"), KeyboardInterrupt(), RuntimeError("?")), strict=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(*PLACES[place], _Fails(error))
            with pytest.raises((ThaliError, type(error))):
                act(X[30:75])
    assert_same(model, same)
    assert model.stopped_by_ is None
    assert model._was_fitted(X[:30]) is fitted
    assert_same(model.partial_fit(X[30:80]), same.partial_fit(X[30:80]))


def test_batches_before_an_error_are_kept(X):
    model, same = estimator(moves=False), streamed(estimator(moves=False), X[:40], 20)
    bad = X[40:60].copy()
    bad[7, 2] = np.inf
    with pytest.raises(InvalidDataError) as raised:
        model.fit(iter([X[:20], X[20:40], bad, X[60:]]))
    assert "The 40 rows before this batch are kept" in "".join(raised.value.__notes__)
    assert model.stopped_by_ == "error"
    assert_same(model, same)
    assert_same(model.partial_fit(X[40:]), same.partial_fit(X[40:]))


@pytest.mark.parametrize("value", [1e149, -1e60])
def test_a_row_far_out_is_named(X, value, tmp_path):
    model = streamed(estimator(moves=False), X[:60], 30)
    model.save(tmp_path / "s.thali")
    odd = X[60:70].copy()
    odd[4, 2] = value
    for one in (model, thali.load(tmp_path / "s.thali"), estimator(moves=False, n_epochs=2).fit(X[:60])):
        with pytest.raises(UserWarning, match=r"Row 4 of this batch \(row 64 of the stream\) has the value"):
            one.partial_fit(odd)  # warnings are errors here
        assert stream_of(one).state.n_seen == 60
    with pytest.warns(UserWarning, match="of the other rows"):
        n_seen = _taken(model, odd)
    assert n_seen in (60, 70)
    assert np.isfinite(model.components_).all()


def _taken(model, batch):
    try:
        model.partial_fit(batch)
    except ThaliError:
        return stream_of(model).state.n_seen
    return 70
