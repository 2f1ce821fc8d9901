"""Where machine code is kept for the next process. What is in such a folder is executed, so it must be trusted.

The first place that can be written to is used: NUMBA_CACHE_DIR, the folder of the kernels, the user's cache, a
temporary folder; if there is none, every process compiles for itself. Without NUMBA_CACHE_DIR machine code is read from
all of them, since an installation that is read-only for its users may hold some. A folder's name has a digest of all
that machine code depends on: versions lie side by side and nothing in it is ever out of date.
"""

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import llvmlite
import numba

_SOURCES = Path(__file__).parent
_PREFIX = "kernels-"
_KEPT = 4  # folders in one place; those used last
_PART = ".part"  # the end of the name of a file that is being written
_HOUR = 3600.0  # after which nobody is writing it any more


class Folders(NamedTuple):
    """Folders to read machine code from, and the one to write it to, if any."""

    read: tuple[Path, ...]
    write: Path | None

    def holds(self, name: str) -> bool:
        return any((folder / name).exists() for folder in self.read)

    def put(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all; without a word if that is impossible, since it only saves time."""
        if self.write is None:
            return
        with contextlib.suppress(OSError):
            _make(self.write)
            handle, part = tempfile.mkstemp(_PART, dir=self.write)
            try:
                with open(handle, "wb") as file:
                    file.write(content)
                os.chmod(part, 0o644)  # others may read what an administrator has compiled
                os.replace(part, self.write / name)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part)
                raise


@functools.cache
def folders() -> Folders:
    """Those of this process."""
    return find_folders(_SOURCES, os.environ.get("NUMBA_CACHE_DIR", ""))


def find_folders(sources: Path, given: str) -> Folders:
    """For the kernels in `sources`; `given` is a place that the user has named, or empty."""
    name = _folder_name(sources)
    read, write = [], None
    for place in _places(sources, given):
        folder = place / name
        in_package = place.parent == sources
        if write is None and _can_write(folder) and _is_trusted(folder, sources, in_package):
            write = folder
            _tidy(place, folder)
        if _is_trusted(folder, sources, in_package):
            read.append(folder)
        if given and write is not None and place == Path(given).absolute():
            break  # as asked for
    return Folders(tuple(read), write)


def _folder_name(sources: Path) -> str:
    """It has a digest of the sources of all kernels, since a kernel's machine code has those that it calls in it."""
    system = (numba.__version__, llvmlite.__version__, sys.version, sys.platform, platform.machine())
    digest = hashlib.sha256(repr(system).encode())
    for path in sorted(sources.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(sources).as_posix()} {len(content)}\n".encode() + content)
    return f"{_PREFIX}{sys.implementation.cache_tag}-{digest.hexdigest()[:24]}"


def _places(sources: Path, given: str) -> Iterator[Path]:
    if given:
        yield Path(given).absolute()
    yield sources / "__pycache__"
    with contextlib.suppress(RuntimeError, OSError):  # there may be no home
        if Path.home().is_dir():
            yield _user_cache() / "thali"
    with contextlib.suppress(OSError):  # nor a folder for temporary files
        yield Path(tempfile.gettempdir()) / f"thali-{_user()}"


def _user_cache() -> Path:
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if Path(given).is_absolute() else Path.home() / ".cache"


def _user() -> int | str:
    return os.geteuid() if hasattr(os, "geteuid") else "user"


def _make(folder: Path) -> None:
    """The folder and its place, which nobody else may write to, whatever is usual here."""
    for path in (folder.parent, folder):
        path.mkdir(mode=0o755, parents=True, exist_ok=True)


def _can_write(folder: Path) -> bool:
    """Make the folder, and try."""
    try:
        _make(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _is_trusted(folder: Path, sources: Path, in_package: bool) -> bool:
    """Whether nobody but this user, the administrator, or the owner of the sources can have put something there.

    Whoever can write beside the sources can change what Python keeps there, too.
    """
    if not hasattr(os, "geteuid"):
        return folder.is_dir()
    owners = {os.geteuid(), 0} | ({sources.stat().st_uid} if in_package else set())
    try:
        inner, outer = os.lstat(folder), os.stat(folder.parent)
    except OSError:
        return False
    if not stat.S_ISDIR(inner.st_mode) or inner.st_uid not in owners or inner.st_mode & 0o022:
        return False
    return in_package or (outer.st_uid in owners and not (outer.st_mode & 0o022 and not outer.st_mode & stat.S_ISVTX))


def _tidy(place: Path, folder: Path) -> None:
    """Remember that the folder is in use; remove those that were not for long, and what a killed process left."""
    with contextlib.suppress(OSError):
        is_new = not any(folder.iterdir())
        os.utime(folder)
        for part in folder.glob(f"*{_PART}"):
            if time.time() - part.stat().st_mtime > _HOUR:
                part.unlink()
        if is_new:
            others = [path for path in place.glob(f"{_PREFIX}*") if path != folder]
            for path in sorted(others, key=lambda path: path.stat().st_mtime)[: -_KEPT + 1]:
                shutil.rmtree(path, ignore_errors=True)
            for pattern in ("*.nbi", "*.nbc", "kernels.sha256"):  # earlier versions of thali left it to numba
                for path in place.glob(pattern):
                    path.unlink(missing_ok=True)
