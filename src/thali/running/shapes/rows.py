"""Filters that take rows as they come, each once, and can go on with more of them later."""

import time

import numpy as np

from thali.data.far_rows import Seen, warn_of_far_rows
from thali.data.fingerprint import fingerprint
from thali.data.row_digests import row_digests
from thali.posteriors.base import Posterior
from thali.running.shapes.shape import Job, Shape
from thali.running.stopping import Clock
from thali.storage.fit import About, Outcome
from thali.storage.streams import Stream
from thali.storage.tasks import Task

_STEP = 0.2  # seconds that a step should take
_FEW = 1  # rows of the first one


class Rows(Shape):
    """A step takes in some rows. Filters go in step, so that they have seen the same rows when the run is stopped. How
    many rows a step has depends on the clock; the result does not depend on it."""

    word = "filter"
    in_step = True
    share_at_end = 0.45  # every particle becomes a draw
    useless = ("target_ess", "heldout")
    why_useless = "is for samplers that draw again and again; a stream ends with its last row"

    def __init__(self, job: Job, tasks: list[Task], seen: Seen | None = None) -> None:
        """seen: what came before the rows of X."""
        super().__init__(job, tasks)
        self._seen = seen or Seen.nothing(job.X.shape[1])
        self._size = _FEW

    def _position(self, task: Task) -> int:
        """How many rows of X the filter has seen."""
        return 0 if task.state is None else task.state.n_rows - self._seen.n_rows

    def prepare(self) -> None:
        if not self.n_kept():
            warn_of_far_rows(self._seen, self.job.X)

    def check(self, task: Task) -> None:
        if task.state is not None:
            self.inference.check_sound(task.state, self.model)
            if not 0 <= self._position(task) <= len(self.job.X):
                raise ValueError("it has seen more rows than there are")

    def advance(self, task: Task, clock: Clock) -> None:
        begin = time.monotonic()
        at, X = self._position(task), self.job.X
        front = max(map(self._position, self.tasks))
        end = front if at < front else min(at + self._size, len(X))
        if task.state is None:
            task.state = self.inference.begin(task.rng, self.model, X.shape[1])
        task.state, infos = self.inference.absorb(task.rng, task.state, self.model, X[at:end])
        task.infos += infos
        if task is self.tasks[0]:
            seconds = max(time.monotonic() - begin, 1e-6)
            self._size = int(np.clip((end - at) * _STEP / seconds, 1, 4 * (end - at)))

    def is_done(self, task: Task) -> bool:
        return self._position(task) == len(self.job.X)

    def is_owed(self, task: Task, clock: Clock) -> bool:
        at = self._position(task)
        return at == 0 or at < max(map(self._position, self.tasks))

    def n_kept(self) -> int:
        return min(map(self._position, self.tasks))

    def outcome(self, stopped_by: str | None) -> Outcome:
        n_taken, n_rows = self.n_kept(), len(self.job.X)
        posterior = self.inference.posterior(self.tasks, self.model)
        data_fingerprint = ""
        rows = self.inference.rows(self.tasks)
        if rows is not None:
            posterior.row_digests, data_fingerprint = row_digests(rows), fingerprint(rows)
        words = f"Stopped by {stopped_by}: took in {n_taken} of {n_rows} rows." if stopped_by else ""
        stream = Stream(self.tasks, self._seen.after(self.job.X[:n_taken]))
        about = self.about._replace(data_fingerprint=data_fingerprint)
        return Outcome(about, posterior, self.inference.history(self.tasks), stopped_by, stream, words)

    # ---- for the progress

    def n_steps(self) -> int:
        return len(self.job.X)

    def n_made(self, task: Task) -> int:
        return self._position(task)

    def note(self, task: Task, *, thorough: bool) -> str:
        if not task.infos:
            return "at its first row"
        return f"K={task.infos[-1].n_features:.1f}  log p {task.infos[-1].log_evidence:.1f}"


def check_stream(stream: Stream, posterior: Posterior, about: About) -> None:
    """A ValueError if these filters, which come from a file, are not those of this fit."""
    inference = about.choice.inference
    for task in stream.tasks:
        inference.check_sound(task.state, about.model)
    if len({task.state.n_rows for task in stream.tasks}) != 1 or stream.seen.n_rows != stream.tasks[0].state.n_rows:
        raise ValueError("its filters have seen different rows")
    rows = inference.rows(stream.tasks)
    if len(stream.seen.low) != about.n_dims or (rows is not None and rows.shape[1] != about.n_dims):
        raise ValueError("its rows have other dims than its fit")
    inference.check_stream(stream.tasks, posterior)
