"""What an estimator can do with an inference that streams: rows in batches, and an estimate of the evidence."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from thali.core.protocols.inference import Blockwise, Streaming
from thali.data.far_rows import Seen, warn_of_far_rows
from thali.data.row_digests import row_digests
from thali.running.block_fit import BlockFit, as_before_if_it_fails, check_more
from thali.running.choose import Choice
from thali.running.fit_warnings import warn_of
from thali.running.numeric_errors import check_finite, numbers_in_range
from thali.running.rows import Stream
from thali.running.stopping import Allowance
from thali.storage.fit import fingerprint

_KEPT = "Of this batch no row was taken in; the {} rows before it are kept, and partial_fit goes on from there."


def as_before_if_a_stream_fails(fit: Callable[..., Any]) -> Callable[..., Any]:
    """After an error an estimator with a stream of rows is what it was before the call, the stream included."""

    @wraps(fit)
    def all_or_nothing(self: Any, *args: Any, **settings: Any) -> Any:
        if not isinstance(self.inference, Streaming):
            return fit(self, *args, **settings)
        stream = getattr(self, "_stream", None)
        try:
            with as_before_if_it_fails(self):
                return fit(self, *args, **settings)
        except BaseException as error:
            if stream is not None:
                error.add_note(_KEPT.format(len(stream.rows)))
            raise

    return all_or_nothing


class StreamFit(BlockFit):
    """A part of `LatentFeatures`."""

    if TYPE_CHECKING:  # what the estimator has
        inference: Any
        inference_: Any
        posterior_: Any
        n_jobs: Any
        _allowed: Any
        max_time: Any
        verbose: Any
        _fit: Any
        _validated: Any
        _adopt: Any
        _stream: Any
        _run_folder: Any

    @available_if(lambda self: isinstance(self.inference, Streaming | Blockwise))
    @as_before_if_a_stream_fails
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Take in more rows, one or many; there if the inference streams. y is ignored.

        The first batch is a `fit`: its settings stay, and what refers to the scale of the data (relative priors,
        floors) refers to that batch. With fixed hyperparameters, batches give the same bits as one fit of all rows.
        A batch that ends in an error is not taken in: all is as it was before, and the next one may follow. A row that
        lies far beyond all before it gives a warning, before anything is done: make it an error to keep such rows out.
        """
        self._allowed = Allowance(self.max_time)
        if isinstance(self.inference, Blockwise):
            self._absorb_batches(iter([X]), getattr(self, "_stream", None))
            warn_of(self, judged=False)
            return self
        stream = getattr(self, "_stream", None)
        if stream is None:
            self._fit(X)
        else:
            X = check_more(stream.model.observation, self._validated(X, reset=False))
            self._absorb(stream, X, self.inference_)
        warn_of(self, judged=False)
        return self

    def _absorb(self, stream: Stream, X: np.ndarray, choice: Choice) -> Self:
        """The stream with the rows of X, or as it was if there is an error anywhere on the way."""
        warn_of_far_rows(Seen.nothing(X.shape[1]).after(stream.rows), X)
        before = stream.snapshot()
        try:
            with numbers_in_range():
                n_absorbed, self.stopped_by_ = stream.absorb(
                    X, n_jobs=self.n_jobs, max_time=self._allowed.left(), verbose=self.verbose
                )
                if n_absorbed == 0:  # Ctrl-C came before anything was done
                    raise KeyboardInterrupt("interrupted before the first row")
                posterior = stream.posterior()
                check_finite(posterior)
            posterior.row_digests = row_digests(stream.rows)
            partly = f"Stopped by {self.stopped_by_}: took in {n_absorbed} of {len(X)} rows."
            self._stop_words = partly if self.stopped_by_ else ""
            self.interrupted_ = self.stopped_by_ == "interrupt"
            self._run_folder = None
            self._adopt(posterior, stream.history(), choice, fingerprint(stream.rows))
            self._stream = stream
        except BaseException:
            stream.restore(before)
            raise
        return self

    @property
    def log_evidence_(self) -> float:
        """log of the mean over all filters of their unbiased estimates of p(X); there if the inference gives one.

        `posterior_.filters` has the estimate of each, and `posterior_.filters.evidence` the standard error, too.
        """
        filters = self.posterior_.filters if hasattr(self, "posterior_") else None
        if filters is None:
            raise AttributeError("log_evidence_ is there after a fit by an inference that estimates it: ParticleFilter")
        return filters.evidence[0]
