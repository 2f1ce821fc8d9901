"""The parent of the child that opens files: it hands them over, and notices when one has killed it or keeps it busy."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parents[1]
PATIENCE = 30.0  # seconds of the clock until a file counts as one that hangs


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
    """Opens files in a child that has opened `whole` ones before, so that kernels are there. Use it in a `with`."""

    def __init__(self, whole: Iterable[Path], *, seconds: float = 1.0, megabytes: float = 300.0) -> None:
        self._whole, self._seconds, self._megabytes = list(whole), seconds, megabytes
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Opener":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _begin(self) -> None:
        paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "hostile.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip
        for path in self._whole:
            said = self._ask({"path": str(path), "use": True}, patience=600.0)
            assert said is not None, f"{path}, which is whole, killed its reader"
            assert said["error"] is None, f"{path}, which is whole: {said['error']}"
        self._ask({"limit": True})

    def _ask(self, job: dict[str, Any], patience: float = PATIENCE) -> dict[str, Any] | None:
        """The answer; None if there is none any more."""
        assert self._child is not None
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(job) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            return None
        if not select.select([self._child.stdout], [], [], patience)[0]:
            return None
        line = self._child.stdout.readline()
        return json.loads(line) if line else None

    def open(self, path: Path, *, use: bool = True) -> Outcome:
        if self._child is None:
            self._begin()
        said = self._ask({"path": str(path), "use": use})
        if said is not None:
            return Outcome.of(path, said, self._seconds, self._megabytes)
        code = self._child.poll() if self._child is not None else None
        self._end()
        return Outcome(path, None, "hangs" if code is None else f"ended its reader with {code}")
