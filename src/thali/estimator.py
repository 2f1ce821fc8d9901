"""LatentFeatures: the scikit-learn face of thali. It validates, delegates, and shows what was found."""

import os
from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from thali.core.events import Event
from thali.core.observation import Observation
from thali.core.spec import Spec
from thali.data.fingerprint import fingerprint
from thali.data.plain_numbers import plain_numbers
from thali.data.row_blocks import check_squares
from thali.data.sparse_input import checked_csr, issparse
from thali.errors import (
    IncompatibleModelError,
    InvalidDataError,
    InvalidDataTypeError,
    InvalidFileError,
    InvalidParameterError,
)
from thali.posteriors import prediction
from thali.posteriors.encoding import encode
from thali.rng import make_generator
from thali.running.fit_warnings import warn_of
from thali.running.fitting import Fitting, as_before_if_it_fails
from thali.running.near_rows import Near, distances_of, seen_from
from thali.running.settings import model_of
from thali.running.shapes import forgets_rows, takes_batches
from thali.storage import fit as saving
from thali.storage.fit import Outcome
from thali.verdicts.judge import judge

Array = np.ndarray


class LatentFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Find which hidden features the rows of X are made of, and how many there are.

    Parameters
    ----------
    observation : Observation or None
        How a row comes about from its features. None means LinearGaussian().
    prior : Prior or None
        The prior over which row has which feature. None means IBP().
    inference : Inference or "auto"
        How the posterior is found, such as CollapsedGibbs(n_draws=1000). "auto" chooses by the model and the data.
    n_chains : int
        Independent chains (or filters), compared to judge convergence. An optimiser has restarts instead.
    n_jobs : int or None
        Threads. None or -1 means as many as there are cores. The result does not depend on it.
    random_state : int, Generator, RandomState or None
        An integer makes the run reproducible bit for bit.
    verbose : bool or None
        True or 1 shows progress, False or 0 does not. None shows it on a terminal.
    max_time : float or None
        Seconds after which a fit ends, with what it has by then. `check()` says what that is worth.
    target_ess : float or None
        The sampling ends as soon as every label-free summary has this effective sample size and the chains agree.
        Where that is depends on the draws alone, not on the clock.
    checkpoint : path or None
        A folder in which a run is kept every few seconds. After a crash, Ctrl-C or `max_time`,
        `thali.resume(folder, X)` goes on to the same bits. `save` removes it once the run is finished.

    Attributes
    ----------
    n_components_ : int
        Number of features that persist, most frequent first.
    components_ : ndarray of shape (n_components_, n_dims)
        Their posterior means.
    loadings_presence_ : ndarray of shape (n_components_, n_dims)
        P(a loading is not zero), in models whose dims have features or lack them (SparseFactorAnalysis).
    stability_ : ndarray of shape (n_components_,)
        The share of all draws that have each.
    k_posterior_ : dict
        {K: probability} of the number of features in use at a time, those included that come and go.
    posterior_ : Posterior
        All draws, or the factors of a variational fit.
    history_ : dict of ndarray
        Traces, warm-up included.
    inference_ : Choice
        What was used, and why.
    converged_ : bool
        Whether all chains agree. `check()` says it in words.
    diagnostics_ : dict
        R-hat and effective sample size by summary.
    stopped_by_ : str or None
        None if the fit came to its end, else "interrupt", "max_time" or "target_ess".
    interrupted_ : bool
        Whether Ctrl-C or SIGTERM ended the fit early. What was found until then is kept.
    events_ : list of Event
        What happened to features in the last `fit` or `partial_fit`, from an inference that forgets its rows.
    n_samples_seen_ : int
        Rows that came so far, where the fit can go on with more.
    log_evidence_ : float
        An estimate of log p(X), from an inference that gives one.
    """

    def __init__(
        self,
        observation: Any = None,
        prior: Any = None,
        inference: Any = "auto",
        *,
        n_chains: int = 4,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool | None = None,
        max_time: float | None = None,
        target_ess: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.observation = observation
        self.prior = prior
        self.inference = inference
        self.n_chains = n_chains
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.max_time = max_time
        self.target_ess = target_ess
        self.checkpoint = checkpoint

    # ---- fitting

    def fit(self, X: Any, y: Any = None, *, heldout: Any = None, **near: Unpack[Near]) -> Self:
        """Find the posterior given X (n_rows, n_dims); NaN cells are missing. y is ignored.

        `heldout` may hold the values of cells that are missing in X: the progress then shows how well they are
        predicted. The fit does not depend on them. A fit that has not converged ends with a ConvergenceWarning.
        With `prior=DistanceDependentIBP()` one of `times` (n_rows,), `coordinates` (n_rows, n_coordinates) and
        `distances` (n_rows, n_rows) says how far rows are from each other; NaN is not allowed, inf is. Distances need
        not be symmetric: row i then links to row j by distances[i, j].
        An inference by blocks of rows, or one that forgets them, also takes a memory map, which stays on disk, or an
        iterator of batches. After an error all is as it was before.
        """
        with as_before_if_it_fails(self):
            outcome = self._adopt(self._fitting(distances=distances_of(**near)).fit(X, heldout))
        return self._told(outcome)

    @available_if(lambda self: takes_batches(self.inference))
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Take in more rows, one or many; there if the inference streams. y is ignored.

        The first batch is a `fit`: its settings stay, and what refers to the scale of the data (relative priors,
        floors) refers to that batch. With fixed hyperparameters, batches give the same bits as one fit of all rows.
        A batch that ends in an error is not taken in: all is as it was before, and the next one may follow. A row that
        lies far beyond all before it gives a warning, before anything is done: make it an error to keep such rows out.
        """
        before: Outcome | None = getattr(self, "_outcome", None)
        with as_before_if_it_fails(self, before and before.stream):
            outcome = self._adopt(self._fitting().go_on(X, before))
        return self._told(outcome, judged=False)

    def _fitting(self, **how: Any) -> Fitting:
        return Fitting(self, **how)

    def _told(self, outcome: Outcome, *, judged: bool = True) -> Self:
        """Itself, once an error was raised that ended a stream, or the warnings were given."""
        if outcome.error is not None:
            raise outcome.error
        warn_of(self, outcome.words, judged=judged and not forgets_rows(self.inference))
        return self

    def set_params(self, **params: Any) -> Self:
        """As in scikit-learn, nested by `prior__mass`. Specs are frozen: a changed copy takes their place."""
        super().set_params(**{name: value for name, value in params.items() if "__" not in name})
        for name, value in params.items():
            outer, nested, inner = name.partition("__")
            if not nested:
                continue
            if outer not in self.get_params(deep=False):
                super().set_params(**{name: value})  # raises scikit-learn's error
            part = getattr(self, outer)
            if part is None and outer in ("prior", "observation"):
                part = getattr(model_of(self.observation, self.prior), outer)
            if not isinstance(part, Spec):
                raise InvalidParameterError(f"{outer} is {part!r}, which has no parameter {inner!r}.")
            setattr(self, outer, part.replace(**{inner: value}))
        return self

    def _validated(self, X: Any, *, reset: bool, sparse: bool = False) -> Any:
        """X as float64; sparse matrices where the caller can use them and the observation model takes them."""
        X = plain_numbers(X)
        form = "csr" if sparse and self._takes_sparse else False
        X = checked_csr(X) if form and issparse(X) else X
        try:
            X = validate_data(
                self, X, reset=reset, dtype=np.float64, order="C", ensure_all_finite="allow-nan", accept_sparse=form
            )
        except (TypeError, ValueError, OverflowError) as error:  # scikit-learn's words, our class
            kind = InvalidDataTypeError if isinstance(error, TypeError) else InvalidDataError
            raise kind(f"X must be a matrix of real numbers, NaN where a cell is missing. Got: {error}") from error
        check_squares(X.data if issparse(X) else X)
        return X

    def _adopt(self, outcome: Outcome) -> Outcome:
        """Show what was found, by whatever way."""
        self._outcome = outcome
        self.posterior_ = posterior = outcome.posterior
        self.history_ = outcome.history
        self.inference_ = outcome.about.choice
        self.data_fingerprint_ = outcome.about.data_fingerprint
        self.stopped_by_ = outcome.stopped_by
        self.interrupted_ = outcome.stopped_by == "interrupt"
        self.k_posterior_ = posterior.k_posterior
        self.components_ = posterior.persistent.features
        self.stability_ = posterior.consensus.stability
        self.n_components_ = len(self.components_)
        if posterior.model.observation.owners == "dims":
            self.loadings_presence_ = posterior.consensus.presence.T
        if outcome.stream is not None:
            self.n_samples_seen_ = outcome.stream.seen.n_rows
        self._n_features_out = self.n_components_  # scikit-learn's mixin names the output columns by it
        self.diagnostics_, self.agreement_, self.converged_, self._verdict = judge(
            self.inference_.inference, posterior, outcome.history
        )
        return outcome

    def check(self) -> str:
        """Whether the run can be trusted, in words: what is wrong, and what to do."""
        check_is_fitted(self)
        return self._verdict

    # ---- using a fit

    def presence(self, X: Any, **near: Unpack[Near]) -> Array:
        """P(row has feature), (n_rows, n_components_). Rows that were fitted are recognised one by one: theirs is the
        share of the draws with the feature in which they have it. Other rows are encoded, each on its own; if the fit
        had times, coordinates or distances, they need theirs: distances[i, j] is that of row i from fitted row j."""
        check_is_fitted(self)
        observation = self.posterior_.model.observation
        if observation.owners == "dims":
            raise IncompatibleModelError(
                f"{type(observation).__name__} has no presence of rows: every row has a score of every factor. "
                "Use transform(X) for the scores, and loadings_presence_ for which dims a factor moves."
            )
        return self._encode(X, **near).presence

    def transform(self, X: Any, **near: Unpack[Near]) -> Array:
        """Codes of the rows: E[z], or E[z w] where features have weights. Of fitted rows the mean over draws, as in
        `presence`; of others by the encoder, and a new row that is wholly missing gets the prior's answer."""
        return self._encode(X, **near).codes

    def _encode(self, X: Any, **near: Unpack[Near]) -> Any:
        check_is_fitted(self)
        X = self._validated(X, reset=False, sparse=True)
        return encode(seen_from(self.posterior_, X.shape[0], **near), X)

    def inverse_transform(self, codes: Any) -> Array:
        """Expected rows of X given codes, the offset included."""
        check_is_fitted(self)
        wanted = f"codes must be numbers of shape (n_rows, {self.n_components_}), as transform gives."
        try:
            codes = check_array(plain_numbers(codes), dtype=np.float64, ensure_min_samples=0, ensure_min_features=0)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidDataError(f"{wanted} Got: {error}") from error
        if codes.shape[1] != self.n_components_:
            raise InvalidDataError(f"{wanted} Got {codes.shape}.")
        return self.posterior_.reconstruct(codes)

    def impute(self, X: Any, interval: float | None = None, **near: Unpack[Near]) -> Any:
        """X with its missing cells filled by their posterior mean; observed cells are untouched.

        With interval=0.9 (filled, lower, upper): the ends of the central 90 % predictive interval of each missing cell,
        noise included. The data that were fitted are recognised: their rows are then predicted by their own bits in up
        to 1000 draws. Other rows are encoded from their observed cells.
        """
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        posterior = seen_from(self.posterior_, len(X), **near)
        found = prediction.impute(posterior, X, interval, fitted=self._was_fitted(X))
        return found[0] if interval is None else found

    def score_samples(self, X: Any, **near: Unpack[Near]) -> Array:
        """Log predictive density of the observed cells of each row, averaged over draws of all chains."""
        check_is_fitted(self)
        X = self._validated(X, reset=False, sparse=True)
        return seen_from(self.posterior_, X.shape[0], **near).log_density(X)

    def score(self, X: Any, y: Any = None, **near: Unpack[Near]) -> float:
        """Mean of `score_samples`."""
        return float(np.mean(self.score_samples(X, **near)))

    def heldout_score(self, X: Any, mask: Any, by: str = "row") -> float:
        """Mean log predictive density of the masked cells of X given its other cells, per masked cell.

        X holds the values behind the mask. If it was fitted with those cells missing, its rows are predicted by their
        own bits in up to 1000 draws; else as new rows. by="row" predicts the masked cells of a row together, by="cell"
        each on its own. Rows that a variational fit has seen are predicted by their factors, exactly where few bits are
        uncertain; there by="moment" (a Gaussian with the moments of the mixture), "jensen" (E[log p]) and "plugin"
        (everything at its mean) give what papers may have reported instead.
        """
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        mask = prediction.check_mask(X, mask)
        fitted = self._was_fitted(np.where(mask, np.nan, X))
        return prediction.heldout(self.posterior_, X, mask, by, fitted=fitted)

    def sample(self, n: int = 1, random_state: Any = None, **near: Unpack[Near]) -> Array:
        """n new rows from the posterior predictive, each on its own. random_state=None takes that of the estimator. If
        the fit had times, coordinates or distances, so must the new rows."""
        check_is_fitted(self)
        rng = make_generator(self.random_state if random_state is None else random_state)
        return prediction.sample(seen_from(self.posterior_, n, **near), n, rng)

    def novelty(self, X: Any, **near: Unpack[Near]) -> Array:
        """P(row has at least one feature that no fitted row has | its observed cells), (n_rows,).

        With a finite prior only its unused features can be new: where every draw uses all of them, it is 0.
        """
        check_is_fitted(self)
        X = self._validated(X, reset=False, sparse=True)
        return prediction.novelty(seen_from(self.posterior_, X.shape[0], **near), X)

    @property
    def _takes_sparse(self) -> bool:
        return isinstance(self.observation, Observation) and self.observation.takes_sparse

    def _was_fitted(self, X: Array) -> bool:
        return fingerprint(X) == self.data_fingerprint_

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to a `.thali` file; `thali.load` brings it back with the same bits."""
        check_is_fitted(self)
        outcome = self._outcome
        left = outcome.left
        about = outcome.about._replace(params=self.get_params(deep=False), model=self.posterior_.model)
        try:
            saving.save(outcome._replace(about=about, posterior=self.posterior_, history=self.history_), path)
        except InvalidFileError as error:
            if left is None:
                raise
            raise InvalidFileError(f"{error} {left.words()}") from error
        if left is not None and self.stopped_by_ in (None, "target_ess"):
            left.remove()
            self._outcome = outcome._replace(left=None)

    @property
    def log_evidence_(self) -> float:
        """log of the mean of all filters' unbiased estimates of p(X); `posterior_.filters` has each, and the error."""
        filters = self.posterior_.filters if hasattr(self, "posterior_") else None
        if filters is None:
            raise AttributeError("log_evidence_ is there after a fit by an inference that estimates it: ParticleFilter")
        return filters.evidence[0]

    @property
    def events_(self) -> list[Event]:
        """What happened to features in the last call (10 000 events at most); there if the inference forgets rows."""
        outcome = getattr(self, "_outcome", None)
        if outcome is None or outcome.stream is None or not forgets_rows(outcome.about.choice.inference):
            raise AttributeError("events_ is there after a fit by an inference that forgets its rows: RecursiveIBP")
        return [note.told() for note in outcome.stream.tasks[0].infos]

    # ---- scikit-learn's conventions

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = self._takes_sparse
        return tags
