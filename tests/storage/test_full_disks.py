"""A checkpoint that cannot be written ends no run, and loses nothing that was kept before."""

import errno
import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
from checkpointed import content, data, estimator
from thinned import thinned

import thali
from thali import CollapsedGibbs
from thali.errors import InvalidFileError
from thali.storage import archive as files


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
