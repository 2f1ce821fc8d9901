"""The folder of a run: what is in it and when, what is left alone, and what is refused before any work."""

import time

import pytest
from checkpointed import content, data, estimator

import thali
from thali import CollapsedGibbs
from thali.errors import InvalidFileError, InvalidParameterError
from thali.storage import checkpoint


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


def test_time_between_checkpoints(folder, crash):
    """None is due in the first seconds: nothing but the beginning is there."""
    crash(20, estimator(checkpoint=folder, n_chains=1).fit, data())
    assert sorted(path.name for path in folder.iterdir()) == ["run.lock", "run.thali"]
