"""A run that is stopped, by whatever, goes on to the bits of one that never was."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from thinned import thinned

import thali
from thali import IBP, BetaBernoulli, CollapsedGibbs, LatentFeatures, LinearGaussian
from thali.core.distributions import Beta, Gamma, NormalOffset, PerDim
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.errors import InvalidDataError, InvalidFileError, InvalidParameterError
from thali.observations.gaussian.data import GaussianData
from thali.rng import freeze, make_generator, thaw
from thali.running.shapes.chains import iterate
from thali.storage import archive as files
from thali.storage import checkpoint
from thali.storage.packing import pack, unpack

SHORT = CollapsedGibbs(n_warmup=6, n_draws=8, thin=2, start="spectral")  # 22 steps
N_STEPS = 22
MIXED = LinearGaussian(noise_var=PerDim(), offset=NormalOffset(), noise_floor=0.1)
FIXED = LinearGaussian(noise_var=np.linspace(0.2, 0.8, 5), feature_var=4.0, offset=np.full(5, 1 / 3))

CASES = {
    "complete": (None, None, 0.0),
    "missing": (None, None, 0.1),
    "per dim, offset, floor": (None, MIXED, 0.0),
    "per dim, offset, floor, missing": (None, MIXED, 0.1),
    "fixed offset, missing": (None, FIXED, 0.1),
    "finite": (BetaBernoulli(n_features=4), None, 0.0),
    "finite, missing": (BetaBernoulli(n_features=4), None, 0.1),
    "all learned": (IBP(mass=Gamma(2, 1), concentration=Gamma(1, 1), discount=Beta(1, 3)), None, 0.0),
}


def data(share=0.0, n_rows=40):
    rng = np.random.default_rng(7)
    X = rng.integers(2, size=(n_rows, 3)) @ (3 * rng.standard_normal((3, 5))) + 0.5 * rng.standard_normal((n_rows, 5))
    X[rng.random(X.shape) < share] = np.nan
    X[:, 0] = np.where(np.isnan(X).all(axis=1), 0.0, X[:, 0])
    return X


def estimator(case="complete", **settings):
    prior, observation, _ = CASES[case]
    return LatentFeatures(observation, prior, **{"inference": SHORT, "n_chains": 2, "random_state": 3} | settings)


def content(m, tmp_path):
    path = tmp_path / "content.thali"
    m.set_params(n_jobs=None, max_time=None).save(path)
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "fit.run"


@pytest.fixture
def often(monkeypatch):
    """A checkpoint after every step."""
    for name in ("EVERY", "_SHARE", "_COST"):
        monkeypatch.setattr(checkpoint, name, 0.0)


class Crash(BaseException):
    """The end of the world."""


@pytest.fixture
def crash(monkeypatch):
    """crash(m, ...) calls m(...) and ends it at the n-th step of all chains, as a power cut would."""
    step = CollapsedGibbs.step

    def run(n_steps, function, *arguments):
        done = []

        def failing(*args):
            done.append(1)
            if len(done) > n_steps:
                raise Crash
            return step(*args)

        with monkeypatch.context() as patch:
            patch.setattr(CollapsedGibbs, "step", failing)
            with pytest.raises(Crash):
                function(*arguments)

    return run


# ---- the same bits


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


# ---- the folder


def test_a_finished_run_stays_until_it_is_saved(folder, tmp_path):
    X = data()
    m = estimator(checkpoint=folder).fit(X)
    begin = time.monotonic()
    again = thali.resume(folder, X)
    assert time.monotonic() - begin < 5
    assert content(again, tmp_path) == content(estimator().fit(X), tmp_path)
    assert not folder.exists()
    content(m, tmp_path)  # finds nothing left to remove
    with pytest.raises(InvalidFileError, match=r"no run in .* to go on with"):
        thali.resume(folder, X)


def test_only_its_own_files_are_removed(folder, tmp_path):
    m = estimator(checkpoint=folder).fit(data())
    (folder / "notes.txt").write_text("mine")
    (folder / ".chain-0.3.thali.12ab.part").write_text("left by a crash")
    m.save(tmp_path / "a.thali")
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_an_older_run_is_not_overwritten(folder, often, crash, tmp_path):
    X = data()
    whole = content(estimator().fit(X), tmp_path)
    crash(10, estimator(checkpoint=folder).fit, X)
    with pytest.raises(InvalidFileError, match=r"holds a run already.*thali\.resume.*remove"):
        estimator(checkpoint=str(folder), random_state=4).fit(X)
    assert content(thali.resume(str(folder), X), tmp_path) == whole


def test_chains_of_a_run_that_was_half_removed_do_not_come_back(folder, often, crash, tmp_path):
    X = data()
    crash(30, estimator(checkpoint=folder, random_state=9).fit, X)
    (folder / "run.thali").unlink()
    crash(0, estimator(checkpoint=folder).fit, X)
    assert content(thali.resume(folder, X), tmp_path) == content(estimator().fit(X), tmp_path)


def test_nothing_of_the_folder_is_in_the_file(folder, tmp_path):
    m = estimator(checkpoint=folder).fit(data())
    m.save(tmp_path / "a.thali")
    assert m.checkpoint == folder  # as given
    assert thali.load(tmp_path / "a.thali").checkpoint is None


@pytest.mark.parametrize("value", [3, True, ["a"]])
def test_bad_checkpoint(value):
    with pytest.raises(InvalidParameterError, match=r"checkpoint must be .* Got"):
        estimator(checkpoint=value).fit(data())


def test_a_place_that_cannot_be_is_refused_before_any_work(tmp_path):
    endless = CollapsedGibbs(n_warmup=10**9)
    with pytest.raises(InvalidFileError, match="Cannot make the folder"):
        estimator(inference=endless, checkpoint=tmp_path / "no" / "where").fit(data())
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidFileError, match="Cannot make the folder"):
        estimator(inference=endless, checkpoint=tmp_path / "file").fit(data())


def test_parts_that_could_not_come_back_are_refused_before_any_work(folder):
    class Mine(CollapsedGibbs):
        pass

    with pytest.raises(InvalidParameterError, match=r"only parts that thali itself has.*Mine"):
        estimator(inference=Mine(n_warmup=10**9), checkpoint=folder).fit(data())
    assert not folder.exists()


def test_one_process_at_a_time(folder, often, crash, tmp_path):
    pytest.importorskip("fcntl")
    X = data()
    crash(20, estimator(checkpoint=folder).fit, X)
    run, _ = checkpoint.Checkpoint.take_up(folder)
    with run, pytest.raises(InvalidFileError, match="Another process is at the run"):
        thali.resume(folder, X)
    assert content(thali.resume(folder, X), tmp_path) == content(estimator().fit(X), tmp_path)


# ---- what does not fit, and what is damaged


@pytest.fixture
def stopped(folder, often, crash):
    crash(20, estimator(checkpoint=folder, n_jobs=1).fit, data())
    return folder


@pytest.mark.parametrize(
    "X", [data() + 1e-9, data()[:-1], data(0.1), data()[:, :4]], ids=["bits", "rows", "NaN", "dims"]
)
def test_other_data_are_refused(stopped, X):
    with pytest.raises(InvalidDataError, match=r"X must be the data of the run .* 40 rows x 5 dims .* Got .* same X"):
        thali.resume(stopped, X)


def test_names_of_dims_come_back(folder, often, crash, tmp_path):
    import pandas as pd

    frame = pd.DataFrame(data(), columns=list("abcde"))
    whole = content(estimator().fit(frame), tmp_path)
    crash(20, estimator(checkpoint=folder).fit, frame)
    m = thali.resume(folder, frame.to_numpy())
    assert list(m.feature_names_in_) == list("abcde")
    assert content(m, tmp_path) == whole


@pytest.mark.parametrize("settings", [{"n_chains": 3}, {"random_state": 1}, {"colour": "red"}])
def test_settings_that_would_change_the_draws_are_refused(stopped, settings):
    with pytest.raises(InvalidParameterError, match=f"resume takes.*Got {next(iter(settings))}"):
        thali.resume(stopped, data(), **settings)


def test_settings_are_checked(stopped):
    with pytest.raises(InvalidParameterError, match="max_time"):
        thali.resume(stopped, data(), max_time=-1)


def test_what_is_not_there(tmp_path):
    with pytest.raises(InvalidFileError, match="no run in"):
        thali.resume(tmp_path, data())
    with pytest.raises(InvalidFileError, match="no run in"):
        thali.resume(tmp_path / "nowhere", data())


@pytest.mark.parametrize("name", ["run.thali", "chain-0.state.thali", "chain-0.0.thali", "chain-0.4.thali"])
def test_damaged_files(stopped, name):
    path = stopped / name
    whole = path.read_bytes()
    for damage in (whole[: len(whole) // 2], b"", whole[:-1], b"rubbish"):
        path.write_bytes(damage)
        with pytest.raises(InvalidFileError, match=name):
            thali.resume(stopped, data())


@pytest.mark.parametrize("name", ["chain-0.0.thali", "chain-0.4.thali"])
def test_lost_files(stopped, name):
    (stopped / name).unlink()
    with pytest.raises(InvalidFileError, match=name):
        thali.resume(stopped, data())


def test_files_in_the_wrong_place(stopped):
    """Whole files, but not those that belong there."""
    for source, target in (("run", "chain-0.state"), ("chain-0.state", "run"), ("chain-0.0", "chain-0.state")):
        kept = (stopped / f"{target}.thali").read_bytes()
        shutil.copy(stopped / f"{source}.thali", stopped / f"{target}.thali")
        with pytest.raises(InvalidFileError, match=target):
            thali.resume(stopped, data())
        (stopped / f"{target}.thali").write_bytes(kept)
    n_files = len(list(stopped.glob("chain-0.*.thali"))) - 1
    shutil.copy(stopped / f"chain-0.{n_files - 1}.thali", stopped / "chain-0.0.thali")
    with pytest.raises(InvalidFileError, match="chain-0"):
        thali.resume(stopped, data())


def test_a_chain_without_its_state_begins_anew(stopped, tmp_path):
    (stopped / "chain-0.state.thali").unlink()
    assert content(thali.resume(stopped, data()), tmp_path) == content(estimator().fit(data()), tmp_path)


# ---- full disks


@pytest.fixture
def full_disk(monkeypatch):
    """full_disk(n): the next n files of chains cannot be written."""
    write, left = files.write, [0]

    def writing(path, meta, arrays):
        if "chain-" in str(path) and left[0] > 0:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, meta, arrays)

    monkeypatch.setattr(files, "write", writing)
    return lambda n: left.__setitem__(0, n)


def test_a_full_disk_does_not_end_a_run(folder, often, full_disk, tmp_path):
    X = data()
    full_disk(10**9)
    with pytest.warns(UserWarning, match=r"No checkpoint could be written: .*No space left.* goes on") as caught:
        m = estimator(checkpoint=folder).fit(X)
    assert len([w for w in caught if w.category is UserWarning]) == 1
    assert m.stopped_by_ is None
    full_disk(0)
    assert content(m, tmp_path) == content(estimator().fit(X), tmp_path)


@pytest.mark.parametrize("n", thinned(range(1, 8), 2, 5))
@pytest.mark.filterwarnings("ignore:No checkpoint")
def test_what_could_not_be_written_is_made_up_for(n, folder, often, full_disk, crash, tmp_path):
    X = data()
    full_disk(n)
    crash(20, estimator(checkpoint=folder).fit, X)
    assert content(thali.resume(folder, X), tmp_path) == content(estimator().fit(X), tmp_path)


@pytest.mark.filterwarnings("ignore:No checkpoint")
def test_older_checkpoints_outlive_a_full_disk(stopped, full_disk, crash, tmp_path):
    full_disk(10**9)
    crash(10, thali.resume, stopped, data())
    full_disk(0)
    assert content(thali.resume(stopped, data()), tmp_path) == content(estimator().fit(data()), tmp_path)


def test_a_fit_that_cannot_be_saved_says_where_the_draws_are(folder, tmp_path, monkeypatch):
    X = data()
    m = estimator(checkpoint=folder).fit(X)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(InvalidFileError, match=r"No space left.*it is in the checkpoint .*fit\.run"):
            m.save(tmp_path / "a.thali")
    assert content(thali.resume(folder, X), tmp_path) == content(estimator().fit(X), tmp_path)


def test_a_real_limit_on_the_size_of_files(tmp_path):
    """The operating system refuses files beyond 20 kB: the run warns and ends well, and the fit cannot be saved."""
    script = textwrap.dedent("""
        import numpy as np, resource, thali
        from thali import CollapsedGibbs, LatentFeatures
        from thali.storage import checkpoint
        checkpoint.EVERY = checkpoint._SHARE = checkpoint._COST = 0.05
        X = np.random.default_rng(0).standard_normal((400, 30))
        inference = CollapsedGibbs(n_warmup=3, n_draws=300, start="spectral")
        m = LatentFeatures(inference=inference, n_chains=1, random_state=0, checkpoint="fit.run")
        m.set_params(prior__mass=5.0).fit(X[:30])
        m.save("small.thali")
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        m.fit(X)
        m.save("fit.thali")
    """)
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert result.stderr.count("No checkpoint could be written") == 1, result.stderr
    assert "File too large" in result.stderr
    assert "Nothing is lost" not in result.stderr  # not all that was drawn could be kept
    assert re.search(r"The checkpoint fit\.run has \d+ of 300 draws", result.stderr)
    assert result.returncode == 1
    assert {path.name for path in tmp_path.iterdir()} == {"small.thali", "fit.run"}


def vanish(folder):
    shutil.rmtree(folder)


def lock(folder):
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    folder.chmod(0o500)


@pytest.mark.parametrize("harm", [vanish, lock])
def test_a_folder_that_can_no_longer_be_written(harm, folder, often, tmp_path, monkeypatch):
    X = data()
    whole = content(estimator().fit(X), tmp_path)
    step, done = CollapsedGibbs.step, []

    def harmful(*arguments):
        done.append(1)
        if len(done) == 10:
            harm(folder)
        return step(*arguments)

    monkeypatch.setattr(CollapsedGibbs, "step", harmful)
    with pytest.warns(UserWarning, match="No checkpoint could be written") as caught:
        m = estimator(checkpoint=folder, n_jobs=1).fit(X)
    assert len([w for w in caught if w.category is UserWarning]) == 1
    assert content(m, tmp_path) == whole


def test_time_between_checkpoints(folder, crash):
    """None is due in the first seconds: nothing but the beginning is there."""
    crash(20, estimator(checkpoint=folder, n_chains=1).fit, data())
    assert sorted(path.name for path in folder.iterdir()) == ["run.lock", "run.thali"]
