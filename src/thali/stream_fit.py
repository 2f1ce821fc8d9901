"""What an estimator can do with an inference that streams: rows in batches, and an estimate of the evidence."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from thali.auto import Choice
from thali.block_fit import BlockFit, check_more
from thali.fit_warnings import warn_of
from thali.in_range import check_finite, numbers_in_range
from thali.row_digests import row_digests
from thali.saving import fingerprint
from thali.stream_protocols import Blockwise, Streaming
from thali.streams import Stream


class StreamFit(BlockFit):
    """A part of `LatentFeatures`."""

    if TYPE_CHECKING:  # what the estimator has
        inference: Any
        inference_: Any
        posterior_: Any
        n_jobs: Any
        max_time: Any
        verbose: Any
        _fit: Any
        _validated: Any
        _adopt: Any
        _stream: Any
        _run_folder: Any

    @available_if(lambda self: isinstance(self.inference, Streaming | Blockwise))
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Take in more rows, one or many; there if the inference streams. y is ignored.

        The first batch is a `fit`: its settings stay, and what refers to the scale of the data (relative priors,
        floors) refers to that batch. With fixed hyperparameters, batches give the same bits as one fit of all rows.
        """
        if isinstance(self.inference, Blockwise):
            self._absorb_batches(iter([X]))
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
        self._stream = None  # in case of an error half-way
        with numbers_in_range():
            n_absorbed, self.stopped_by_ = stream.absorb(
                X, n_jobs=self.n_jobs, max_time=self.max_time, verbose=self.verbose
            )
            if n_absorbed == 0:  # Ctrl-C came before anything was done
                self._stream = stream if stream.chains[0].infos else None
                raise KeyboardInterrupt("interrupted before the first row")
            posterior = stream.posterior()
            check_finite(posterior)
        posterior.row_digests = row_digests(stream.rows)
        partly = f"Stopped by {self.stopped_by_}: took in {n_absorbed} of {len(X)} rows."
        self._stop_words = partly if n_absorbed < len(X) else ""
        self.interrupted_ = self.stopped_by_ == "interrupt"
        self._run_folder = None
        self._stream = stream
        self._adopt(posterior, stream.history(), choice, fingerprint(stream.rows))
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
