"""Who may write in the folder of a run: one process at a time.

It holds a lock on a file in the folder that is never replaced. That file goes with its folder, by the hand of the
process that holds it: who had opened it before finds that it is no longer at its place, and begins anew.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from thali.errors import InvalidFileError
from thali.files.locks import hold, is_at
from thali.files.whole_files import sync_folder

_PATIENCE = 0.2  # seconds, since one that cleans up holds a folder for a moment, too
_OURS = ("chain-*.thali", "command.thali", "replaced.thali", ".*.thali.*.part", "run.lock")  # `run.thali` goes before


class Claim(os.PathLike[str]):
    """The folder of a run, which this process can hold; as a path it can be given wherever a checkpoint can.

    replaces: a run that is there may be given up, once another is on the disk. command: what the command line keeps
    with a run that begins.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, replaces: bool = False, command: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = Path(folder)
        self.replaces, self.command = replaces, command
        self.begun = False  # whether this process has begun or taken up the run that is there
        self._depth = 0
        self._handle: IO[bytes] | None = None

    @classmethod
    def of(cls, folder: str | os.PathLike[str]) -> "Claim":
        return folder if isinstance(folder, Claim) else cls(folder)

    def __fspath__(self) -> str:
        return str(self.folder)

    __str__ = __fspath__

    def __repr__(self) -> str:
        return repr(str(self.folder))

    def __getstate__(self) -> dict[str, Any]:
        """A copy holds nothing."""
        return self.__dict__ | {"_depth": 0, "_handle": None}

    @contextmanager
    def held(self, *, make: bool) -> Iterator[None]:
        """Hold the folder, or refuse at once if another does; if there is none, make it. Calls may be nested.

        At the end nothing is left in a folder without a run, nor the folder itself.
        """
        if self._depth == 0:
            self._take(make)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                mine = self._handle is None or is_at(self._handle, self.folder / "run.lock")  # it may be gone already
                if mine and not holds_run(self.folder):
                    clear(self.folder)
                if self._handle is not None:
                    self._handle.close()
                    self._handle = None

    def finish(self) -> None:
        """Something else has come in the place of the run that was to be replaced."""
        if self._depth and self.replaces and not self.begun:
            clear(self.folder)

    def _take(self, make: bool) -> None:
        patient_until = time.monotonic() + _PATIENCE
        while True:
            handle = self._opened(make)
            if handle is None:
                return
            got = hold(handle)
            if got and is_at(handle, self.folder / "run.lock"):
                self._handle = handle
                return
            handle.close()
            if got is None:
                return
            if not got and time.monotonic() > patient_until:
                raise InvalidFileError(f"Another process is at the run in {self.folder}. Wait for it, or end it.")
            time.sleep(0.01)

    def _opened(self, make: bool) -> IO[bytes] | None:
        while True:
            try:
                if make:
                    self.folder.mkdir(exist_ok=True)
            except (OSError, ValueError) as error:  # a ValueError: no name for a folder
                reason = getattr(error, "strerror", None) or error
                raise InvalidFileError(
                    f"Cannot make the folder {self.folder}: {reason}. Choose another place for the checkpoint."
                ) from error
            try:
                return (self.folder / "run.lock").open("ab")
            except FileNotFoundError as error:  # its holder has just removed it
                if not make:
                    raise no_run(self.folder) from error
            except OSError as error:
                if not make:
                    return None  # one may go on where nothing can be written, and nobody else writes there either
                raise InvalidFileError(
                    f"Cannot write in the folder {self.folder}: {error.strerror}. "
                    "Choose another place for the checkpoint."
                ) from error


def holds_run(folder: str | os.PathLike[str]) -> bool:
    return os.path.exists(Path(folder) / "run.thali")  # False for a name that cannot be, where Path.exists raises


def no_run(folder: object) -> InvalidFileError:
    return InvalidFileError(
        f"There is no run in {folder} to go on with. Check the path; a run that is finished and saved has none."
    )


def clear(folder: Path) -> None:
    """Remove the files of a run, and the folder if nothing else is in it. For the one who holds it.

    `run.thali` goes first, for good, so that what is left if this is cut short is not taken for a run.
    """
    with suppress(OSError):
        if holds_run(folder):
            (folder / "run.thali").unlink()
            sync_folder(folder)
        for pattern in _OURS:
            for path in folder.glob(pattern):
                path.unlink(missing_ok=True)
        folder.rmdir()


def sweep(folder: str | os.PathLike[str]) -> None:
    """Remove what a run that was killed at its very end, or before it began, has left behind."""
    if not os.path.isdir(folder) or holds_run(folder):
        return
    with suppress(InvalidFileError, OSError):
        content = list(Path(folder).iterdir())
        if not content or any(path.match(pattern) for path in content for pattern in _OURS):
            with Claim.of(folder).held(make=False):  # which cleans up at its end
                pass
