"""Rows that come once and are forgotten: an array, an iterator of batches, or one call of `partial_fit` after another.

What is kept does not grow with the number of rows, and does not depend on how they are batched. The first rows, to
which relative priors refer and with which features begin, are kept while they are few: each time their number has
doubled what was learned begins anew with all of them. Events are told once that is over.
"""

import time
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from thali.core.events import add_notes, check_notes
from thali.core.model import Model
from thali.data.far_rows import Seen, warn_of_far_rows
from thali.data.young_rows import YoungRows
from thali.inference.calibration.noise_floor import calibrate
from thali.running.shapes.shape import Job, Shape
from thali.running.stopping import Clock
from thali.storage.fit import About, Outcome
from thali.storage.streams import RowStream, Stream
from thali.storage.tasks import Task

Array = np.ndarray
Generator = np.random.Generator

N_YOUNG = 64  # rows to which relative priors refer in the end
_STEP = 0.2  # seconds that a step should take
_FEW = 64  # rows of the first one


class FlatRows(Shape):
    """A step takes in some rows of the batch at hand. How many depends on the clock; the result does not.

    A batch that ends in an error is not taken in. One filter suffices: it is not random.
    """

    word = "stream"
    in_step = True
    useless: ClassVar[tuple[str, ...]] = ("target_ess", "heldout")
    why_useless = "is for samplers that draw again and again; a stream ends with its last row"

    def __init__(self, job: Job, tasks: list[Task], seen: Seen | None = None) -> None:
        """seen: what came before the rows of X."""
        super().__init__(job, tasks)
        self._matrix = None if isinstance(job.X, Iterator) else job.X
        self._batches: Iterator[Array] = job.X if self._matrix is None else iter([self._matrix])
        self._seen = seen or Seen.nothing(self.about.n_dims)
        self._batch: Array | None = None
        self._at = 0  # rows of the batch that were taken in
        self._safe: tuple[Any, ...] = ()  # everything as it was before the batch
        self._size = _FEW
        self._ended = False
        self.n_taken = 0  # rows

    @classmethod
    def first_tasks(cls, job: Job, rng: Generator, n_chains: int) -> list[Task]:
        return [Task(0, rng)]

    def check(self, task: Task) -> None:
        """Of a run on disk: the rows that it has seen are the first ones of X."""
        if task.state is not None:
            check_state(task.state, self.about)
            if not 0 <= task.state.state.n_rows <= len(self.job.X):
                raise ValueError("it has seen more rows than there are")
            check_notes(task.infos)

    # ---- the work

    def advance(self, task: Task, clock: Clock) -> None:
        if self._batch is None and not self._next_batch(task):
            return
        assert self._batch is not None
        begin = time.monotonic()
        rows = self._batch[self._at : self._at + self._size]
        try:
            task.state = self._after(task, rows)
        except BaseException:
            self._undo(task)
            raise
        self._at += len(rows)
        self.n_taken += len(rows)
        self._seen = self._seen.after(rows)
        if self._at == len(self._batch):
            self._batch = None
            if self._matrix is not None:
                self._ended = True
        seconds = max(time.monotonic() - begin, 1e-6)
        self._size = int(np.clip(len(rows) * _STEP / seconds, 1, 4 * max(len(rows), 1)))

    def _next_batch(self, task: Task) -> bool:
        self._batch = next(self._batches, None)
        if self._batch is None:
            self._ended = True
            return False
        warn_of_far_rows(self._seen, self._batch)
        self._at = 0
        if self._matrix is not None and task.state is not None and self._seen.n_rows == 0:  # a run that goes on
            self._at = task.state.state.n_rows
            self._seen = self._seen.after(self._batch[: self._at])
        drawn = task.rng.bit_generator.state
        self._safe = task.state, drawn, len(task.infos), self._seen, self.n_taken
        return True

    def _undo(self, task: Task) -> None:
        task.state, task.rng.bit_generator.state, n_infos, self._seen, self.n_taken = self._safe
        del task.infos[n_infos:]
        self._batch = None

    def _after(self, task: Task, X: Array) -> RowStream:
        """The stream after the rows of X."""
        stream = task.state
        if stream is None:
            stream = self._begun(task, X)
        while stream.young is not None and len(X):
            young = stream.young.matrix()
            n_due = min(2 * max(stream.n_begun, 1), self._n_young(stream.given)) - len(young)  # until it begins anew
            some, X = X[:n_due], X[n_due:]
            young = np.vstack([young, some])
            if len(some) == n_due:
                stream = self._anew(task, stream, young)
            else:
                state, _ = self.inference.absorb(task.rng, stream.state, some)
                stream = stream._replace(state=state, young=YoungRows.of(young))
        if len(X):
            state, notes = self.inference.absorb(task.rng, stream.state, X)
            add_notes(task.infos, notes)
            stream = stream._replace(state=state)
        return stream

    def _begun(self, task: Task, X: Array) -> RowStream:
        """Before the first row. Of batches that is all there is to adapt to, since each has one."""
        given, model = self.model, self.model
        if self._matrix is None and self.job.given is not None:
            given = self.job.given
            model = calibrate(given, _seen_throughout(X[:1]))
        state = self.inference.begin(task.rng, model, X.shape[1])
        n_young = self._n_young(given)
        if n_young == 0:
            return RowStream(state)
        at_once = self._matrix is not None and len(self._matrix) >= n_young  # what comes before would be undone
        return RowStream(state, YoungRows.of(X[:0]), given, n_young if at_once else 1)

    def _n_young(self, given: Model) -> int:
        """How many rows are kept until what is learned begins with them for the last time."""
        n: int = self.inference.n_young
        return max(n, N_YOUNG) if self._matrix is None and (given.prior.learned or given.observation.learned) else n

    def _anew(self, task: Task, stream: RowStream, young: Array) -> RowStream:
        """Begun with these rows, all so far. What happens to features is told from the last time on."""
        model = calibrate(stream.given, _seen_throughout(young))
        state = self.inference.begin(task.rng, model, young.shape[1])
        state, notes = self.inference.absorb_first(task.rng, state, young)
        if len(young) < self._n_young(stream.given):
            return RowStream(state, YoungRows.of(young), stream.given, len(young))
        add_notes(task.infos, notes)
        return RowStream(state)

    def is_done(self, task: Task) -> bool:
        return self._ended

    def is_owed(self, task: Task, clock: Clock) -> bool:
        return task.state is None

    def n_kept(self) -> int:
        return self.n_taken

    def outcome(self, stopped_by: str | None) -> Outcome:
        task = self.tasks[0]
        state = task.state.state
        posterior = self.inference.posterior(state)
        words = f"Stopped by {stopped_by} after {state.n_rows} rows." if stopped_by in ("interrupt", "max_time") else ""
        about = self.about._replace(data_fingerprint="", model=posterior.model)
        stream = Stream(self.tasks, self._seen)
        return Outcome(about, posterior, self.inference.history(state), stopped_by, stream, words)

    # ---- for the progress

    def n_steps(self) -> int | None:
        return None if self._matrix is None else len(self._matrix)

    def n_made(self, task: Task) -> int:
        return 0 if task.state is None else task.state.state.n_rows

    def note(self, task: Task, *, thorough: bool) -> str:
        if task.state is None:
            return "at its first row"
        return f"{task.state.state.n_rows} rows  K={task.state.state.n_features}"


