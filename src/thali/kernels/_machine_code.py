"""A store of machine code for numba: one file for a kernel and the types of its arguments.

numba's own store fails on the first damaged file, has no place for code of a read-only package, and lets two processes
that compile at once put the code of one signature where the other's is looked for. Here a file says what it holds and
has a digest of it: a file that is not whole, of whatever kind, is removed and the kernel is compiled anew.
"""

import contextlib
import functools
import hashlib
import inspect
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from thali.kernels._cache_folders import Folders

_MAGIC = b"thali machine code 1\n"
_SUFFIX = ".code"


class MachineCode(_Cache):
    """What has been compiled of one function."""

    def __init__(self, function: Callable[..., Any], folders: Folders) -> None:
        self._function, self._folders = function, folders
        source = Path(inspect.getfile(function))
        self._stem = f"{source.stem}.{function.__name__}"
        self._source = _file_digest(source)
        self._enabled = True

    @property
    def cache_path(self) -> str | None:
        return None if self._folders.write is None else str(self._folders.write)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function for these types of arguments; None if there is none that is sound."""
        if not self._enabled:
            return None
        target_context.refresh()
        key = self._key(sig, target_context.codegen())
        for folder in self._folders.read:
            path = folder / self._file_name(key)
            try:
                found, parts = pickle.loads(opened(path.read_bytes()))
                if found == key:
                    return CompileResult._rebuild(target_context, *parts)
            except FileNotFoundError:
                continue
            except Exception:  # whatever is wrong with it
                _remove(path)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        if not self._enabled or data.lifted or data.library.has_dynamic_globals:
            return
        key = self._key(sig, data.codegen)
        self._folders.put(self._file_name(key), sealed(dumps((key, data._reduce()))))

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        if self._folders.write is not None:
            for path in self._folders.write.glob(f"{self._stem}-*{_SUFFIX}"):
                _remove(path)

    def _key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        code = self._function.__code__
        return (sig, codegen.magic_tuple(), self._source, code.co_firstlineno, code.co_code)

    def _file_name(self, key: tuple[Any, ...]) -> str:
        return f"{self._stem}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}{_SUFFIX}"


def sealed(content: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(content).digest() + content


def opened(data: bytes) -> bytes:
    """What was sealed; a ValueError if a bit of it is not as it was."""
    start = len(_MAGIC) + 32
    content = data[start:]
    if data[:start] != _MAGIC + hashlib.sha256(content).digest():
        raise ValueError("damaged")
    return content


def is_storable(function: Callable[..., Any]) -> bool:
    """Its code must be in a file, and no values of an enclosing function may be part of it."""
    return function.__closure__ is None and Path(inspect.getfile(function)).is_file()


@functools.cache
def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
