"""A run on disk: a folder from which it can go on after a crash, to the same bits.

    run.thali           what was asked for, of which data, and the stream with which each chain began
    chain-0.0.thali     draws and remarks of chain 0 since its beginning, ...
    chain-0.1.thali     ... and those since then
    chain-0.state.thali the state and the stream of chain 0, and how many of these files belong to it
    command.thali       what the command line needs besides, if the run was begun there

The state is written last, so a crash between two files is harmless. A chain without a state begins anew.
"""

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from thali import files
from thali.errors import InvalidFileError, InvalidParameterError
from thali.packing import pack, unpack
from thali.posterior import Draws
from thali.rng import freeze, thaw
from thali.run import Chain
from thali.saving import About
from thali.soundness import check_draws, check_state

EVERY = 5.0  # seconds between two checkpoints of a chain,
_SHARE = 0.01  # or this share of the time so far, so that a long run does not leave thousands of files,
_COST = 20.0  # or this many times what the last one took


class _Written(NamedTuple):
    """What the files of one chain hold."""

    n_files: int = 0
    n_draws: int = 0
    n_steps: int = 0
    due: float = 0.0  # the time of the next one


class Checkpoint:
    """The folder of a run that goes on. Each chain writes its own files, in its own thread."""

    def __init__(self, folder: str | os.PathLike[str], about: About, n_rows: int) -> None:
        self.folder, self.about, self.n_rows = Path(folder), about, n_rows
        self._trouble: list[Exception] = []  # of attempts to write
        self._begin = time.monotonic()
        self._complained = False
        self._written: dict[int, _Written] = {}

    @classmethod
    def create(cls, folder: str | os.PathLike[str], about: About, n_rows: int, chains: list[Chain]) -> Self:
        """Begin a folder, or refuse before any work."""
        run = cls(folder, about, n_rows)
        if holds_run(folder):
            raise InvalidFileError(
                f"{folder} holds a run already. Go on with it by thali.resume, or remove the folder to begin anew."
            )
        arrays: dict[str, np.ndarray] = {}
        try:
            meta = about.to_meta()
            About.from_meta(meta)
        except (TypeError, InvalidFileError) as error:
            raise InvalidParameterError(
                f"A checkpoint can hold only parts that thali itself has. Got: {error} Use checkpoint=None with others."
            ) from error
        meta["n_rows"] = n_rows
        meta["streams"] = pack([[freeze(chain.rng) for chain in chains]], "streams", arrays)
        try:
            run.folder.mkdir(exist_ok=True)
            for stale in run.folder.glob("chain-*.thali"):
                stale.unlink()
        except (OSError, ValueError) as error:  # a ValueError: no name for a folder
            reason = getattr(error, "strerror", None) or error
            raise InvalidFileError(
                f"Cannot make the folder {folder}: {reason}. Choose another place for the checkpoint."
            ) from error
        files.write(run.folder / "run.thali", meta, arrays)
        return run

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> tuple[Self, list[Chain]]:
        """The run in a folder, and its chains where they stood."""
        path = Path(folder) / "run.thali"
        if not holds_run(folder):
            raise InvalidFileError(
                f"There is no run in {folder} to go on with. Check the path; a run that is finished and saved has none."
            )
        meta, arrays = files.read(path)
        with files.blamed(path):
            run = cls(folder, About.from_meta(meta), int(meta["n_rows"]))
            streams = [thaw(state) for state in unpack(meta["streams"], arrays, 1)[0]]
        return run, [run._read_chain(number, stream) for number, stream in enumerate(streams)]

    def _read_chain(self, number: int, stream: np.random.Generator) -> Chain:
        path = self._path(number, "state")
        if not path.exists():
            return Chain(number, stream)
        meta, arrays = files.read(path)
        kept: list[Any] = []
        infos: list[Any] = []
        with files.blamed(path):
            rng = thaw(unpack(meta["rng"], arrays, 1)[0])
            state = unpack(meta["state"], arrays, 1)[0]
            written = _Written(*(int(meta[name]) for name in ("n_files", "n_draws", "n_steps")))
        for i in range(written.n_files):
            path = self._path(number, i)
            meta, arrays = files.read(path)
            with files.blamed(path):
                kept += unpack(meta["draws"], arrays, int(meta["n_draws"]))
                infos += unpack(meta["infos"], arrays, int(meta["n_steps"]))
        if (len(kept), len(infos)) != (written.n_draws, written.n_steps):
            raise files.damaged(path, f"it should complete {written.n_draws} draws")
        with files.blamed(path):
            for info in infos:
                float(info.log_joint), int(info.n_features)
            if kept:
                check_draws(Draws.from_chains(self.about.model, [kept]), self.about.n_dims)
        self._written[number] = written
        return Chain(number, rng, state, kept, infos)

    def check(self, chains: list[Chain], X: np.ndarray) -> None:
        """Refuse states that cannot be those of a run on X."""
        for chain in chains:
            if chain.state is not None:
                with files.blamed(self._path(chain.number, "state")):
                    check_state(chain.state, self.about, X)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Refuse to go on if another process is at this run. Such a hold ends with its process, however that ends."""
        try:
            import fcntl
        except ImportError:  # Windows has no such locks
            yield
            return
        with (self.folder / "run.thali").open("rb") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidFileError(
                    f"Another process is at the run in {self.folder}. Wait for it, or end it."
                ) from None
            except OSError:
                pass  # a file system without locks
            yield

    def keep(self, chain: Chain, is_last: bool) -> None:
        """Write what is new, if it is time. What cannot be written now will be at the next attempt."""
        old = self._written.get(chain.number, _Written())
        begin = time.monotonic()
        if len(chain.infos) == old.n_steps or (begin < max(old.due, self._begin + EVERY) and not is_last):
            return
        new = old
        try:
            self._write(chain, old)
        except (InvalidFileError, OSError) as error:
            self._trouble.append(error)
        else:
            new = _Written(old.n_files + 1, len(chain.kept), len(chain.infos))
        now = time.monotonic()
        pause = max(EVERY, _SHARE * (now - self._begin), _COST * (now - begin))
        self._written[chain.number] = new._replace(due=now + pause)

    def complain(self) -> None:
        """Warn, once, that writing failed: not in the thread of a chain, which a warning made an error would end."""
        if self._trouble and not self._complained:
            self._complained = True
            warnings.warn(f"No checkpoint could be written: {self._trouble[0]} The run goes on.", stacklevel=2)

    def _write(self, chain: Chain, old: _Written) -> None:
        arrays: dict[str, np.ndarray] = {}
        draws, infos = chain.kept[old.n_draws :], chain.infos[old.n_steps :]
        meta = {"n_draws": len(draws), "n_steps": len(infos), "infos": pack(infos, "infos", arrays)}
        meta["draws"] = pack(draws, "draws", arrays) if draws else {"value": None}
        files.write(self._path(chain.number, old.n_files), meta, arrays)
        arrays = {}
        meta = {"n_files": old.n_files + 1, "n_draws": len(chain.kept), "n_steps": len(chain.infos)}
        meta |= {"rng": pack([freeze(chain.rng)], "rng", arrays), "state": pack([chain.state], "state", arrays)}
        files.write(self._path(chain.number, "state"), meta, arrays)

    def _path(self, number: int, part: object) -> Path:
        return self.folder / f"chain-{number}.{part}.thali"


def holds_run(folder: str | os.PathLike[str]) -> bool:
    return os.path.exists(Path(folder) / "run.thali")  # False for a name that cannot be, where Path.exists raises


def remove(folder: str | os.PathLike[str]) -> None:
    """Remove the files of a run, `run.thali` first, and the folder if nothing else is in it."""
    folder = Path(folder)
    with suppress(OSError):
        (folder / "run.thali").unlink(missing_ok=True)
        for pattern in ("chain-*.thali", "command.thali", ".*.thali.*.part"):
            for path in folder.glob(pattern):
                path.unlink(missing_ok=True)
        folder.rmdir()
