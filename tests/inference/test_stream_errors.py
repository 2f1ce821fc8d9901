"""A batch that ends in an error leaves a stream as it was: to the bits of a stream that never saw it."""

import contextlib
import itertools

import numpy as np
import pytest

import thali
from thali import IBP, InvalidDataError, LatentFeatures, LinearGaussian, ParticleFilter
from thali.errors import ThaliError
from thali.observations.gaussian.particles import GaussianParticles
from thali.running import fitting
from thali.storage.streams import Stream

FIXED = LinearGaussian(noise_var=0.1, feature_var=2.0)


def rows(n_rows=24, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.random((n_rows, 2)) < 0.5
    return Z @ np.kron(np.eye(2), np.full((1, 2), 1.5)) + 0.3 * rng.standard_normal((n_rows, 4))


def estimator(observation=FIXED, prior=None):
    return LatentFeatures(
        observation, prior or IBP(mass=1.0), ParticleFilter(n_particles=8), n_chains=2, random_state=3, verbose=False
    )


def assert_same(a, b):
    assert np.array_equal(a.posterior_.packed_z.values, b.posterior_.packed_z.values)
    assert np.array_equal(a.components_, b.components_)
    assert a.log_evidence_ == b.log_evidence_
    assert a.check() == b.check()
    assert all(np.array_equal(a.history_[name], b.history_[name]) for name in a.history_)
    assert a.data_fingerprint_ == b.data_fingerprint_


class Failing:
    """A function that raises at its n-th call, before or after its work."""

    def __init__(self, function, error, nth, after):
        self.function, self.error, self.nth, self.after, self.calls = function, error, nth, after, itertools.count(1)

    def __get__(self, owner, kind=None):
        return lambda *args, **settings: self(owner, *args, **settings)

    def __call__(self, *args, **settings):
        fails = next(self.calls) == self.nth
        if fails and not self.after:
            raise self.error
        found = self.function(*args, **settings)
        if fails:
            raise self.error
        return found


def error_of(act, owner, name, error, nth=1, *, after=False):
    """What `act` raises when the n-th call of a method does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, Failing(getattr(owner, name), error, nth, after))
        with pytest.raises((ThaliError, type(error))) as raised:
            act()
    return raised.value


def n_rows(model):
    return len(model._outcome.stream.tasks[0].state.X)


PLACES = {
    "a filter's block of rows": (ParticleFilter, "absorb", (1, 2, 5)),
    "a filter's row": (GaussianParticles, "filter_rows", (1, 4)),
    "a move": (ParticleFilter, "_move", (1, 1)),
    "the posterior": (ParticleFilter, "posterior", (1,)),
    "the draws of a filter": (ParticleFilter, "draws", (2,)),
    "the finiteness": (fitting, "check_finite", (1,)),
    "the history": (ParticleFilter, "history", (1,)),
    "the adoption": (LatentFeatures, "_adopt", (1,)),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_error_anywhere_leaves_the_stream_as_it_was(place):
    owner, name, calls = PLACES[place]
    X = rows()
    undisturbed = estimator(prior=IBP()).partial_fit(X[:10]).partial_fit(X[10:17])
    wanted = [undisturbed]
    disturbed = estimator(prior=IBP()).partial_fit(X[:10])
    errors = (MemoryError("no room"), KeyboardInterrupt(), FloatingPointError("overflow"), RuntimeError("?"))
    for nth, after, error in zip(calls, (False, True, True), errors, strict=False):
        raised = error_of(lambda: disturbed.partial_fit(rows(seed=5)), owner, name, error, nth, after=after)
        assert "the 10 rows before it are kept" in "".join(raised.__notes__)
        assert n_rows(disturbed) == 10
    assert_same(disturbed.partial_fit(X[10:17]), *wanted)


def test_a_fit_that_fails_leaves_the_fit_before():
    X = rows()
    model, same = (estimator().partial_fit(X[:10]) for _ in range(2))
    with pytest.raises(InvalidDataError):
        model.fit(np.full((3, 2), np.inf))
    error_of(lambda: model.fit(X[:, :2]), ParticleFilter, "absorb", MemoryError("no room"), 3)
    assert_same(model, same)
    assert_same(model.partial_fit(X[10:]), same.partial_fit(X[10:]))


def test_the_first_batch_fails():
    X, model = rows(), estimator()
    error_of(lambda: model.partial_fit(X[:10]), ParticleFilter, "absorb", KeyboardInterrupt(), 2)
    assert not hasattr(model, "posterior_")
    assert_same(model.partial_fit(X), estimator().fit(X))


def test_rejected_batches(tmp_path):
    X = rows()
    model, same = (estimator().partial_fit(X[:10]) for _ in range(2))
    bad = X[10:14].copy()
    bad[2, 1] = np.inf
    for batch in (bad, X[:2, :3], X[:0], [["a"] * 4], np.full((2, 4), 1e151)):
        with pytest.raises(InvalidDataError):
            model.partial_fit(batch)
    model.save(tmp_path / "after.thali")
    assert_same(model.partial_fit(X[10:]), same.partial_fit(X[10:]))
    assert_same(thali.load(tmp_path / "after.thali").partial_fit(X[10:]), same)


def test_what_is_restored_is_the_state_before(monkeypatch):
    """A mutant: without the copy, filters that changed in place are not what they were."""
    X = rows()
    monkeypatch.setattr(Stream, "copied", lambda self: self)
    model, same = (estimator().partial_fit(X[:10]) for _ in range(2))
    error_of(lambda: model.partial_fit(rows(seed=5)), ParticleFilter, "posterior", MemoryError("no room"))
    with pytest.raises((AssertionError, IndexError, ThaliError)):  # other draws, or rows that do not fit their number
        assert_same(model.partial_fit(X[10:]), same.partial_fit(X[10:]))


def taken(model, batch):
    """Number of rows after a batch that may be refused."""
    with contextlib.suppress(ThaliError):
        model.partial_fit(batch)
    return n_rows(model)


@pytest.mark.parametrize("value", [1e149, -1e80, 1e6])
def test_a_row_far_out_is_named(value):
    X = rows()
    model = estimator().partial_fit(X[:15])
    odd = X[15:].copy()
    odd[4, 2] = value
    with pytest.raises(UserWarning, match=r"Row 4 of this batch \(row 19 of the stream\) has the value .* in dim 2"):
        model.partial_fit(odd)  # warnings are errors here, and come before anything is done
    assert_same(model.partial_fit(X[15:]), estimator().fit(X))
    with pytest.warns(UserWarning, match="times the range of the other rows"):
        n_rows = taken(model, odd)
    assert n_rows in (24, 33)
    assert np.isfinite(model.components_).all()
