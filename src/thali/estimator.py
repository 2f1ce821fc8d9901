"""LatentFeatures: the scikit-learn face of thali. It validates, delegates, and shows what was found."""

import os
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from thali.core.model import Model
from thali.core.nested_params import NestedParams
from thali.core.observation import Observation
from thali.core.protocols.inference import Blockwise, Optimiser, Streaming
from thali.core.protocols.prior import Prior
from thali.core.spec import Spec, positive
from thali.data.plain_numbers import plain_numbers
from thali.data.row_blocks import check_squares
from thali.data.row_digests import row_digests
from thali.data.sparse_input import checked_csr, issparse
from thali.errors import InvalidDataError, InvalidDataTypeError, InvalidFileError, InvalidParameterError
from thali.inference.calibration.noise_floor import calibrate
from thali.observations import LinearGaussian
from thali.posteriors import prediction
from thali.posteriors.draws import Draws
from thali.posteriors.encoding import encode
from thali.priors import IBP
from thali.rng import make_generator, spawn
from thali.running.chains import Chain, Result, resolve_n_jobs, run_chains
from thali.running.choose import Choice, choose
from thali.running.fit_warnings import warn_of
from thali.running.numeric_errors import check_finite, numbers_in_range
from thali.running.progress import Progress
from thali.running.restarts import optimise, refuse_for_samplers
from thali.running.rows import Stream, refuse_for_streams
from thali.running.stopping import Allowance
from thali.running.stream_fit import StreamFit, as_before_if_a_stream_fails
from thali.storage import fit as saving
from thali.storage.archive import blamed
from thali.storage.checkpoint import Checkpoint
from thali.storage.fit import fingerprint
from thali.verdicts.judge import judge

Array = np.ndarray


