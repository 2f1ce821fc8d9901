"""One BLAS thread while thali computes: many small products would wait for threads, and bits depend on their number.

The number of threads belongs to the whole process. Two limits that overlap in different threads would each restore what
they found: the last one out restores the limit of the other. So there is one limit, held by all who want it; the first
sets it and the last restores what was before.
"""

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

_ALL = -1  # no thread has this number


class _Limit:
    """Who holds it, by thread, and the libraries that it holds down with the number of threads that each had.

    A BLAS on top of OpenMP has a number for each thread that calls it: there the limit is that of the thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: Counter[int] = Counter()
        self._found: tuple[int, list[Any]] = (0, [])  # libraries, when so many modules had been imported
        self._before: dict[tuple[str, int], tuple[Any, int]] = {}  # by library and thread, _ALL for the whole process

    def hold(self) -> None:
        me = threading.get_ident()
        n_modules = len(sys.modules)
        if n_modules != self._found[0]:  # one may have been loaded; to look for them takes milliseconds
            self._found = n_modules, ThreadpoolController().select(user_api="blas").lib_controllers
        libraries = self._found[1]
        with self._lock:
            self._holders[me] += 1
            for library in libraries:
                whose = me if getattr(library, "threading_layer", "") == "openmp" else _ALL
                if (library.filepath, whose) not in self._before:
                    self._before[library.filepath, whose] = library, library.num_threads
                    _set_threads(library, 1)

    def release(self) -> None:
        me = threading.get_ident()
        with self._lock:
            self._holders -= Counter([me])  # those that hold it no more are gone
            self._restore({me} - self._holders.keys())

    def begin_anew(self) -> None:
        """In a process that was forked, of all threads only this one goes on."""
        me = threading.get_ident()
        self._lock = threading.Lock()
        self._holders = Counter({thread: n for thread, n in self._holders.items() if thread == me})
        self._restore(set())

    def _restore(self, threads: set[int]) -> None:
        """What these threads had of their own and, if nobody holds the limit, what all had."""
        for library, whose in list(self._before):
            if whose in threads or (whose == _ALL and not self._holders):
                _set_threads(*self._before.pop((library, whose)))


def _set_threads(library: Any, n_threads: int) -> None:
    """Recent versions of threadpoolctl heed one thread of the process only; the limit is not that of a thread."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(n_threads)


_limit = _Limit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.begin_anew)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """For a block of code, or as a decorator: @one_blas_thread()."""
    try:
        _limit.hold()
        yield
    finally:
        _limit.release()
