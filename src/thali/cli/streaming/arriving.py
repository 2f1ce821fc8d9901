"""Rows from standard input, or from a file that may grow: read and parsed in a thread, while a fit is at work."""

import io
import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from thali.errors import InvalidDataError

if TYPE_CHECKING:
    from thali.io.arriving.rows import ArrivingRows, Found

_PIECE, _LARGEST = 2**20, 2**23  # bytes that are parsed at a time, at most; more where lines are so long
_LINES = 4096  # that there are fewer than so many: each batch costs the fit some milliseconds
_WAIT = 0.05  # seconds that are waited for a piece
_POLL = 0.1  # seconds between two looks at a file that grows
_AHEAD = 4  # pieces that are parsed and wait


class Arriving:
    """What arrives, in order. Memory is bounded: who writes has to wait when the fit is slower."""

    def __init__(self, source: Path | None, reader: "ArrivingRows", *, follow: bool = False) -> None:
        """source: None for standard input. follow: wait for what is appended to the file."""
        self.has_ended = False
        self._most = _PIECE
        self._source, self._reader, self._follow = source, reader, follow
        self._queue: Queue[Any] = Queue(_AHEAD)
        self._stopped, self._left = Event(), Event()
        self._thread = Thread(target=self._read, daemon=True, name="thali-arriving")

    def __enter__(self) -> "Arriving":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._left.set()

    def stop(self) -> None:
        """Read no more; what was read still arrives."""
        self._stopped.set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits at the moment."""
        return self._queue.empty()

    def get(self, seconds: float) -> list["Found"]:
        """What comes next; nothing if that takes longer, or if all has come: then `has_ended` is set."""
        try:
            found = self._queue.get(timeout=seconds)
        except Empty:
            return []
        if isinstance(found, BaseException):
            self.has_ended = True
            raise found
        if found is None:
            self.has_ended = True
            return []
        return found

    # ---- in the thread

    def _read(self) -> None:
        try:
            for piece in self._pieces():
                self._most = _room(piece)
                self._put(self._reader.feed(piece))
            self._put(self._reader.end(cut_off=self._stopped.is_set()))
        except OSError as error:
            self._put(InvalidDataError(f"cannot read {self._reader.path}: {error.strerror or error}. Begin again"))
        except BaseException as error:  # it is raised where the rows are used
            self._put(error)
        self._put(None)

    def _put(self, found: Any) -> None:
        if found == []:
            return
        while not self._left.is_set():
            try:
                return self._queue.put(found, timeout=_POLL)
            except Full:
                continue

    def _pieces(self) -> Iterator[bytes]:
        if self._source is not None:
            with self._source.open("rb", buffering=0) as file:
                yield from self._of_file(file)
            return
        try:
            handle = sys.stdin.fileno()
        except (OSError, ValueError):  # a stream in memory, which ends
            while not self._stopped.is_set() and (piece := sys.stdin.buffer.read(self._most)):
                yield piece
            return
        yield from self._of_pipe(handle)

    def _of_file(self, file: Any) -> Iterator[bytes]:
        """To its end, or for ever if it is followed."""
        while not self._stopped.is_set():
            piece = file.read(self._most)
            if piece:
                yield piece
            elif not self._follow:
                return
            else:
                if os.fstat(file.fileno()).st_size < file.tell():
                    raise InvalidDataError(
                        f"{self._reader.path} became shorter while it was followed. Begin again, with --skip-seen if "
                        "it begins with the rows that were seen"
                    )
                self._stopped.wait(_POLL)

    def _of_pipe(self, handle: int) -> Iterator[bytes]:
        """Pieces as large as what comes in a short time."""
        waits = os.name == "posix"  # elsewhere only sockets can be waited for
        while not self._stopped.is_set():
            if waits and not select.select([handle], [], [], _POLL)[0]:
                continue
            parts: list[bytes] = []
            size, until = 0, time.monotonic() + _WAIT
            while size < self._most:
                part = os.read(handle, self._most - size)
                if not part:
                    yield b"".join(parts)
                    return
                parts.append(part)
                size += len(part)
                left = until - time.monotonic()
                if not waits or left <= 0 or not select.select([handle], [], [], left)[0]:
                    break
            yield b"".join(parts)


def _room(piece: bytes) -> int:
    """Bytes of the next piece, by the lines of this one."""
    return min(max(_PIECE, _LINES * len(piece) // max(piece.count(b"\n"), 1)), _LARGEST)


def source_of(file: Path | None, *, follow: bool) -> tuple[Path | None, Path]:
    """The file to open (None: standard input), and its name in messages; an error before any work."""
    if file is None or str(file) == "-":
        if follow:
            raise InvalidDataError("standard input cannot be followed: it ends when its writer does. Name a file")
        return None, Path("standard input")
    try:
        with io.FileIO(file):
            pass
    except FileNotFoundError as error:
        raise InvalidDataError(f"there is no file {file}; check the name and the current directory") from error
    except OSError as error:
        raise InvalidDataError(f"cannot read {file}: {error.strerror or error}. Choose another") from error
    return file, file
