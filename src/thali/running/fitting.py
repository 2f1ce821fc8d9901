"""One fit, from the data to what was found: read, choose, calibrate, run."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
from scipy.sparse import issparse

from thali.core.model import Model
from thali.core.protocols.prior import NearRows
from thali.data.fingerprint import fingerprint, fingerprint_of_blocks
from thali.data.row_blocks import RowBlocks, is_iterator, on_disk
from thali.errors import InvalidDataError, InvalidParameterError
from thali.inference.calibration.noise_floor import calibrate
from thali.posteriors import prediction
from thali.rng import make_generator
from thali.running.choose import choose
from thali.running.near_rows import model_of_near_rows
from thali.running.numeric_errors import check_finite, numbers_in_range
from thali.running.progress import Progress
from thali.running.runner import run
from thali.running.settings import Settings
from thali.running.shapes import (
    Job,
    Shape,
    batch_kind,
    forgets_rows,
    going_on,
    kind_of_shape,
    reads_blocks,
    takes_iterator,
)
from thali.running.stopping import Clock
from thali.storage.checkpoint import Checkpoint
from thali.storage.fit import About, Choice, Outcome
from thali.storage.streams import Stream
from thali.storage.tasks import Task

Array = np.ndarray

_CELLS = 2**20  # of a memory map that are read at a time


class Fitting:
    """One call of `fit`, `partial_fit` or `resume`; the clock begins with it.

    estimator: has the parameters, its own way to make a matrix of what it is given, and the names of the dims.
    """

    def __init__(self, estimator: Any, *, distances: Any = None, patient: bool = False) -> None:
        self._estimator, self._validate = estimator, estimator._validated
        self.settings = Settings.of(estimator.get_params(deep=False))
        self._model = self.settings.model
        if distances is not None:
            self._model = model_of_near_rows(self._model, distances)
        self._clock = Clock(self.settings.max_time, patient=patient)

    def fit(self, X: Any, heldout: Any = None) -> Outcome:
        """From nothing."""
        settings, model = self.settings, self._model
        if forgets_rows(settings.inference) and on_disk(X) and settings.checkpoint is None:
            X = _slices(X)
        if takes_iterator(settings.inference) and is_iterator(X):
            batch_kind(settings.inference).refuse(settings.inference, heldout=heldout)
            return self._absorb(X)
        rng = make_generator(settings.random_state)
        data = self._read(X)
        if isinstance(model.prior, NearRows):
            model.prior.check_rows(model.observation.n_owners(data.shape))
        choice = choose(settings.inference, model.prior, model.observation, *data.shape)
        kind = kind_of_shape(choice.inference)
        kind.refuse(choice.inference, target_ess=settings.target_ess, heldout=heldout)
        sample = data.matrix if isinstance(data, RowBlocks) else data
        if isinstance(data, RowBlocks) and data.on_disk:
            sample = model.observation.check_data(data.some_rows(rng, choice.inference.n_start))
        adapted = calibrate(model, sample, self._clock.is_late_to_calibrate)
        about = self._about(adapted, choice, data.shape[1], self._fingerprint(data))
        shape = kind.begin(self._job(about, data, heldout), rng, settings.n_chains)
        if settings.checkpoint is None:
            return self._run(shape)
        with Checkpoint.create(settings.checkpoint, about, data.shape[0], shape.tasks) as kept:
            return self._run(shape, kept)

    def go_on(self, X: Any, before: Outcome | None) -> Outcome:
        """With more rows, or from nothing."""
        if self.settings.checkpoint is not None:
            raise InvalidParameterError(
                "checkpoint is for fit and must be None with partial_fit. "
                f"Got {self.settings.checkpoint!r}; save the fit after a batch instead."
            )
        if takes_iterator(self.settings.inference):
            return self._absorb(iter([X]), before)
        if before is None or before.stream is None:
            return self.fit(X)
        X = check_more(before.about.model.observation, self._validate(X, reset=False))
        return self._run(going_on(self._job(before.about, X), before.stream.copied()))

    def resume(self, kept: Checkpoint, tasks: list[Task], X: Any, heldout: Any = None) -> Outcome:
        """From where a run on disk is."""
        about = kept.about
        if isinstance(about.model.prior, NearRows):  # with the distances that came with the data
            self._model = Model(about.model.prior, self._model.observation)
        kind = kind_of_shape(about.choice.inference)
        kind.refuse(about.choice.inference, target_ess=self.settings.target_ess, heldout=heldout)
        data = self._read(X, kept)
        kept.check_data(data.shape, self._fingerprint(data), is_sparse=issparse(X))
        shape = kind(self._job(about, data, heldout), tasks)
        kept.check_tasks(tasks, shape.check)
        return self._run(shape, kept)

    def _read(self, X: Any, kept: Checkpoint | None = None) -> Any:
        """X as the model takes it: a matrix, or blocks of rows where the inference reads those."""
        inference, observation = self.settings.inference, self._model.observation
        if not (reads_blocks(inference) and on_disk(X)):
            X = self._validate(X, reset=True, sparse=True)
            if kept is None or kept.has_shape(X.shape):  # else the run has its own words
                X = observation.check_data(X)
            return RowBlocks(X, inference.batch_size) if reads_blocks(inference) else X
        blocks = RowBlocks(X, inference.batch_size, lambda rows: check_more(observation, rows))
        self._validate(np.zeros((1, blocks.n_dims)), reset=True)
        return blocks

    def _fingerprint(self, data: Any) -> str:
        """That of the data; of those on disk only if it is needed, since they have to be read for it."""
        if forgets_rows(self.settings.inference) and self.settings.checkpoint is None:
            return ""
        if not isinstance(data, RowBlocks):
            return fingerprint(data)
        if not data.on_disk:
            return fingerprint(data.matrix)
        if self.settings.checkpoint is None:
            return ""
        return fingerprint_of_blocks(data.shape, map(data.block, range(data.n_blocks)))

    def _about(self, model: Model, choice: Choice, n_dims: int, data_fingerprint: str) -> About:
        names = [str(name) for name in getattr(self._estimator, "feature_names_in_", [])]
        return About(self._estimator.get_params(deep=False), model, choice, data_fingerprint, n_dims, names)

    def _job(self, about: About, data: Any, heldout: Any = None) -> Job:
        score = None
        if heldout is not None:
            score = prediction.scorer(data, self._validate(heldout, reset=False))
        return Job(about, data, self.settings.target_ess, score, self._model)

    def _run(self, shape: Shape, kept: Checkpoint | None = None) -> Outcome:
        outcome = self._found(shape, self._drive(shape, kept))
        return outcome._replace(left=kept.left(shape.tasks) if kept else None)

    def _drive(self, shape: Shape, kept: Checkpoint | None = None) -> str | None:
        """What ended the run early, if anything did."""
        with Progress(shape, self.settings.verbose) as progress, numbers_in_range():
            return run(
                shape, self._clock,
                n_jobs=self.settings.n_jobs,
                keep=kept.keep if kept else None,
                watch=(progress, kept.complain) if kept else (progress,),
            )  # fmt: skip

    def _found(self, shape: Shape, stopped_by: str | None) -> Outcome:
        with numbers_in_range():
            outcome = shape.outcome(stopped_by)
            check_finite(outcome.posterior)
        return outcome

    # ---- batches

    def _absorb(self, batches: Iterator[Any], before: Outcome | None = None) -> Outcome:
        """Go on with these batches, or begin with the first of them. Batches until one that fails are kept."""
        stream: Stream | None = None if before is None else before.stream
        shape: Shape
        if before is None or stream is None:
            shape = self._begun(batches)
        else:
            shape = going_on(self._job(before.about, self._checked(batches)), stream.copied())
        failure: BaseException | None = None
        try:
            stopped_by = self._drive(shape)
        except BaseException as error:
            if not shape.n_kept():
                raise
            stopped_by, failure = "error", error
        outcome = self._found(shape, stopped_by)
        if failure is not None and outcome.stream is not None:
            n_rows = outcome.stream.seen.n_rows
            failure.add_note(f"The {n_rows} rows before this batch are kept; partial_fit goes on from there.")
        return outcome._replace(error=failure)

    def _begun(self, batches: Iterator[Any]) -> Shape:
        """A stream that is adapted to the first batch."""
        settings, model = self.settings, self._model
        batch_kind(settings.inference).refuse(
            settings.inference, target_ess=settings.target_ess, checkpoint=settings.checkpoint
        )
        first = next(batches, None)
        if first is None:
            raise InvalidDataError("X must bring a batch of rows at least. Got an iterator with none.")
        first = model.observation.check_data(self._validate(first, reset=True, sparse=True))
        choice = choose(settings.inference, model.prior, model.observation, *first.shape)
        adapted = calibrate(model, first, self._clock.is_late_to_calibrate)
        about = self._about(adapted, choice, first.shape[1], "")
        job = self._job(about, chain([first], self._checked(batches)))
        return batch_kind(choice.inference).begin(job, make_generator(settings.random_state), 1)

    def _checked(self, batches: Iterator[Any]) -> Iterator[Array]:
        for batch in batches:
            yield check_more(self._model.observation, self._validate(batch, reset=False, sparse=True))


def _slices(X: Array) -> Iterator[Array]:
    """The rows of a memory map, some at a time."""
    step = max(_CELLS // max(X.shape[1], 1), 1) if X.ndim == 2 else 1
    return (X[start : start + step] for start in range(0, len(X), step))


@contextmanager
def as_before_if_it_fails(estimator: Any, stream: Stream | None = None) -> Iterator[None]:
    """After an error the estimator has the attributes that it had before; the error says what became of a stream."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException as error:
        vars(estimator).clear()
        vars(estimator).update(before)
        if stream is not None:
            error.add_note(
                f"Of this batch no row was taken in; the {stream.seen.n_rows} rows before it are kept, "
                "and partial_fit goes on from there."
            )
        raise


def check_more(observation: Any, X: Array) -> Array:
    """X, once the observation model has found nothing wrong; blocks may lack whole dims, all of X may not."""
    if issparse(X):
        return observation.check_data(X)
    missing = np.isnan(X)
    absent = missing.all(axis=0) & ~missing.all(axis=1, keepdims=True)
    observation.check_data(np.where(absent, 0.0, X) if absent.any() else X)
    return X
