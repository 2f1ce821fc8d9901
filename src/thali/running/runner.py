"""The one loop of all inference: tasks in threads until each is done, or until it is time to stop.

Each task has its own stream and its own work space, so its bits do not depend on how many threads there are. Threads
suffice because a kernel releases the interpreter lock for a whole sweep; a process would pay seconds to start.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import numpy as np

from thali.errors import InvalidParameterError
from thali.numerics.threads import n_cores
from thali.running.shapes.shape import Shape, StartGivenUp
from thali.running.stopping import Clock
from thali.storage.tasks import Task

_LOOK = 0.2  # seconds between two looks of the main thread


def resolve_n_jobs(n_jobs: int | None, n_tasks: int) -> int:
    """Number of threads: None or -1 for as many as cores and tasks allow."""
    if n_jobs is None or (isinstance(n_jobs, int | np.integer) and n_jobs == -1):
        n_jobs = n_cores()
    if not isinstance(n_jobs, int | np.integer) or isinstance(n_jobs, bool) or n_jobs < 1:
        raise InvalidParameterError(f"n_jobs must be None, -1 or a positive integer. Got {n_jobs!r}.")
    return min(int(n_jobs), n_tasks)


def run(
    shape: Shape,
    clock: Clock,
    *,
    n_jobs: int | None = None,
    keep: Callable[[Task, bool], None] | None = None,
    watch: Sequence[Callable[[], None]] = (),
) -> str | None:
    """Go on with every task until it is done; why it ended before that, or None.

    Ctrl-C and SIGTERM end the work after the current step, so does the clock, and `shape.has_enough()`. A signal that
    comes before there is anything to keep counts even if the first step was the last: kernels may have been compiled
    for a minute.

    `keep(task, is_last)` sees a task after every step, in the task's thread, and once more when all have stopped,
    unless the clock cut its start short: a run that goes on begins it anew, to the bits of one that was never stopped.
    Those in `watch` are called a few times a second in this thread, and once at the end.
    """
    tasks, n_before = shape.tasks, shape.n_kept()

    def is_ready(task: Task) -> bool:
        return not shape.is_done(task) and (not clock.is_over() or shape.is_owed(task, clock))

    def step(task: Task) -> bool:
        """Whether there is more to do."""
        shape.advance(task, clock)
        task.n_steps += 1
        more = is_ready(task)
        if keep is not None and not task.cut:
            keep(task, not more)
        return more

    def look() -> None:
        for watcher in watch:
            watcher()

    clock.set_aside(shape.share_at_end)
    with clock.listening(lambda: shape.n_kept() == n_before):
        shape.prepare()
        if shape.in_step and len(tasks) == 1:  # in this thread, so that a warning points at the line that called us
            while is_ready(tasks[0]):
                with suppress(StartGivenUp):
                    step(tasks[0])
                look()
        else:
            n_jobs, futures = resolve_n_jobs(n_jobs, len(tasks)), []
            with ThreadPoolExecutor(n_jobs) as pool:
                if shape.in_step:
                    batches = _rounds(pool, tasks, is_ready, step)
                else:
                    batches = _turns(pool, n_jobs, tasks, _turn(shape, clock), is_ready, step)
                try:
                    for futures in batches:
                        while wait(futures, _LOOK).not_done and not any(f.done() and f.exception() for f in futures):
                            look()
                            if shape.has_enough():
                                clock.end()
                        if any(f.done() and f.exception() for f in futures):
                            break
                finally:
                    clock.end()
            for future in futures:
                future.result()
        if keep is not None:
            for task in tasks:
                if task.n_steps and not task.cut:
                    keep(task, True)
        look()
    if shape.has_enough():
        return "target_ess"
    return None if all(map(shape.is_done, tasks)) and not clock.at_once else clock.reason


def _turn(shape: Shape, clock: Clock) -> float:
    """Seconds for which a task keeps its thread; short ones if there is little time, so that every task gets a turn.

    Tasks of a shape whose turns have no end come one after the other: better a few that are done than all half done.
    """
    if clock.max_time is None or math.isinf(shape.turn):
        return shape.turn
    return min(shape.turn, clock.max_time / (4 * len(shape.tasks)))


def _turns(
    pool: ThreadPoolExecutor,
    n_jobs: int,
    tasks: Sequence[Task],
    seconds: float,
    is_ready: Callable[[Task], bool],
    step: Callable[[Task], bool],
) -> Iterator[list[Future[Any]]]:
    """Tasks take turns, so that with few threads, too, all of them have something when a run is stopped."""
    waiting = deque(tasks)

    def work() -> None:
        while waiting:
            try:
                task = waiting.popleft()
            except IndexError:  # another thread was quicker
                return
            if is_ready(task):
                end = time.monotonic() + seconds
                with suppress(StartGivenUp):
                    while step(task) and time.monotonic() <= end:
                        pass
                waiting.append(task)

    yield [pool.submit(work) for _ in range(n_jobs)]


def _rounds(
    pool: ThreadPoolExecutor,
    tasks: Sequence[Task],
    is_ready: Callable[[Task], bool],
    step: Callable[[Task], bool],
) -> Iterator[list[Future[Any]]]:
    """A step of every task, then another: for those that must end at the same place."""
    while ready := [task for task in tasks if is_ready(task)]:
        yield [pool.submit(step, task) for task in ready]
