"""What an estimator can do with an inference that takes blocks of rows: data on disk, iterators, batch after batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import issparse

from thali.core.model import Model
from thali.data.row_blocks import RowBlocks, is_iterator, on_disk
from thali.data.row_digests import row_digests
from thali.errors import InvalidDataError
from thali.inference.calibration.noise_floor import calibrate
from thali.rng import make_generator
from thali.running.blocks import BlockRun
from thali.running.choose import Choice, choose
from thali.running.numeric_errors import check_finite, numbers_in_range
from thali.running.restarts import refuse_for_samplers
from thali.storage.fit import fingerprint

Array = np.ndarray


class BlockFit:
    """A part of `LatentFeatures`."""

    if TYPE_CHECKING:  # what the estimator has
        inference: Any
        random_state: Any
        _allowed: Any
        verbose: Any
        checkpoint: Any
        target_ess: Any
        stopped_by_: str | None
        interrupted_: bool
        inference_: Any
        _model: Any
        _check_settings: Any
        _validated: Any
        _adopt: Any
        _stream: Any
        _run_folder: Any
        _stop_words: str

    def _fit_blocks(self, model: Model, X: Any, heldout: Any) -> Self:
        """Fit an array in memory, a memory map that stays on disk, or an iterator of batches, each seen once."""
        inference = self.inference
        refuse_for_samplers(inference, checkpoint=self.checkpoint, target_ess=self.target_ess, heldout=heldout)
        if is_iterator(X):
            return self._absorb_batches(X, None)
        with as_before_if_it_fails(self):
            return self._fit_rows(model, X)

    def _fit_rows(self, model: Model, X: Any) -> Self:
        inference, rng = self.inference, make_generator(self.random_state)
        kept = not on_disk(X)
        if kept:
            X = model.observation.check_data(self._validated(X, reset=True, sparse=True))
            blocks, sample = RowBlocks(X, inference.batch_size), X
        else:
            blocks = RowBlocks(X, inference.batch_size, lambda rows: check_more(model.observation, rows))
            self._validated(np.zeros((1, blocks.n_dims)), reset=True)
            sample = model.observation.check_data(blocks.some_rows(rng, inference.n_start))
        choice = choose(inference, model.prior, model.observation, *X.shape)
        run = BlockRun(rng, inference, calibrate(model, sample, self._allowed.is_late), model)
        with numbers_in_range():
            complete, self.stopped_by_ = run.fit(blocks, max_time=self._allowed.left(), verbose=self.verbose)
        kept = kept and complete
        self._stop_words = ""
        if not complete:
            self._stop_words = f"Stopped by {self.stopped_by_}: saw {run.state.n_seen} of {blocks.n_rows} rows."
        elif self.stopped_by_ == "interrupt":
            self._stop_words = f"Interrupted: kept the state of pass {len(run.trace)}."
        self._take(run, choice, blocks.n_blocks if kept else None, X if kept else None)
        run.forget_blocks()
        self._stream = run
        return self

    def _absorb_batches(self, batches: Iterator[Any], run: BlockRun | None) -> Self:
        """Go on with these batches, or begin with the first of them. Batches until one that fails are kept."""
        past, failure = None if run is None else run.snapshot(), None
        with as_before_if_it_fails(self):
            try:
                if run is None:
                    run, choice, batches = self._begun(batches)
                else:
                    choice = self.inference_
                n_before = run.state.n_seen if run.state else 0
                try:
                    with numbers_in_range():
                        self.stopped_by_ = run.absorb(
                            self._checked(run, batches), max_time=self._allowed.left(), verbose=self.verbose
                        )
                except BaseException as error:
                    if not run.state or run.state.n_seen == n_before:
                        raise
                    self.stopped_by_, failure = "error", error
                self._take(run, choice, None, None)
                self._stream = run
            except BaseException:
                if run is not None and past is not None:
                    run.restore(past)
                raise
        if failure is not None:
            failure.add_note(f"The {run.state.n_seen} rows before this batch are kept; partial_fit goes on from there.")
            raise failure
        stopped = f"Stopped by {self.stopped_by_} after {run.state.n_seen} rows."
        self._stop_words = stopped if self.stopped_by_ else ""
        return self

    def _begun(self, batches: Iterator[Any]) -> tuple[BlockRun, Choice, Iterator[Any]]:
        """(a run adapted to the first batch, why it is done so, all batches)."""
        model = self._model()
        self._check_settings()
        refuse_for_samplers(self.inference, checkpoint=self.checkpoint, target_ess=self.target_ess)
        first = next(batches, None)
        if first is None:
            raise InvalidDataError("X must bring a batch of rows at least. Got an iterator with none.")
        first = model.observation.check_data(self._validated(first, reset=True, sparse=True))
        choice = choose(self.inference, model.prior, model.observation, *first.shape)
        adapted = calibrate(model, first, self._allowed.is_late)
        run = BlockRun(make_generator(self.random_state), self.inference, adapted, model)
        return run, choice, chain([first], batches)

    def _checked(self, run: BlockRun, batches: Iterator[Any]) -> Iterator[Array]:
        for batch in batches:
            yield check_more(run.model.observation, self._validated(batch, reset=False, sparse=True))

    def _take(self, run: BlockRun, choice: Choice, n_blocks: int | None, X: Any) -> Self:
        """X are the rows whose factors were kept; None if they were not."""
        posterior = self.inference.posterior(run.state, n_blocks)
        posterior.row_digests = None if X is None else row_digests(X)
        with numbers_in_range():
            check_finite(posterior)
        self.interrupted_ = self.stopped_by_ == "interrupt"
        self._run_folder = None
        self._adopt(posterior, run.history(), choice, "" if X is None else fingerprint(X))
        return self


@contextmanager
def as_before_if_it_fails(estimator: Any) -> Iterator[None]:
    """After an error the estimator has the attributes that it had before."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def check_more(observation: Any, X: Array) -> Array:
    """X, once the observation model has found nothing wrong; blocks may lack whole dims, all of X may not."""
    if issparse(X):
        return observation.check_data(X)
    missing = np.isnan(X)
    absent = missing.all(axis=0) & ~missing.all(axis=1, keepdims=True)
    observation.check_data(np.where(absent, 0.0, X) if absent.any() else X)
    return X
