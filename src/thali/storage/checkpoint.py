"""A run on disk: a folder from which it can go on after a crash, to the same bits.

    run.thali           what was asked for, of which data, and the stream with which each chain began
    chain-0.0.thali     draws and remarks of chain 0 since its beginning, ...
    chain-0.1.thali     ... and those since then
    chain-0.state.thali the state and the stream of chain 0, and how many of these files belong to it
    replaced.thali      the `run.thali` of an older run, until this one has a state
    run.lock            held by the process that is at it

The state is written last, so a crash between two files is harmless. A chain without a state begins anew. All files of a
run bear its mark, so that those of another one in the same folder do not count.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from thali.core.caller import warn_caller
from thali.core.protocols.engines.predictions import Predictions
from thali.errors import InvalidDataError, InvalidFileError, InvalidParameterError, ThaliError
from thali.files.whole_files import NotSyncedError, sync_folder, whole_file
from thali.posteriors.draws import Draws
from thali.rng import freeze, thaw
from thali.storage import archive as files
from thali.storage.claims import Claim, clear, holds_run, no_run, sweep
from thali.storage.fit import About, other_versions
from thali.storage.integrity import check_draws
from thali.storage.packing import pack, unpack
from thali.storage.tasks import Task

EVERY = 5.0  # seconds between two checkpoints of a chain,
_SHARE = 0.01  # or this share of the time so far, so that a long run does not leave thousands of files,
_COST = 20.0  # or this many times what the last one took


class _Written(NamedTuple):
    """What the files of one chain hold."""

    n_files: int = 0
    n_draws: int = 0
    n_steps: int = 0
    due: float = 0.0  # the time of the next one
    at_step: int = 0  # of this process


class Checkpoint:
    """The folder of a run that goes on. Each chain writes its own files, in its own thread.

    `create` and `take_up` hold the folder until the end of a `with` block; `read` only looks.
    """

    def __init__(self, folder: str | os.PathLike[str], about: About, n_rows: int, mark: str | None) -> None:
        self.claim, self.about, self.n_rows, self.mark = Claim.of(folder), about, n_rows, mark
        self.folder = self.claim.folder
        self._trouble: list[Exception] = []  # of attempts to write
        self._begin = time.monotonic()
        self._complained = False
        self._written: dict[int, _Written] = {}
        self.other_versions = ""  # in words
        self.taken_up = False  # rather than begun
        self._hold = ExitStack()
        self._older = self.folder / "replaced.thali"
        self._giving_up = threading.Lock()  # by the first chain that has a state

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Let go of the folder. A run that failed before it had a state has not replaced an older one."""
        with self._hold, suppress(OSError):
            if kind is not None and issubclass(kind, Exception):
                self._bring_older_back()
            else:
                self._give_up_older()

    @classmethod
    def create(cls, folder: str | os.PathLike[str], about: About, n_rows: int, chains: list[Task]) -> Self:
        """Begin a folder, or refuse before any work."""
        arrays: dict[str, np.ndarray] = {}
        try:
            meta = about.to_meta(arrays)
            About.from_meta(meta, arrays)
        except (TypeError, InvalidFileError) as error:
            raise InvalidParameterError(
                f"A checkpoint can hold only parts that thali itself has. Got: {error} Use checkpoint=None with others."
            ) from error
        with ExitStack() as hold:
            run = cls(folder, about, n_rows, secrets.token_hex(8))
            hold.enter_context(run.claim.held(make=True))
            meta |= {"n_rows": n_rows, "run": run.mark, "command": dict(run.claim.command or {})}
            meta["streams"] = pack([[freeze(chain.rng) for chain in chains]], "streams", arrays)
            if holds_run(run.folder) and not run.claim.replaces:
                raise InvalidFileError(
                    f"{folder} holds a run already. Go on with it by thali.resume, or remove the folder to begin anew."
                )
            try:
                run._set_older_aside()
                files.write(run.folder / "run.thali", meta, arrays)
                sync_folder(run.folder.parent)  # the folder itself is on the disk
            except (InvalidFileError, OSError) as error:
                with suppress(OSError):
                    run._bring_older_back()
                raise InvalidFileError(f"Cannot begin a run in {folder}: {error}") from error
            run._hold, run.claim.begun = hold.pop_all(), True
        return run

    @classmethod
    def take_up(cls, folder: str | os.PathLike[str]) -> tuple[Self, list[Task]]:
        """The run in a folder to go on with, and its chains where they stood."""
        if not holds_run(folder):
            sweep(folder)
            raise no_run(folder)
        with ExitStack() as hold:
            claim = Claim.of(folder)
            hold.enter_context(claim.held(make=False))
            run, chains = cls.read(claim)
            with suppress(OSError):
                run._give_up_older()  # it was killed before it could do so
            for unfinished in run.folder.glob(".*.thali.*.part"):
                with suppress(OSError):
                    unfinished.unlink()
            run._hold, run.claim.begun, run.taken_up = hold.pop_all(), True, True
        if run.other_versions:
            warn_caller(
                f"The run in {folder} was begun with {run.other_versions}. "
                "Its draws may differ from those of a run that was never stopped."
            )
        return run, chains

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> tuple[Self, list[Task]]:
        """The run in a folder, and its chains where they stood."""
        path = Path(folder) / "run.thali"
        if not holds_run(folder):
            raise no_run(folder)
        meta, arrays = files.read(path)
        with files.blamed(path):
            run = cls(folder, About.from_meta(meta, arrays), int(meta["n_rows"]), meta.get("run"))
            run.other_versions = other_versions(meta)
            streams = [thaw(state) for state in unpack(meta["streams"], arrays, 1)[0]]
        return run, [run._read_chain(number, stream) for number, stream in enumerate(streams)]

    def _read_chain(self, number: int, stream: np.random.Generator) -> Task:
        path = self._path(number, "state")
        if not path.exists():
            return Task(number, stream)
        meta, arrays = files.read(path)
        if meta.get("run") != self.mark:  # of a run that was here before
            return Task(number, stream)
        kept: list[Any] = []
        infos: list[Any] = []
        with files.blamed(path):
            rng = thaw(unpack(meta["rng"], arrays, 1)[0])
            state = unpack(meta["state"], arrays, 1)[0]
            written = _Written(*(int(meta[name]) for name in ("n_files", "n_draws", "n_steps")))
        for i in range(written.n_files):
            path = self._path(number, i)
            meta, arrays = files.read(path)
            if meta.get("run") != self.mark:
                raise files.damaged(path, "it belongs to another run")
            with files.blamed(path):
                kept += [self._with_book(draw) for draw in unpack(meta["draws"], arrays, int(meta["n_draws"]))]
                infos += unpack(meta["infos"], arrays, int(meta["n_steps"]))
        if (len(kept), len(infos)) != (written.n_draws, written.n_steps):
            raise files.damaged(path, f"it should complete {written.n_draws} draws")
        with files.blamed(path):
            if kept:
                check_draws(Draws.from_chains(self.about.model, [kept]), self.about.n_dims)
        self._written[number] = written
        return Task(number, rng, state, kept, infos)

    def _with_book(self, draw: Any) -> Any:
        """The draw with a codebook; older versions kept a dictionary."""
        if not isinstance(draw.codebook, dict):
            return draw
        kind: Any = self.about.model.observation.engine(Predictions).codebook_kind
        return draw._replace(codebook=kind(**draw.codebook))

    def has_shape(self, shape: tuple[int, ...]) -> bool:
        return tuple(shape) == (self.n_rows, self.about.n_dims)

    def check_data(self, shape: tuple[int, ...], fingerprint: str, *, is_sparse: bool) -> None:
        """Refuse other data than those of the run."""
        if fingerprint != self.about.data_fingerprint:
            n_dims, wanted = self.about.n_dims, self.about.data_fingerprint[:12]
            got = f"{shape[0]} x {shape[1]}{' sparse' if is_sparse else ''} with {fingerprint[:12]}"
            raise InvalidDataError(
                f"X must be the data of the run in {self.folder}: {self.n_rows} rows x {n_dims} dims with fingerprint "
                f"{wanted}. Got {got}. Give the same X, sparse or dense as it was, or fit anew."
            )

    def check_tasks(self, tasks: list[Task], check: Callable[[Task], None]) -> None:
        """Refuse states that no run on its data can have: `check` raises a ValueError."""
        for task in tasks:
            with files.blamed(self._path(task.number, "state")):
                check(task)

    def keep(self, chain: Task, is_last: bool) -> None:
        """Write what is new, if it is time. What cannot be written now will be at the next attempt."""
        old = self._written.get(chain.number, _Written())
        begin = time.monotonic()
        if chain.n_steps == old.at_step or (begin < max(old.due, self._begin + EVERY) and not is_last):
            return
        new = old
        try:
            n_files = self._write(chain, old)
        except (InvalidFileError, OSError) as error:
            self._trouble.append(error)
        else:
            new = _Written(n_files, len(chain.kept), len(chain.infos), at_step=chain.n_steps)
        now = time.monotonic()
        pause = max(EVERY, _SHARE * (now - self._begin), _COST * (now - begin))
        self._written[chain.number] = new._replace(due=now + pause)

    def complain(self) -> None:
        """Warn, once, that writing failed: not in the thread of a chain, which a warning made an error would end."""
        if self._trouble and not self._complained:
            self._complained = True
            warn_caller(f"No checkpoint could be written: {self._trouble[0]} The run goes on.")

    def _write(self, chain: Task, old: _Written) -> int:
        """How many files there are of the past: one more, if there is anything new to remember."""
        self._give_up_older()
        arrays: dict[str, np.ndarray] = {}
        draws, infos = chain.kept[old.n_draws :], chain.infos[old.n_steps :]
        n_files = old.n_files
        if draws or infos:
            meta = {"run": self.mark, "n_draws": len(draws), "n_steps": len(infos)}
            meta |= {"infos": _packed(infos, "infos", arrays), "draws": _packed(draws, "draws", arrays)}
            files.write(self._path(chain.number, old.n_files), meta, arrays)
            n_files += 1
        arrays = {}
        meta = {"n_files": n_files, "n_draws": len(chain.kept), "n_steps": len(chain.infos)}
        meta |= {"rng": pack([freeze(chain.rng)], "rng", arrays), "state": pack([chain.state], "state", arrays)}
        meta["run"] = self.mark
        try:
            files.write(self._path(chain.number, "state"), meta, arrays)
        except InvalidFileError as error:
            if not isinstance(error.__cause__, NotSyncedError):
                raise
            self._trouble.append(error)  # but the state is there, and refers to the other file
        return n_files

    def _path(self, number: int, part: object) -> Path:
        return self.folder / f"chain-{number}.{part}.thali"

    # ---- a run that takes the place of an older one

    def _set_older_aside(self) -> None:
        """Keep what tells of an older run until this one has a state; its chains stay where they are."""
        self._give_up_older()
        if not holds_run(self.folder):
            self._remove_chains()
            return
        with whole_file(self._older) as file:
            file.write((self.folder / "run.thali").read_bytes())

    def _give_up_older(self) -> None:
        """Remove the chains of an older run, then what tells of it: while that is there, no chain is of this one."""
        with self._giving_up:
            if not self._older.exists():
                return
            if self._older.read_bytes() != (self.folder / "run.thali").read_bytes():  # or it never came to a change
                self._remove_chains()
            self._older.unlink()
            sync_folder(self.folder)

    def _bring_older_back(self) -> None:
        if self._older.exists():
            os.replace(self._older, self.folder / "run.thali")
            sync_folder(self.folder)

    def _remove_chains(self) -> None:
        for path in self.folder.glob("chain-*.thali"):
            path.unlink()

    def left(self, tasks: list[Task]) -> "Left":
        return Left(self.claim, self.mark, tuple((len(task.kept), len(task.infos)) for task in tasks if not task.cut))


