"""The loop of a stream: rows are checked, wait for their batch and are handed over; features, bad rows and checkpoints
are told. Whatever ends it, rows that were read before are taken in, and the fit is saved."""

import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from thali.cli.console import count, leave_out_convergence
from thali.cli.streaming.arriving import Arriving
from thali.cli.streaming.events import Events, RowLines, of_features
from thali.cli.streaming.panel import Panel, Status
from thali.data.waiting_rows import WaitingRows
from thali.errors import InvalidDataError, InvalidFileError, words
from thali.io.arriving.rows import ArrivingRows, BadLine, Found, Rows
from thali.running.fitting import check_more
from thali.running.settings import model_of
from thali.running.stopping import on_stop_signal

if TYPE_CHECKING:
    from thali.estimator import LatentFeatures

_TURN = 0.1  # seconds that are waited for rows
_MOST_SAID = 20  # bad rows on standard error; all of them are among the events


class Every(NamedTuple):
    """How often a checkpoint is kept."""

    rows: float = np.inf
    seconds: float = np.inf


class Plan(NamedTuple):
    """How a stream is run."""

    batch: int  # rows
    skip_bad: bool  # rather than to stop at a bad row
    n_skip: int  # rows at the beginning that the fit has seen
    checkpoint: Path | None
    every: Every


