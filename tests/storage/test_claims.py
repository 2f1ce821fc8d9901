"""One process at a time in the folder of a run; and what is said of files is true when it is said."""

import errno
import multiprocessing
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thali
from thali import CollapsedGibbs, LatentFeatures
from thali.errors import InvalidFileError, InvalidParameterError
from thali.files.whole_files import whole_file
from thali.storage import archive as files
from thali.storage import checkpoint, claims
from thali.storage.claims import Claim, holds_run, sweep

SHORT = CollapsedGibbs(n_warmup=1, n_draws=4, start="spectral")
ENDLESS = CollapsedGibbs(n_warmup=0, n_draws=10**9, start="spectral")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def data() -> np.ndarray:
    rng = np.random.default_rng(7)
    return rng.integers(2, size=(12, 2)) @ (3 * rng.standard_normal((2, 4))) + 0.5 * rng.standard_normal((12, 4))


def estimator(**settings: Any) -> LatentFeatures:
    common = {"inference": SHORT, "n_chains": 2, "n_jobs": 1, "random_state": 3, "verbose": False}
    return LatentFeatures(**common | settings)


def content(m: LatentFeatures, folder: Path) -> bytes:
    m.set_params(max_time=None).save(folder / "content.thali")
    return (folder / "content.thali").read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "fit.run"


@pytest.fixture
def stopped(folder: Path) -> Path:
    """A run that has made one draw of each chain."""
    estimator(checkpoint=folder, max_time=1e-9).fit(data())
    return folder


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- processes that begin at the same moment


def at_once(*works: Callable[[], object]) -> list[str]:
    """What becomes of each, in a process of its own."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(len(works)), context.SimpleQueue()

    def do(number: int, work: Callable[[], object]) -> None:
        barrier.wait()
        try:
            work()
            results.put((number, "done"))
        except BaseException as error:
            results.put((number, f"{type(error).__name__}: {error}"))

    processes = [context.Process(target=do, args=(i, work)) for i, work in enumerate(works)]
    for process in processes:
        process.start()
    found = dict(results.get() for _ in works)
    for process in processes:
        process.join()
    return [found[i] for i in range(len(works))]


def one_is_refused(found: list[str]) -> int:
    """The number of the one that went on."""
    assert found.count("done") == 1, found
    assert any("Another process is at the run" in text or "holds a run already" in text for text in found), found
    return found.index("done")


def check_two_fits(tmp_path: Path) -> None:
    run = tmp_path / "fit.run"
    wholes = [content(estimator(random_state=seed).fit(data()), tmp_path) for seed in (0, 1)]
    first = one_is_refused(
        at_once(*(lambda s=seed: estimator(random_state=s, checkpoint=run).fit(data()) for seed in (0, 1)))
    )
    assert content(thali.resume(run, data()), tmp_path) == wholes[first]
    assert not run.exists()


@needs_fork
@forks
def test_two_fits_at_the_same_moment(tmp_path: Path) -> None:
    check_two_fits(tmp_path)


@pytest.mark.slow
@needs_fork
@forks
@pytest.mark.parametrize("attempt", range(20))
def test_two_fits_at_the_same_moment_again(attempt: int, tmp_path: Path) -> None:
    check_two_fits(tmp_path)


@pytest.mark.slow
@needs_fork
@forks
@pytest.mark.parametrize("attempt", range(20))
@pytest.mark.parametrize("other", ["resume", "overwrite"])
def test_a_resume_and_another_at_the_same_moment(attempt: int, other: str, stopped: Path, tmp_path: Path) -> None:
    """A resumed run ends with its folder; what comes after it finds none, or begins anew."""
    wholes = [content(estimator(random_state=seed).fit(data()), tmp_path) for seed in (3, 4)]

    def resume() -> None:
        thali.resume(stopped, data(), max_time=None)

    def overwrite() -> None:
        estimator(random_state=4, checkpoint=Claim(stopped, replaces=True)).fit(data())

    found = at_once(resume, resume if other == "resume" else overwrite)
    assert "done" in found
    assert all(text == "done" or "Another process is at the run" in text for text in found), found
    last = 1 if other == "overwrite" and found[1] == "done" else 0
    assert content(thali.resume(stopped, data(), max_time=None), tmp_path) in wholes[: last + 1]


@needs_fork
@forks
def test_a_live_run_is_left_alone(folder: Path, tmp_path: Path) -> None:
    """By another fit, by one that may replace it, by resume and by those who clean up."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=lambda: estimator(inference=ENDLESS, checkpoint=folder).fit(data()))
    process.start()
    try:
        while not holds_run(folder):
            assert process.is_alive()
        before = (folder / "run.thali").read_bytes()
        for attempt in (
            lambda: estimator(checkpoint=folder).fit(data()),
            lambda: estimator(checkpoint=Claim(folder, replaces=True)).fit(data()),
            lambda: thali.resume(folder, data()),
        ):
            with pytest.raises(InvalidFileError, match="Another process is at the run"):
                attempt()
        sweep(folder)
        assert (folder / "run.thali").read_bytes() == before
    finally:
        process.kill()
        process.join()
    m = estimator(checkpoint=Claim(folder, replaces=True)).fit(data())  # now that it is dead
    assert content(m, tmp_path) == content(estimator().fit(data()), tmp_path)
    assert not folder.exists()