def _packed(things: list[Any], name: str, arrays: dict[str, np.ndarray]) -> Any:
    return pack(things, name, arrays) if things else {"value": None}


class Left(NamedTuple):
    """A run that has ended, in its folder until the fit is saved."""

    claim: Claim
    mark: str | None
    made: tuple[tuple[int, int], ...]  # draws of each task, and remarks

    def remove(self) -> None:
        """Remove it, unless another run has taken its place or another process is at it."""
        folder = self.claim.folder
        with suppress(ThaliError, OSError), self.claim.held(make=False):
            if not holds_run(folder) or files.read(folder / "run.thali")[0].get("run") == self.mark:
                clear(folder)

    def words(self) -> str:
        """What of the run is on the disk, now."""
        folder = self.claim.folder
        try:
            run, tasks = Checkpoint.read(folder)
        except ThaliError:
            run, tasks = None, []
        if run is None or run.mark != self.mark:
            return "The checkpoint is gone, too: what was found is in the memory of this process alone."
        found = {task.number: (len(task.kept), len(task.infos)) for task in tasks}
        if all(found.get(number) == made for number, made in enumerate(self.made)):
            return f"Nothing is lost: it is in the checkpoint {folder}."
        what = 0 if any(made[0] for made in self.made) else 1
        has, all_of_them = (sum(one[what] for one in some) for some in (found.values(), self.made))
        return (
            f"The checkpoint {folder} has {has} of {all_of_them} {('draws', 'steps')[what]}. "
            "Save the fit elsewhere; if it cannot be, thali.resume makes the others again."
        )
