"""One pool of threads for the whole process, which all chains share: they never are more than there are cores."""

import functools
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _errands(process: int) -> SimpleQueue[Callable[[], None]]:
    """What the threads of this process are to run: after a fork those of the parent are gone."""
    errands: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def run() -> None:
        while True:
            errands.get()()

    for i in range(n_cores()):
        threading.Thread(target=run, name=f"thali-{process}-{i}", daemon=True).start()
    return errands


class _Errand:
    """Work handed to another thread. Bare locks: a Future takes twice as long, which small work feels."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work, self.taken, self.done = work, threading.Lock(), threading.Lock()
        self.error: BaseException | None = None
        self.done.acquire()
        _errands(os.getpid()).put(self)

    def __call__(self) -> None:
        if self.taken.acquire(blocking=False):
            try:
                self.work()
            except BaseException as error:
                self.error = error
            self.done.release()

    def finish(self) -> None:
        """Wait until it is done; if it has not begun, it never will."""
        if not self.taken.acquire(blocking=False):
            self.done.acquire()


def _spans(length: int, block: int, least: int, n_threads: int) -> list[slice]:
    """Long spans first, short ones last, so that threads which began at different times end together."""
    spans, start = [], 0
    while start < length:
        size = max(9 * (length - start) // (10 * n_threads), least // 8, 1)
        stop = min(start + block * -(-size // block), length)
        spans.append(slice(start, stop))
        start = stop
    return spans


def in_spans(work: Callable[[slice], Any], length: int, block: int, least: int, n_threads: int | None) -> list[Any]:
    """work(slice) for slices that make up range(length), in their order, by this thread and others of the pool.

    Slices begin at multiples of `block`. n_threads: how many threads at most, None for one per core; each has about
    `least` entries to do or more, and takes the next slice when it is free. This thread waits for none that has not
    begun, so that work may split itself further although the pool is full.
    """
    n_threads = max(min(length // least, n_cores() if n_threads is None else n_threads), 1)
    if n_threads == 1:
        return [work(slice(0, length))]
    spans = _spans(length, block, least, n_threads)
    results: list[Any] = [None] * len(spans)
    todo = iter(range(len(spans)))  # `next` of it is atomic

    def take() -> None:
        for i in todo:
            results[i] = work(spans[i])

    errands = [_Errand(take) for _ in range(n_threads - 1)]
    try:
        take()
    finally:  # whatever happened, nobody else writes to the caller's arrays after this
        for errand in errands:
            errand.finish()
    for errand in errands:
        if errand.error is not None:
            raise errand.error
    return results


def together(work: Callable[[bool], None], most: int, n_threads: int | None) -> None:
    """work(True) by this thread, and work(False) by others of the pool as they are free: `work` shares itself out.

    All must be done when the call of this thread returns; it waits for no other. On at most `most` threads, and
    n_threads, None for one per core.
    """
    n_threads = max(min(most, n_cores() if n_threads is None else n_threads), 1)
    errands = [_Errand(lambda: work(False)) for _ in range(n_threads - 1)]
    try:
        work(True)
    finally:
        for errand in errands:
            errand.taken.acquire(blocking=False)  # who has not begun need not any more