class LatentFeatures(NestedParams, StreamFit, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Find which hidden features the rows of X are made of, and how many there are.

    Parameters
    ----------
    observation : how a row comes about from its features; None means LinearGaussian().
    prior : the prior over which row has which feature; None means IBP().
    inference : "auto", or an inference such as CollapsedGibbs(n_draws=1000).
    n_chains : independent chains, compared to judge convergence. An optimiser has restarts instead.
    n_jobs : threads; None or -1 for as many as there are cores. The result does not depend on it.
    random_state : an integer makes the run reproducible bit for bit.
    verbose : True or 1 shows progress, False or 0 does not; None shows it on a terminal.
    max_time : seconds after which a fit ends, with what it has by then; `check()` says what that is worth.
    target_ess : the sampling ends as soon as every label-free summary has this effective sample size and the chains
        agree. Where that is depends on the draws alone, not on the clock.
    checkpoint : a folder in which a run is kept every few seconds. After a crash, Ctrl-C or `max_time`,
        `thali.resume(folder, X)` goes on to the same bits. `save` removes it once the run is finished.

    Attributes
    ----------
    n_components_ : number of features that persist, most frequent first. Others come and go: `k_posterior_` is
        {K: probability} of the number in use at a time, those included.
    components_ : (n_components_, n_dims) their posterior means. stability_ : the share of all draws that have each.
    posterior_ : all draws, or the factors of a variational fit. history_ : traces, warm-up included.
    inference_ : what was used, and why.
    converged_ : whether all chains agree; `check()` says it in words. diagnostics_ : R-hat and ESS by summary.
    stopped_by_ : None if all draws were made, else "interrupt", "max_time" or "target_ess".
    interrupted_ : whether Ctrl-C or SIGTERM ended the sampling early; what was drawn until then is kept.
    log_evidence_ : an estimate of log p(X), from an inference that gives one.
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

    def fit(self, X: Any, y: Any = None, *, heldout: Any = None) -> Self:
        """Sample the posterior given X (n_rows, n_dims); NaN cells are missing. y is ignored.

        `heldout` may hold the values of cells that are missing in X: the progress then shows how well they are
        predicted. The fit does not depend on them. A fit that has not converged ends with a ConvergenceWarning.
        """
        self._fit(X, heldout)
        warn_of(self)
        return self

    @as_before_if_a_stream_fails
    def _fit(self, X: Any, heldout: Any = None) -> Self:
        model = self._model()
        self._check_settings()
        if isinstance(self.inference, Blockwise):
            return self._fit_blocks(model, X, heldout)
        X = model.observation.check_data(self._validated(X, reset=True, sparse=True))
        choice = choose(self.inference, model.prior, model.observation, *X.shape)
        settings = {"target_ess": self.target_ess, "checkpoint": self.checkpoint, "heldout": heldout}
        if isinstance(choice.inference, Streaming):
            refuse_for_streams(**settings)
        if isinstance(choice.inference, Optimiser):
            refuse_for_samplers(choice.inference, **settings)
        model = calibrate(model, X, self._allowed.is_late)
        about = self._about(model, choice, fingerprint(X))
        self._stream = None
        if isinstance(choice.inference, Optimiser):
            return self._optimise(X, about)
        streams = spawn(make_generator(self.random_state), self.n_chains)
        chains = [Chain(number, stream) for number, stream in enumerate(streams)]
        if isinstance(choice.inference, Streaming):
            return self._absorb(Stream(chains, choice.inference, model), X, choice)
        score = self._scorer(X, heldout)
        if self.checkpoint is None:
            return self._sample(X, about, chains, None, score)
        with Checkpoint.create(self.checkpoint, about, X.shape[0], chains) as run:
            return self._sample(X, about, chains, run, score)

    def _check_settings(self) -> None:
        self._allowed = Allowance(self.max_time)
        if not isinstance(self.n_chains, int | np.integer) or isinstance(self.n_chains, bool) or self.n_chains < 1:
            raise InvalidParameterError(f"n_chains must be a positive integer. Got {self.n_chains!r}.")
        for name in ("max_time", "target_ess"):
            value = getattr(self, name)
            if value is not None and not positive.contains(value):
                raise InvalidParameterError(f"{name} must be None or a positive number. Got {value!r}.")
        if not isinstance(self.verbose, int | np.bool_ | None):
            raise InvalidParameterError(f"verbose must be True, False or None. Got {self.verbose!r}.")
        if not isinstance(self.checkpoint, str | os.PathLike | None):
            raise InvalidParameterError(f"checkpoint must be None or the path of a folder. Got {self.checkpoint!r}.")
        resolve_n_jobs(self.n_jobs, self.n_chains)

    def _about(self, model: Model, choice: Choice, data_fingerprint: str) -> saving.About:
        names = [str(name) for name in getattr(self, "feature_names_in_", [])]
        return saving.About(self.get_params(deep=False), model, choice, data_fingerprint, self.n_features_in_, names)

    def _scorer(self, X: Any, heldout: Any) -> Any:
        return None if heldout is None else prediction.scorer(X, self._validated(heldout, reset=False))

    def _sample(self, X: Any, about: saving.About, chains: list[Chain], run: Checkpoint | None, score: Any) -> Self:
        """Run the chains to their end, from wherever they are."""
        inference = about.choice.inference
        with Progress(chains, inference, self.verbose, score) as progress, numbers_in_range():
            result = run_chains(
                chains, inference, about.model, X,
                n_jobs=self.n_jobs, max_time=self._allowed.left(), target_ess=self.target_ess,
                keep=run.keep if run else None, watch=(progress, run.complain) if run else (progress,),
                patient=run is not None and run.taken_up,
            )  # fmt: skip
            check_finite(result.posterior)
        kept = f"{result.posterior.n_chains} of {self.n_chains} chains with {result.posterior.n_draws} draws each"
        return self._finish(X, about, result, f"{kept}, of {inference.n_draws}", run and run.left())

    def _optimise(self, X: Array, about: saving.About) -> Self:
        """Run the restarts of an optimiser."""
        inference = about.choice.inference
        streams = spawn(make_generator(self.random_state), inference.n_restarts)
        with numbers_in_range():
            result = optimise(
                streams, inference, about.model, X,
                n_jobs=self.n_jobs, max_time=self._allowed.left(), verbose=self.verbose,
            )  # fmt: skip
            check_finite(result.posterior)
        return self._finish(X, about, result, f"the best of {len(result.history['settled'])} restarts")

    def _finish(self, X: Array, about: saving.About, result: Result, kept: str, folder: Any = None) -> Self:
        """Take over what a run found; `kept` says what there is if it was interrupted."""
        self.stopped_by_ = result.stopped_by
        self.interrupted_ = result.stopped_by == "interrupt"
        self._stop_words = f"Interrupted: kept {kept}." if self.interrupted_ else ""
        self._run_folder = folder
        result.posterior.row_digests = row_digests(X)
        self._adopt(result.posterior, result.history, about.choice, about.data_fingerprint)
        return self

    def _model(self) -> Model:
        model = Model(
            IBP() if self.prior is None else self.prior,
            LinearGaussian() if self.observation is None else self.observation,
        )
        for name, part in model.get_params(deep=False).items():
            if not isinstance(part, Spec) or not isinstance(part, Prior if name == "prior" else Observation):
                example = "IBP()" if name == "prior" else "LinearGaussian()"
                raise InvalidParameterError(f"{name} must be a spec such as {example}. Got {part!r}.")
        return model

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

    def _adopt(self, posterior: Draws, history: dict[str, Array], choice: Choice, data_fingerprint: str) -> None:
        self.posterior_ = posterior
        self.history_ = history
        self.inference_ = choice
        self.data_fingerprint_ = data_fingerprint
        self.k_posterior_ = posterior.k_posterior
        self.components_ = posterior.persistent.features
        self.stability_ = posterior.consensus.stability
        self.n_components_ = len(self.components_)
        self._n_features_out = self.n_components_  # scikit-learn's mixin names the output columns by it
        self.diagnostics_, self.agreement_, self.converged_, self._verdict = judge(choice.inference, posterior, history)

    def check(self) -> str:
        """Whether the run can be trusted, in words: what is wrong, and what to do."""
        check_is_fitted(self)
        return self._verdict

    # ---- using a fit

    def presence(self, X: Any) -> Array:
        """P(row has feature), (n_rows, n_components_). Rows that were fitted are recognised one by one: theirs is the
        share of the draws with the feature in which they have it. Other rows are encoded, each on its own."""
        return self._encode(X).presence

    def transform(self, X: Any) -> Array:
        """Codes of the rows: E[z], or E[z w] where features have weights. Of fitted rows the mean over draws, as in
        `presence`; of others by the encoder, and a new row that is wholly missing gets the prior's answer."""
        return self._encode(X).codes

    def _encode(self, X: Any) -> Any:
        check_is_fitted(self)
        return encode(self.posterior_, self._validated(X, reset=False, sparse=True))

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

    def impute(self, X: Any, interval: float | None = None) -> Any:
        """X with its missing cells filled by their posterior mean; observed cells are untouched.

        With interval=0.9 (filled, lower, upper): the ends of the central 90 % predictive interval of each missing cell,
        noise included. The data that were fitted are recognised: their rows are then predicted by their own bits in up
        to 1000 draws. Other rows are encoded from their observed cells.
        """
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        found = prediction.impute(self.posterior_, X, interval, fitted=self._was_fitted(X))
        return found[0] if interval is None else found

    def score_samples(self, X: Any) -> Array:
        """Log predictive density of the observed cells of each row, averaged over draws of all chains."""
        check_is_fitted(self)
        return self.posterior_.log_density(self._validated(X, reset=False, sparse=True))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`."""
        return float(np.mean(self.score_samples(X)))

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

    def sample(self, n: int = 1, random_state: Any = None) -> Array:
        """n new rows from the posterior predictive. random_state=None takes that of the estimator."""
        check_is_fitted(self)
        rng = make_generator(self.random_state if random_state is None else random_state)
        return prediction.sample(self.posterior_, n, rng)

    def novelty(self, X: Any) -> Array:
        """P(row has at least one feature that no fitted row has | its observed cells), (n_rows,).

        With a finite prior only its unused features can be new: where every draw uses all of them, it is 0.
        """
        check_is_fitted(self)
        return prediction.novelty(self.posterior_, self._validated(X, reset=False, sparse=True))

    @property
    def _takes_sparse(self) -> bool:
        return isinstance(self.observation, Observation) and self.observation.takes_sparse

    def _was_fitted(self, X: Array) -> bool:
        return fingerprint(X) == self.data_fingerprint_

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to a `.thali` file; `thali.load` brings it back with the same bits."""
        check_is_fitted(self)
        about = self._about(self.posterior_.model, self.inference_, self.data_fingerprint_)
        left = getattr(self, "_run_folder", None)
        try:
            stream = getattr(self, "_stream", None)
            saving.save(saving.SavedFit(about, self.posterior_, self.history_, stream, self.stopped_by_), path)
        except InvalidFileError as error:
            if left is None:
                raise
            raise InvalidFileError(f"{error} {left.words(*self.posterior_.draws['n_features'].shape)}") from error
        if left is not None and self.stopped_by_ in (None, "target_ess"):
            left.remove()
            self._run_folder = None

    # ---- scikit-learn's conventions

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = self._takes_sparse
        return tags


def load(path: str | os.PathLike[str]) -> LatentFeatures:
    """The fitted estimator in a `.thali` file. Nothing in the file is executed."""
    fit = saving.load(path)
    with blamed(path):
        estimator = _named(LatentFeatures(**fit.about.params), fit.about)
        estimator._stream, estimator._run_folder, estimator._stop_words = fit.stream, None, ""
        estimator.stopped_by_, estimator.interrupted_ = fit.stopped_by, fit.stopped_by == "interrupt"
        estimator._adopt(fit.posterior, fit.history, fit.about.choice, fit.about.data_fingerprint)
    return estimator


def resume(checkpoint: str | os.PathLike[str], X: Any, *, heldout: Any = None, **settings: Any) -> LatentFeatures:
    """Go on with the run in a checkpoint folder, with the same X, to the bits that it would have had without a stop.

    Settings that leave the draws as they are may be given anew: n_jobs, verbose, target_ess and max_time, which counts
    from now; a search for a start that was cut short comes to its end first. `heldout` is that of `fit`.
    """
    if not settings.keys() <= {"n_jobs", "verbose", "max_time", "target_ess"}:
        raise InvalidParameterError(
            "resume takes n_jobs, verbose, max_time and target_ess; the rest is as it was. "
            f"Got {', '.join(settings)}. Fit anew to change more."
        )
    if not isinstance(checkpoint, str | os.PathLike):
        raise InvalidParameterError(f"checkpoint must be the path of a folder. Got {checkpoint!r}.")
    run, chains = Checkpoint.take_up(checkpoint)
    with run:
        with blamed(checkpoint):
            estimator = LatentFeatures(**run.about.params | {"checkpoint": checkpoint})
        estimator.set_params(**settings)._check_settings()
        X = run.checked(estimator._validated(X, reset=True, sparse=True), chains)
        score = estimator._scorer(X, heldout)
        _named(estimator, run.about)._sample(X, run.about, chains, run, score)
    warn_of(estimator)
    return estimator


def _named(estimator: LatentFeatures, about: saving.About) -> LatentFeatures:
    """The estimator with the dims of the data that it was made for."""
    estimator.n_features_in_ = about.n_dims
    if about.dim_names:
        estimator.feature_names_in_ = np.array(about.dim_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return estimator