# ---- who holds a folder


def test_a_claim_can_be_nested_and_copied(folder: Path) -> None:
    pytest.importorskip("fcntl")
    claim = Claim(folder)
    with claim.held(make=True):
        with claim.held(make=False):
            assert folder.exists()
        copy = pickle.loads(pickle.dumps(claim))
        with pytest.raises(InvalidFileError, match="Another process"), copy.held(make=True):
            pass
    assert not folder.exists()  # nothing was begun


def test_who_finds_a_lock_that_was_removed_begins_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder ends between the opening of the file and the lock."""
    hold, left = claims.hold, [1]

    def late(handle: Any) -> bool | None:
        if left:
            left.pop()
            claims.clear(folder)
        return hold(handle)

    monkeypatch.setattr(claims, "hold", late)
    with Claim(folder).held(make=True):
        assert (folder / "run.lock").exists()


def test_the_run_of_another_is_not_removed(folder: Path, tmp_path: Path) -> None:
    """A fit that is saved late, when its folder holds another run, leaves that alone."""
    first = estimator(checkpoint=folder).fit(data())
    claims.clear(folder)
    estimator(checkpoint=folder, random_state=9).fit(data())
    content(first, tmp_path)
    assert holds_run(folder)
    assert content(thali.resume(folder, data()), tmp_path) == content(estimator(random_state=9).fit(data()), tmp_path)


def test_an_older_run_stays_until_the_new_one_is_whole(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InvalidParameterError("no start")

    before = everything(stopped)
    claim = Claim(stopped, replaces=True)
    with pytest.raises(ValueError, match="heldout"):
        estimator(checkpoint=claim).fit(data(), heldout=data()[:2])
    with monkeypatch.context() as patch:
        patch.setattr(CollapsedGibbs, "init", fail)  # the start of its first chain
        with pytest.raises(InvalidParameterError, match="no start"):
            estimator(checkpoint=claim).fit(data())
    assert everything(stopped) == before
    assert content(thali.resume(stopped, data(), max_time=None), tmp_path) == content(estimator().fit(data()), tmp_path)


def test_litter_is_swept(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (folder / "chain-0.0.thali").write_text("left by a removal that was cut short")
    (folder / "run.lock").touch()
    with pytest.raises(InvalidFileError, match="no run"):
        thali.resume(folder, data())
    assert not folder.exists()
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(InvalidFileError, match="no run"):
        thali.resume(tmp_path, data())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_leftovers_of_dead_writers_only(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    path = tmp_path / "a.thali"
    (tmp_path / ".a.thali.0123abcd.part").write_text("its writer was killed")
    (tmp_path / ".b.thali.0123abcd.part").write_text("of another file")
    with whole_file(path) as first:
        first.write(b"first")
        with whole_file(path) as second:  # which must not take the other for a leftover
            second.write(b"second")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".b.thali.0123abcd.part", "a.thali"]
    assert path.read_bytes() == b"first"


# ---- what is said when something cannot be written


def failing(monkeypatch: pytest.MonkeyPatch, number: int, where: Callable[[str], bool]) -> None:
    """Files of these names, or folders, cannot be put on the disk."""
    fsync = os.fsync

    def refusing(handle: int) -> None:
        if where(Path(os.readlink(f"/proc/self/fd/{handle}")).name):
            raise OSError(number, os.strerror(number))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refusing)


proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs to know which file a handle is of")


@proc
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_a_fit_that_cannot_be_saved(number: int, folder: Path, tmp_path: Path, monkeypatch) -> None:
    m = estimator(checkpoint=folder).fit(data())
    (tmp_path / "a.thali").write_text("older")
    with monkeypatch.context() as patch:
        failing(patch, number, lambda name: "a.thali" in name)
        with pytest.raises(InvalidFileError) as caught:
            m.save(tmp_path / "a.thali")
    said = str(caught.value)
    assert f"{os.strerror(number)}. Nothing was changed. " in said
    assert ("Free some space" in said) == (number == errno.ENOSPC)
    assert said.endswith(f"Nothing is lost: it is in the checkpoint {folder}.")
    assert (tmp_path / "a.thali").read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.thali", "fit.run"]
    assert content(thali.resume(folder, data()), tmp_path) == content(estimator().fit(data()), tmp_path)


@proc
def test_what_is_not_in_the_checkpoint_is_not_said_to_be(folder: Path, tmp_path: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        failing(patch, errno.ENOSPC, lambda name: "chain-1" in name or "a.thali" in name)
        with pytest.warns(UserWarning, match="No checkpoint could be written"):
            m = estimator(checkpoint=folder).fit(data())
        with pytest.raises(InvalidFileError, match=r"The checkpoint .*fit\.run has 4 of 8 draws\. Save .* elsewhere"):
            m.save(tmp_path / "a.thali")
        claims.clear(folder)
        with pytest.raises(InvalidFileError, match=r"checkpoint is gone, too: .* in the memory of this process alone"):
            m.save(tmp_path / "a.thali")
    assert content(m, tmp_path) == content(estimator().fit(data()), tmp_path)


@proc
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_run_that_cannot_begin_leaves_nothing(number: int, folder: Path, tmp_path: Path, monkeypatch) -> None:
    failing(monkeypatch, number, lambda name: "run.thali" in name)
    with pytest.raises(InvalidFileError, match=f"Cannot begin a run in .*{os.strerror(number)}"):
        estimator(inference=ENDLESS, checkpoint=folder).fit(data())
    assert list(tmp_path.iterdir()) == []


@proc
def test_a_run_that_cannot_begin_leaves_an_older_one(stopped: Path, monkeypatch) -> None:
    before = everything(stopped)
    for where in ("run.thali", "replaced.thali", "fit.run"):
        with monkeypatch.context() as patch:
            failing(patch, errno.EIO, lambda name, w=where: w in name)
            with pytest.raises(InvalidFileError, match="Cannot begin a run"):
                estimator(inference=ENDLESS, checkpoint=Claim(stopped, replaces=True)).fit(data())
        assert everything(stopped) == before


class Crash(BaseException):
    """The end of the world."""


@pytest.mark.filterwarnings("ignore:No checkpoint could be written")
def test_a_state_whose_name_the_disk_does_not_confirm(folder: Path, tmp_path: Path, monkeypatch) -> None:
    """It is there all the same. A crash after the next file of draws, before the next state, must not mix the two."""
    whole = content(estimator().fit(data()), tmp_path)
    for name in ("EVERY", "_SHARE", "_COST"):
        monkeypatch.setattr(checkpoint, name, 0.0)
    fsync, replace, put, refused = os.fsync, os.replace, [], []

    def replacing(source: Any, target: Any) -> None:
        replace(source, target)
        put.append(Path(target).name)
        if put.count("chain-0.state.thali") == 2 and put[-1].startswith("chain-0.") and "state" not in put[-1]:
            raise Crash

    def refusing(handle: int) -> None:
        if put[-1:] == ["chain-0.state.thali"] and put.count("chain-0.state.thali") == 2 and not refused:
            refused.append(1)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replacing)
        patch.setattr(os, "fsync", refusing)
        with pytest.raises(Crash):
            estimator(checkpoint=folder, n_chains=2).fit(data())
    assert content(thali.resume(folder, data()), tmp_path) == whole


# ---- other versions


def test_a_run_of_another_version_says_so(stopped: Path) -> None:
    meta, arrays = files.read(stopped / "run.thali")
    files.write(stopped / "run.thali", meta | {"thali": "0.0.7"}, arrays)
    with pytest.warns(UserWarning, match=rf"begun with thali 0\.0\.7 \(now {meta['thali']}\)\. Its draws may differ"):
        thali.resume(stopped, data())
    others = meta["versions"] | {"numpy": "1.99", "python": "2.7"}
    files.write(stopped / "run.thali", meta | {"versions": others}, arrays)
    with pytest.warns(UserWarning, match=r"begun with numpy 1\.99 \(now [0-9.]+\)\. "):
        thali.resume(stopped, data())
