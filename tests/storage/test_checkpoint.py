"""A run that is stopped, by whatever, goes on to the bits of one that never was."""

import os
import signal
import time

import numpy as np
import pytest
from checkpointed import CASES, N_STEPS, SHORT, content, data, estimator
from thinned import thinned

import thali
from thali import IBP, CollapsedGibbs, LinearGaussian
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.observations.gaussian.data import GaussianData
from thali.rng import freeze, make_generator, thaw
from thali.running.shapes.chains import iterate
from thali.storage import checkpoint
from thali.storage.packing import pack, unpack


@pytest.mark.parametrize("case", thinned(CASES, "finite, missing", "per dim, offset, floor"))
def test_goes_on_to_the_same_bits(case, folder, often, crash, tmp_path):
    X = data(CASES[case][2])
    whole = content(estimator(case).fit(X), tmp_path)
    for n_steps in (0, 5, 13, 2 * N_STEPS - 1):
        crash(n_steps, estimator(case, checkpoint=folder, n_jobs=1).fit, X)
        m = thali.resume(folder, X)
        assert m.stopped_by_ is None
        assert content(m, tmp_path) == whole, n_steps
        assert not folder.exists()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_goes_on_after_many_crashes(n_jobs, folder, often, crash, tmp_path):
    X = data(0.1)
    whole = content(estimator("fixed offset, missing").fit(X), tmp_path)
    crash(3, estimator("fixed offset, missing", checkpoint=folder, n_jobs=n_jobs).fit, X)
    for _ in range(8):
        crash(3, thali.resume, folder, X)
    assert content(thali.resume(folder, X, n_jobs=3 - n_jobs), tmp_path) == whole


def test_goes_on_when_checkpoints_are_rare(folder, crash, tmp_path, monkeypatch):
    """What was sampled since the last one is sampled again."""
    X = data()
    whole = content(estimator().fit(X), tmp_path)
    monkeypatch.setattr(checkpoint, "EVERY", 0.004)
    crash(30, estimator(checkpoint=folder).fit, X)
    assert content(thali.resume(folder, X), tmp_path) == whole


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("at", thinned([3, 15, 40], 15))
def test_a_signal_leaves_the_very_last_state(which, at, folder, tmp_path, monkeypatch):
    """No checkpoint is due, so all that is there was written at the end; then nothing is sampled twice."""
    X = data(0.1)
    whole = content(estimator("missing").fit(X), tmp_path)
    step, done = CollapsedGibbs.step, []

    def pressing(*arguments):
        done.append(1)
        if len(done) == at:
            os.kill(os.getpid(), which)
            time.sleep(0.3)
        return step(*arguments)

    monkeypatch.setattr(CollapsedGibbs, "step", pressing)
    m = estimator("missing", checkpoint=folder, n_jobs=1)
    if at <= 6:
        with pytest.raises(KeyboardInterrupt, match="before the first draw"):
            m.fit(X)
    else:
        with pytest.warns(UserWarning, match="Interrupted"):
            m.fit(X)
        content(m, tmp_path)  # a partial fit can be saved, and leaves the run where it is
    m = thali.resume(folder, X)
    assert len(done) == 2 * N_STEPS
    assert not m.interrupted_
    assert content(m, tmp_path) == whole


def test_max_time_and_again(folder, tmp_path):
    X = data()
    inference = SHORT.replace(n_draws=200)
    whole = content(estimator(inference=inference).fit(X), tmp_path)
    m = estimator(inference=inference, checkpoint=folder, max_time=1e-9).fit(X)
    assert (m.stopped_by_, m.posterior_.n_draws) == ("max_time", 1)
    assert thali.resume(folder, X).posterior_.n_draws == 1  # as before, no time at all
    n_times = 0
    while m.stopped_by_ == "max_time":
        before = m.posterior_.n_chains * m.posterior_.n_draws
        m = thali.resume(folder, X, n_jobs=1, max_time=0.1)
        assert m.posterior_.n_chains * m.posterior_.n_draws >= before
        m.save(tmp_path / "so-far.thali")
        n_times += 1
    assert n_times > 1
    assert content(m, tmp_path) == whole


def test_target_ess_goes_on_to_the_same_length(folder, often, crash, tmp_path):
    X = data()
    inference = SHORT.replace(n_draws=10_000, thin=1)
    whole = estimator(inference=inference, target_ess=20.0).fit(X)
    assert whole.stopped_by_ == "target_ess"
    crash(17, estimator(inference=inference, target_ess=20.0, checkpoint=folder).fit, X)
    m = thali.resume(folder, X)
    assert content(m, tmp_path) == content(whole, tmp_path)
    assert not folder.exists()


@pytest.mark.parametrize("bits", thinned(["PCG64", "MT19937", "Philox", "SFC64"], "MT19937"))
def test_any_generator(bits, folder, often, crash, tmp_path):
    def generator():
        return np.random.Generator(getattr(np.random, bits)(5))

    X = data()
    whole = content(estimator(random_state=generator()).fit(X), tmp_path)
    crash(20, estimator(random_state=generator(), checkpoint=folder).fit, X)
    assert content(thali.resume(folder, X), tmp_path) == whole


def test_a_generator_draws_and_spawns_as_before(rng):
    rng.random(3, dtype=np.float32)  # half of a 64-bit number is left over
    rng.spawn(2)
    other = thaw(freeze(rng))
    assert np.array_equal(rng.random(5, dtype=np.float32), other.random(5, dtype=np.float32))
    assert rng.spawn(1)[0].random() == other.spawn(1)[0].random()


# ---- a state is all that a chain needs: no number hides in the working form of the data


def through(thing):
    arrays = {}
    return unpack(pack([thing], "thing", arrays), arrays, 1)[0]


def energies(case, every):
    """Of a chain that is packed and unpacked after every so many steps."""
    prior, observation, share = CASES[case]
    X = data(share)
    model = Model(prior or IBP(), (observation or LinearGaussian()).adapt(X))
    rng, state, found = make_generator(1), None, []
    for _ in range(60 // every):
        work = model.observation.engine(ChainRows).prepare(X)
        steps = iterate(rng, SHORT, model, work, len(X), state=state)
        for _ in range(every):
            state, info = next(steps)
            found.append((info.log_joint, info.drift, SHORT.record(state, info, work).free_energy))
        rng, state = thaw(through(freeze(rng))), through(state)
    return found


@pytest.mark.parametrize("case", CASES)
def test_no_number_hides_outside_the_state(case):
    assert energies(case, 60) == energies(case, 5)


def test_a_number_that_hides_is_found(monkeypatch):
    """A mutant: products that a sweep has updated are used again, where a restored chain computes them anew."""
    take_filled = GaussianData.take_filled

    def holding(self, offset, scale, filled):
        values = take_filled(self, offset, scale, filled)
        self._held = (offset, scale, values)
        return values

    monkeypatch.setattr(GaussianData, "take_filled", holding)
    assert energies("fixed offset, missing", 60) != energies("fixed offset, missing", 5)