class StreamRun:
    """One stream, from where the fit is to the end of the rows."""

    def __init__(
        self,
        model: "LatentFeatures",
        reader: ArrivingRows,
        plan: Plan,
        panel: Panel,
        events: Events,
        row_lines: RowLines | None = None,
    ) -> None:
        self.model, self.reader, self.plan = model, reader, plan
        self.n_before = self.n_rows = getattr(model, "n_samples_seen_", 0)
        self.n_bad = self.n_skipped = 0
        self.stopped_by: str | None = None
        self._panel, self._events, self._row_lines = panel, events, row_lines
        self._waiting = WaitingRows(plan.batch, self.n_before, freely=model.inference.shape == "rows")
        self._saved_at, self._saved_rows = time.monotonic(), self.n_before
        self._has_failed = False  # to take in a batch
        self._said_reading = False

    def __call__(self, arriving: Arriving) -> None:
        """Until nothing more comes, or something fails; then all that was read before is taken in and saved."""
        failure: Exception | None = None
        with self._heard(), ThreadPoolExecutor(1) as worker, self._stoppable(arriving):
            try:
                self._take_all(arriving, worker)
            except Exception as error:
                failure = error
            while self._waiting.n_waiting and not self._has_failed:
                try:
                    self._hand_over(self._waiting.rest(), worker)
                except Exception as error:  # of an earlier row
                    failure = error
            if failure is not None:
                self.stopped_by = "error"
            try:
                self._save()
            finally:
                self._events.tell("summary", **self.summary())
                self._events.flush()
        if failure is not None:
            raise failure

    def _take_all(self, arriving: Arriving, worker: Executor) -> None:
        while not arriving.has_ended:
            for found in arriving.get(_TURN):
                self._take(found)
            self._say_reading()
            self._hand_over(self._waiting.full(), worker)
            if self._waiting.any_will_do and arriving.is_empty:
                self._hand_over(self._waiting.rest(), worker)
            if self._is_time_to_save():
                self._save_if_possible()
            self._events.flush()
            if not self._events.is_read and self.stopped_by is None:
                self.stopped_by = "closed output"
                arriving.stop()
            self._panel.show(self._status())

    # ---- rows

    def _take(self, found: Found) -> None:
        if isinstance(found, Rows):
            self._put(found.X, found.lines)
        elif isinstance(found, BadLine):
            self._refuse(found)
        else:
            self._remark(found.words, line=found.line)

    def _put(self, X: np.ndarray, lines: np.ndarray) -> None:
        """With the rows that wait, unless the fit has seen them: it saw those that its observation model takes."""
        n_left = self.plan.n_skip - self.n_skipped
        if n_left > 0:
            good = np.flatnonzero([self._fault(row, line) is None for row, line in zip(X, lines, strict=True)])
            n = min(n_left, len(good))
            self.n_skipped += n
            if self.n_skipped < self.plan.n_skip:
                return
            first = good[n - 1] + 1
            X, lines = X[first:], lines[first:]
        if len(X):
            self._waiting.put(X, lines)

    def _fault(self, row: np.ndarray, line: int) -> str | None:
        """Why the observation model does not take a row."""
        try:
            check_more(self._observation, row[None, :])
        except InvalidDataError as error:
            return f"{self.reader.path}, line {line}: {error}"
        return None

    def _sort_out(self, X: np.ndarray, lines: np.ndarray, error: InvalidDataError) -> None:
        """Put the good rows of a batch back that was refused; the error, if they are all good on their own."""
        faults = [self._fault(row, line) for row, line in zip(X, lines, strict=True)]
        good = np.array([fault is None for fault in faults])
        if good.all():
            raise error
        end = len(X) if self.plan.skip_bad else int(np.argmin(good))  # else what follows a bad row is not taken
        if not self.plan.skip_bad:
            self._waiting.leave_out()
        self._waiting.put_back(X[:end][good[:end]], lines[:end][good[:end]], len(X))
        self._has_failed = False
        for fault, line in zip(faults, lines.tolist(), strict=True):
            if fault is not None:
                self._refuse(BadLine(line, fault))

    @property
    def _observation(self) -> Any:
        return model_of(self.model.observation, self.model.prior).observation

    def _refuse(self, bad: BadLine) -> None:
        self.n_bad += 1
        self._events.tell("bad_row", line=bad.line, why=bad.why)
        if not self.plan.skip_bad:
            raise InvalidDataError(
                f"{bad.why}\nThe rows before that line were taken in, and none after it; --bad-rows skip leaves such "
                "lines out and goes on"
            )
        if self.n_bad <= _MOST_SAID:
            last = " (more of them are told on standard output only)" if self.n_bad == _MOST_SAID else ""
            self._panel.say(f"left out: {bad.why}{last}", style="yellow")

    def _remark(self, text: str, **facts: Any) -> None:
        self._events.tell("remark", words=text, **facts)
        self._panel.say(text, style="yellow")

    def _say_reading(self) -> None:
        if self.reader.has_begun and not self._said_reading:
            self._said_reading = True
            read = f"{count(self.reader.n_dims or 0, 'dim')}; {'; '.join(self.reader.reading)}"
            self._panel.say(f"reading {self.reader.path}: {read}", talk=True)

    # ---- batches

    def _hand_over(self, batches: Iterable[tuple[np.ndarray, np.ndarray]], worker: Executor) -> None:
        """In a thread of its own, where no signal ends it half-way."""
        for X, lines in batches:
            n_features = getattr(self.model, "n_components_", 0)
            novelty = self._novelty(X) if self._row_lines else None
            self._has_failed = True
            try:
                worker.submit(self.model.partial_fit, self._named(X)).result()
            except InvalidDataError as error:
                self._sort_out(X, lines, error)
                continue
            self._has_failed = False
            first, self.n_rows = self.n_rows + 1, self.n_rows + len(X)
            for facts in of_features(self.model, n_features, self.n_rows):
                self._events.tell(**facts)
                self._panel.note(f"row {facts['row']}: {_in_words(facts)}")
            if self._row_lines and novelty is not None:
                word, codes = self._codes(X)
                self._row_lines.tell(first, lines, codes, word, novelty)
            if self._is_time_to_save():
                self._save_if_possible()
            self._events.flush()
            self._panel.show(self._status())

    def _named(self, X: np.ndarray) -> Any:
        """With the names of the dims, if the fit knows them or begins with these rows."""
        fitted = hasattr(self.model, "n_components_")
        names = getattr(self.model, "feature_names_in_", None) if fitted else self.reader.dim_names
        if names is None:
            return X
        from pandas import DataFrame

        return DataFrame(X, columns=list(names))

    def _novelty(self, X: np.ndarray) -> np.ndarray:
        """By the fit before these rows; unknown before the first ones."""
        if not hasattr(self.model, "n_components_"):
            return np.full(len(X), np.nan)
        return self.model.novelty(self._named(X))

    def _codes(self, X: np.ndarray) -> tuple[str, np.ndarray]:
        if self._observation.owners == "dims":
            return "scores", self.model.transform(self._named(X))
        return "presence", self.model.presence(self._named(X))

    # ---- checkpoints

    def _is_time_to_save(self) -> bool:
        rows, seconds = self.plan.every
        n_new = self.n_rows - self._saved_rows
        return n_new > 0 and (n_new >= rows or time.monotonic() - self._saved_at >= seconds)

    def _save_if_possible(self) -> None:
        """A checkpoint in the middle: if it cannot be kept, the rows go on."""
        try:
            self._save()
        except InvalidFileError as error:
            self._saved_at = time.monotonic()
            self._saved_rows = self.n_rows
            self._remark(f"warning: {error}")

    def _save(self) -> None:
        path = self.plan.checkpoint
        if path is None or self.n_rows == self._saved_rows:
            return
        jobs = self.model.n_jobs
        self.model.set_params(verbose=None, n_jobs=None)  # the file does not depend on them
        try:
            self.model.save(path)
        finally:
            self.model.set_params(verbose=False, n_jobs=jobs)
        self._saved_at, self._saved_rows = time.monotonic(), self.n_rows
        self._events.tell("checkpoint", row=self.n_rows, file=str(path))

    # ---- what there is to say

    def summary(self) -> dict[str, Any]:
        """Where the stream ended, in plain numbers."""
        about: dict[str, Any] = {
            "rows": self.n_rows,
            "new_rows": self.n_rows - self.n_before,
            "skipped_rows": self.n_skipped,
            "bad_rows": self.n_bad,
            "waiting_rows": self._waiting.n_waiting,
            "stopped_by": self.stopped_by,
            "checkpoint": None if self.plan.checkpoint is None else str(self.plan.checkpoint),
        }
        if hasattr(self.model, "n_components_"):
            from thali.cli.summary import summarise

            found = summarise(self.model)
            kept = ("n_persistent", "n_features", "n_features_interval_90", "k_posterior", "hyperparameters")
            about |= {name: found[name] for name in kept}
        return about

    def _status(self) -> Status:
        n_features = getattr(self.model, "n_components_", None)
        saved = None if self.plan.checkpoint is None else self._saved_rows
        return Status(self.n_rows, self.n_rows - self.n_before, self.n_bad, n_features, self._waiting.n_waiting, saved)

    @contextmanager
    def _stoppable(self, arriving: Arriving) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the reading; a second one ends everything."""

        def stop() -> None:
            if self.stopped_by == "interrupt":
                raise KeyboardInterrupt("interrupted twice; what came since the last checkpoint is not saved")
            self.stopped_by = "interrupt"
            arriving.stop()

        with on_stop_signal(stop):
            yield

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Warnings of the fit become remarks, each once."""
        said: set[str] = set()

        def speak(message: Any, *_: Any, **__: Any) -> None:
            text = words(message)
            if text not in said and len(said) < 1000:
                said.add(text)
                self._remark(f"warning: {text}")

        with warnings.catch_warnings():
            warnings.simplefilter("always")
            leave_out_convergence()
            warnings.showwarning = speak
            yield


def _in_words(facts: dict[str, Any]) -> str:
    if facts["event"] == "features":
        return f"{count(facts['n_features'], 'feature')}, {facts['before']} before"
    return f"feature {facts['feature']} {facts['event']}"
