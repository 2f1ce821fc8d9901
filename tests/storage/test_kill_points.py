"""Killed before or after any call that changes the disk, a run ends in the same file, with nothing beside it."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import thali
from thali import (
    CollapsedGibbs,
    FactorAnalysis,
    Gibbs,
    LatentFeatures,
    MeanField,
    ParticleFilter,
    PoissonGamma,
    SparseFactorAnalysis,
    StochasticMeanField,
)
from thali.errors import InvalidFileError
from thali.storage import checkpoint
from thali.storage.claims import Claim, holds_run

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

CHANGES = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir")
SHORT: dict[str, Any] = {"n_warmup": 1, "n_draws": 2, "start": "spectral"}
Point = tuple[str, int]  # before or after, and which of the calls


def real() -> np.ndarray:
    rng = np.random.default_rng(7)
    X = rng.integers(2, size=(12, 2)) @ (3 * rng.standard_normal((2, 4))) + 0.5 * rng.standard_normal((12, 4))
    X[3, 1] = np.nan
    return X


def counts() -> np.ndarray:
    rng = np.random.default_rng(7)
    return rng.poisson(rng.integers(2, size=(12, 2)) @ rng.gamma(1.0, 5.0, (2, 4))).astype(float)


MODELS: dict[str, tuple[Any, Any, Callable[[], Any]]] = {
    "Gaussian": (None, CollapsedGibbs(**SHORT), real),
    "weighted": (FactorAnalysis(noise_floor=0.1), Gibbs(**SHORT), real),
    "counts": (PoissonGamma(), Gibbs(**SHORT), counts),
    "sparse factors": (SparseFactorAnalysis(), Gibbs(**SHORT), real),
    "sparse counts": (PoissonGamma(), Gibbs(**SHORT), lambda: csr_array(counts())),
    "restarts": (None, MeanField(max_iter=3, n_restarts=2, truncation=3), real),
    "filters": (None, ParticleFilter(n_particles=4), real),
    "blocks": (None, StochasticMeanField(n_epochs=2, batch_size=6, n_restarts=1, truncation=3), real),
}


class Case:
    """A run in a folder of its own, the file that it is to end in, and what that should hold."""

    def __init__(self, name: str, folder: Path, seed: int = 3) -> None:
        self.observation, self.inference, make = MODELS[name]
        self.X, self.seed = make(), seed
        self.run, self.output = folder / "fit.run", folder / "fit.thali"

    def estimator(self, **settings: Any) -> LatentFeatures:
        common = {"inference": self.inference, "n_chains": 2, "n_jobs": 1, "random_state": self.seed, "verbose": False}
        return LatentFeatures(self.observation, **common | settings)

    def fit(self) -> None:
        self.estimator(checkpoint=self.run).fit(self.X).save(self.output)

    def resume(self) -> None:
        thali.resume(self.run, self.X).save(self.output)

    def whole(self) -> bytes:
        """As of a run that nothing happened to."""
        path = self.output.with_name("whole.thali")
        self.estimator().fit(self.X).save(path)
        content = path.read_bytes()
        path.unlink()
        return content

    def recover(self) -> None:
        """What one would do after a crash."""
        if holds_run(self.run):
            self.resume()
            return
        with pytest.raises(InvalidFileError, match="no run"):
            self.resume()  # which cleans up
        if not self.output.exists():
            self.fit()

    def check(self, whole: bytes) -> None:
        self.recover()
        assert self.output.read_bytes() == whole
        thali.load(self.output)
        assert [path.name for path in self.output.parent.iterdir()] == [self.output.name]
        self.output.unlink()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after every step."""
    for name in ("EVERY", "_SHARE", "_COST"):
        monkeypatch.setattr(checkpoint, name, 0.0)


