"""Locks on open files. They end with the process that holds them, however that ends, and need not be cleaned up."""

import os
from pathlib import Path
from typing import IO, Any


def hold(handle: IO[Any]) -> bool | None:
    """Whether this handle holds its file now: False if another does, None where files have no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def is_at(handle: IO[Any], path: Path) -> bool:
    """Whether the open file is still the one of this name. Who held it before may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), os.stat(path))
    except OSError:
        return False
