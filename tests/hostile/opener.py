"""The parent of the child that opens files: it hands them over, and notices when one has killed it or keeps it busy."""

import multiprocessing
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from hostile.child import serve

PATIENCE = 60.0  # seconds of the clock until a file counts as one that hangs


class Outcome(NamedTuple):
    """What became of a file."""

    path: Path
    error: str | None  # of thali; None if it was taken
    trouble: str | None  # a signal, a raw error, too much time or memory

    @classmethod
    def of(cls, path: Path, said: dict[str, Any], seconds: float, megabytes: float) -> "Outcome":
        error, trouble = said["error"], None
        if error is not None and error.startswith("raw "):
            trouble = error
        elif said["seconds"] > seconds:
            trouble = f"took {said['seconds']:.1f} s to open"
        elif said["megabytes"] > megabytes:
            trouble = f"took {said['megabytes']:.0f} MB"
        return cls(path, error, trouble)


class Opener:
    """Opens files in a child, a fork of this process, so that all kernels that were used here are there."""

    def __init__(self, *, seconds: float = 1.0, megabytes: float = 300.0) -> None:
        self._seconds, self._megabytes = seconds, megabytes
        self._child: Any = None

    def __enter__(self) -> "Opener":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _begin(self) -> None:
        context = multiprocessing.get_context("fork")
        self._line, end = context.Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads
            self._child = context.Process(target=serve, args=(end,), daemon=True)
            self._child.start()
        end.close()

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.join()
            self._line.close()
            self._child = None

    def open(self, path: Path) -> Outcome:
        if self._child is None:
            self._begin()
        self._line.send(str(path))
        try:
            if self._line.poll(PATIENCE):
                return Outcome.of(path, self._line.recv(), self._seconds, self._megabytes)
        except EOFError:
            self._child.join()
            trouble = f"ended its reader with {self._child.exitcode}"
        else:
            trouble = "hangs"
        self._end()
        return Outcome(path, None, trouble)