def in_child(work: Callable[[], object], point: Point | None = None) -> int:
    """Do it in another process, which kills itself at the point; the number of calls if it came to its end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            done = _watched(point)
            work()
            os.write(writer, str(len(done)).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (0 if said else -signal.SIGKILL), f"the child ended with {status}"
    return int(said or -1)


def _watched(point: Point | None) -> list[str]:
    """Count the calls from now on, and die at the point."""
    done: list[str] = []

    def watched(name: str) -> Callable[..., Any]:
        call = getattr(os, name)

        def calling(*arguments: Any, **options: Any) -> Any:
            done.append(name)
            here = len(done)
            if point == ("before", here):
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **options)
            if point == ("after", here):
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return calling

    for name in CHANGES:
        setattr(os, name, watched(name))
    return done


def points(n_calls: int, n_some: int | None = None) -> Iterator[Point]:
    """All of them, or some: the first, the last, and others in between."""
    every = [(when, i) for i in range(1, n_calls + 1) for when in ("before", "after")]
    chosen = range(len(every)) if n_some is None else np.linspace(0, len(every) - 1, n_some).astype(int)
    yield from (every[i] for i in chosen)


def check_points(name: str, tmp_path: Path, n_some: int | None = None) -> None:
    case = Case(name, tmp_path)
    whole = case.whole()
    n_calls = in_child(case.fit)
    case.check(whole)
    for point in points(n_calls, n_some):
        in_child(case.fit, point)
        case.check(whole)


@pytest.mark.parametrize("name", ["counts", "restarts", "filters", "blocks"])
def test_some_points_of_a_run(name: str, tmp_path: Path) -> None:
    check_points(name, tmp_path, 4)


def test_the_end_of_a_run(tmp_path: Path) -> None:
    """The last calls are the save and the removal of the folder."""
    case = Case("Gaussian", tmp_path)
    whole = case.whole()
    n_calls = in_child(case.fit)
    case.output.unlink()
    for i in range(n_calls - 9, n_calls, 3):
        in_child(case.fit, ("before", i))
        case.check(whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_point_of_a_run(name: str, tmp_path: Path) -> None:
    check_points(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_point_of_a_run_that_was_killed_before(name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path)
    whole = case.whole()
    half = ("after", in_child(case.fit) // 2)
    case.output.unlink()
    in_child(case.fit, half)
    n_calls = in_child(case.resume)
    case.check(whole)
    for point in points(n_calls):
        in_child(case.fit, half)
        in_child(case.resume, point)
        case.check(whole)


def replaced_at(older: Case, newer: Case, half: Point, point: Point | None) -> int:
    """A run in the middle gives way to another, which is killed at the point; then go on with whichever is there."""
    in_child(older.fit, half)

    def fit() -> None:
        claim = Claim(newer.run, replaces=True)
        newer.estimator(checkpoint=claim).fit(newer.X).save(newer.output)

    return in_child(fit, point)


def check_replacements(tmp_path: Path, n_some: int | None) -> None:
    """At any point there is a run to go on with, or the file: the older until the newer is whole, never a mix."""
    older, newer = Case("Gaussian", tmp_path, seed=3), Case("Gaussian", tmp_path, seed=4)
    wholes = [older.whole(), newer.whole()]
    half = ("after", in_child(older.fit) // 2)
    older.output.unlink()
    n_calls = replaced_at(older, newer, half, None)
    newer.check(wholes[1])
    ends = []
    for point in points(n_calls, n_some):
        if replaced_at(older, newer, half, point) >= 0:  # a call that fails (the folder is there) has no "after"
            newer.check(wholes[1])
            continue
        assert holds_run(newer.run) or newer.output.exists(), point
        newer.recover()
        ends.append(wholes.index(newer.output.read_bytes()))
        newer.check(wholes[ends[-1]])
    assert ends == sorted(ends)
    assert set(ends) == {0, 1}


def test_a_run_that_replaces_another(tmp_path: Path) -> None:
    check_replacements(tmp_path, 4)


@pytest.mark.slow
def test_every_point_of_a_run_that_replaces_another(tmp_path: Path) -> None:
    check_replacements(tmp_path, None)


# ---- a power cut: what is not on the disk may be lost


def test_nothing_is_deleted_before_what_replaces_it_is_on_the_disk(tmp_path: Path, monkeypatch) -> None:
    case, done = Case("Gaussian", tmp_path), []

    def name_of(target: Any) -> str:
        return Path(os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target).name

    def watched(name: str) -> Callable[..., Any]:
        call = getattr(os, name)

        def calling(*arguments: Any) -> Any:
            done.append((name, name_of(arguments[-1])))
            return call(*arguments)

        return calling

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs to know which file a handle is of")
    for name in ("fsync", "replace", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, watched(name))
    case.fit()
    for i, (name, target) in enumerate(done):
        if name == "replace":
            assert done[i - 1][0] == "fsync"
            assert target in done[i - 1][1], "the content is on the disk before the name is"
            assert done[i + 1] == ("fsync", tmp_path.name if target == "fit.thali" else "fit.run")
    saved = done.index(("replace", "fit.thali"))
    gone = done.index(("unlink", "run.thali"))
    assert saved + 1 < gone
    assert done[gone + 1] == ("fsync", "fit.run"), "the run is gone for good before its parts are"
    assert {name for name, _ in done[gone + 2 :]} == {"unlink", "rmdir"}
    assert done[-2:] == [("unlink", "run.lock"), ("rmdir", "fit.run")]