def _seen_throughout(X: Array) -> Array:
    """X with another dim in place of each that no row has, so that all have a scale."""
    absent = np.isnan(X).all(axis=0)
    if not absent.any():
        return X
    other = np.zeros(len(X)) if absent.all() else X[:, int(np.argmin(absent))]
    return np.where(absent, other[:, None], X)


class FlatBatches(FlatRows):
    """Of batches, which cannot be read again."""

    useless = ("target_ess", "heldout", "checkpoint")
    why_useless = "must be None with batches of rows, which come once"

    def __init__(self, job: Job, tasks: list[Task], seen: Seen | None = None) -> None:
        super().__init__(job, tasks, seen)
        tasks[0].infos = []  # events are those of this call


def check_state(stream: Any, about: About) -> None:
    """A ValueError if this state, which comes from a file, is not that of this fit."""
    if not isinstance(stream, RowStream):
        raise ValueError("its state is none of a stream of rows")
    about.choice.inference.check_sound(stream.state, about.model, about.n_dims)
    if stream.young is not None:
        stream.young.check(stream.given, about.model, stream.state.n_rows)
        n_young = max(about.choice.inference.n_young, N_YOUNG)
        if not 1 <= stream.n_begun <= n_young or not stream.young.n_rows < n_young:
            raise ValueError("its first rows are not as many as they can be")


def check_stream(stream: Stream, about: About) -> None:
    """A ValueError if this stream, which comes from a file, is not that of this fit."""
    if len(stream.tasks) != 1:
        raise ValueError("it has more than one filter")
    check_state(stream.tasks[0].state, about)
    check_notes(stream.tasks[0].infos)
    if stream.seen.n_rows != stream.tasks[0].state.state.n_rows or len(stream.seen.low) != about.n_dims:
        raise ValueError("its rows have other dims than its fit, or are more or fewer")
