"""One pool of threads for the whole process, which all chains share: they never are more than there are cores."""

import functools
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_here = threading.local()  # `.is_worker` in threads of the pool


def _mark_worker() -> None:
    _here.is_worker = True


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The pool of this process: after a fork the threads of the parent are gone."""
    return ThreadPoolExecutor(n_cores(), thread_name_prefix=f"thali-{process}", initializer=_mark_worker)


def in_spans(work: Callable[[slice], Any], length: int, block: int, least: int, n_threads: int | None) -> list[Any]:
    """work(slice) for slices that make up range(length), in order, each on a thread of its own, the last on this one.

    Slices begin at multiples of `block` and have about `least` entries or more. n_threads: how many of them at most,
    None for one per core. Work that splits itself further does so alone: threads that wait for each other's work would
    wait for ever.
    """
    if getattr(_here, "is_worker", False):
        n_threads = 1
    n_blocks = -(-length // block)
    n_spans = max(min(length // least, n_cores() if n_threads is None else n_threads), 1)
    edges = [min(block * (n_blocks * i // n_spans), length) for i in range(n_spans + 1)]
    spans = [slice(start, stop) for start, stop in itertools.pairwise(edges)]
    others = [_pool(os.getpid()).submit(work, span) for span in spans[:-1]]
    last = work(spans[-1])
    return [*(other.result() for other in others), last]
