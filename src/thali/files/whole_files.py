"""Files that are whole under their name, or not there: written under another name, put on the disk, then renamed.

A writer holds its temporary file, so that one which is left by a killed process can be told from one in use.
"""

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from thali.files.locks import hold, is_at

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_SUCH_THING = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM)  # to sync a folder


class NotSyncedError(OSError):
    """The file has its name, but the disk did not confirm that the name will last."""


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which gets its name at the end; an OSError otherwise, and all is as it was.

    Once this has ended, both the content and the name are on the disk: what the file stands for may be deleted.
    """
    try:
        clear_leftovers(path)
        temporary, file = _begin(path)
    except ValueError as error:  # no name for a file
        raise OSError(errno.EINVAL, str(error)) from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # the content is on the disk before the name is
            if os.name == "nt":
                file.close()  # where open files cannot be renamed
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise NotSyncedError(error.errno, error.strerror) from error


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system knows how to."""
    if os.name != "posix":
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NO_SUCH_THING:
            raise


def clear_leftovers(path: Path) -> None:
    """Remove temporary files of `path` whose writers are dead."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part")
    with suppress(OSError), os.scandir(path.parent) as entries:
        found = [entry for entry in entries if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)]
        for temporary in found:
            with suppress(OSError), open(temporary, "rb") as handle:
                if hold(handle):
                    os.unlink(temporary)


def trouble(path: object, error: OSError) -> str:
    """What an error of `whole_file` means for the file, and what to do."""
    reason = error.strerror or error
    if isinstance(error, NotSyncedError):
        return f"Cannot be sure that {path} is on the disk: {reason}. It has its new content; write it elsewhere, too."
    remedy = "Free some space" if error.errno in _NO_SPACE else "Choose a folder that exists and is writable"
    return f"Cannot write {path}: {reason}. Nothing was changed. {remedy}, and try again."


def _begin(path: Path) -> tuple[Path, IO[bytes]]:
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        file = temporary.open("xb")
        if hold(file) is not False and is_at(file, temporary):
            return temporary, file
        file.close()  # it was taken for a leftover in the moment before it was held
