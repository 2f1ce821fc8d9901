"""Runs that are written after every step, and end where a test wants."""

import pytest
from checkpointed import Crash, data, estimator

from thali import CollapsedGibbs
from thali.storage import checkpoint


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "fit.run"


@pytest.fixture
def often(monkeypatch):
    """A checkpoint after every step."""
    for name in ("EVERY", "_SHARE", "_COST"):
        monkeypatch.setattr(checkpoint, name, 0.0)


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


@pytest.fixture
def stopped(folder, often, crash):
    crash(20, estimator(checkpoint=folder, n_jobs=1).fit, data())
    return folder
