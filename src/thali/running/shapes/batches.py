"""Batches of rows, each seen once: an iterator, or one call of `partial_fit` after the other."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.data.far_rows import Seen, warn_of_far_rows
from thali.data.young_rows import YoungRows, is_time, with_rows
from thali.inference.calibration.noise_floor import calibrate
from thali.running.shapes.passes import history
from thali.running.shapes.shape import Job, Shape
from thali.running.stopping import Clock
from thali.storage.fit import About, Outcome
from thali.storage.integrity import check_variational
from thali.storage.streams import BlockInfo, BlockStream, Stream
from thali.storage.tasks import Task

Array = np.ndarray


class Batches(Shape):
    """A step takes in a batch. One that fails is not taken in.

    Features begin with the first batch and, as long as rows are few, anew when they have doubled.
    """

    word = "stream"
    in_step = True
    useless = ("target_ess", "heldout", "checkpoint")
    why_useless = "must be None with batches of rows, which come once"

    def __init__(self, job: Job, tasks: list[Task], seen: Seen | None = None) -> None:
        super().__init__(job, tasks)
        task = tasks[0]
        if task.state is None:
            task.state = BlockStream(None, given=job.given)
        if not task.state.in_stream:  # what came before counts as one batch
            task.state, task.infos = task.state._replace(in_stream=True), task.infos[-1:]
        self._batches: Iterator[Array] = job.X
        self._seen = seen
        self._ended = False
        self.n_taken = 0  # batches

    @classmethod
    def first_tasks(cls, job: Job, rng: np.random.Generator, n_chains: int) -> list[Task]:
        return [Task(0, rng)]

    def check(self, task: Task) -> None:
        """States of a stream come from the file of a fit: see `check_stream`."""

    def advance(self, task: Task, clock: Clock) -> None:
        X = next(self._batches, None)
        if X is None:
            self._ended = True
            return
        seen = self._seen or Seen.nothing(X.shape[1])
        warn_of_far_rows(seen, X)
        drawn = task.rng.bit_generator.state
        try:
            stream = self._after(task, X, clock)
            if not np.isfinite(stream.state.bound):
                raise FloatingPointError("the bound is not finite")
        except BaseException:
            task.rng.bit_generator.state = drawn
            raise
        task.state, self._seen, self.n_taken = stream, seen.after(X), self.n_taken + 1
        task.infos.append(BlockInfo.of(stream.state))

    def _after(self, task: Task, X: Array, clock: Clock) -> BlockStream:
        """The stream after the rows of X."""
        inference, stream, rows = self.inference, task.state, X
        state = stream.state
        if state is None or stream.young is not None:
            young = with_rows(stream.young, X)
            n_young, n_begun = young.shape[0], stream.n_begun
            if is_time(n_young, n_begun, inference.n_start):
                model = self.model if state is None else calibrate(stream.given, young)
                begun = self._begin(task.rng, model, young, clock)
                if state is None or not clock.is_over():
                    state, rows, n_begun = begun, young, n_young
            keeps = n_young < inference.n_start and stream.given is not None
            stream = stream._replace(
                young=YoungRows.of(young) if keeps else None, given=stream.given if keeps else None, n_begun=n_begun
            )
        return stream._replace(state=inference.visit(state, rows))

    def _begin(self, rng: np.random.Generator, model: Model, X: Array, clock: Clock) -> Any:
        inference = self.inference
        if X.shape[0] > inference.n_start:
            X = X[np.sort(rng.choice(X.shape[0], inference.n_start, replace=False))]
        return inference.begin(rng, model, X, inference.n_rows, clock.is_over)

    def is_done(self, task: Task) -> bool:
        return self._ended

    def is_owed(self, task: Task, clock: Clock) -> bool:
        return self.n_taken == 0

    def n_kept(self) -> int:
        return self.n_taken

    def outcome(self, stopped_by: str | None) -> Outcome:
        task = self.tasks[0]
        state = task.state.state
        posterior = self.inference.posterior(state)
        words = f"Stopped by {stopped_by} after {state.n_seen} rows." if stopped_by in ("interrupt", "max_time") else ""
        about = self.about._replace(data_fingerprint="")
        stream = Stream(self.tasks, self._seen or Seen.nothing(about.n_dims))
        return Outcome(about, posterior, history(task.infos, in_stream=True), stopped_by, stream, words)

    # ---- for the progress

    def n_steps(self) -> None:
        return None

    def note(self, task: Task, *, thorough: bool) -> str:
        if not task.infos:
            return "at its first batch"
        last = task.infos[-1]
        return f"batch {len(task.infos)}  {last.n_rows} rows  K={last.n_features}  bound {last.bound:.8g}"


def check_stream(stream: Stream, about: About) -> None:
    """A ValueError if this stream, which comes from a file, is not that of this fit."""
    inference = about.choice.inference
    at = stream.tasks[0].state
    infos = stream.tasks[0].infos
    if len(stream.tasks) != 1 or not isinstance(at, BlockStream) or not infos:
        raise ValueError("its state is none of a fit by blocks")
    if not all(isinstance(info, BlockInfo) for info in infos):
        raise ValueError("its remarks are none of a fit by blocks")
    inference.check_sound(at.state, about.model)
    if at.young is not None:
        at.young.check(at.given, about.model, at.state.n_seen)
    check_variational(inference.posterior(at.state), about)
