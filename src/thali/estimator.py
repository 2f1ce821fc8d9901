"""LatentFeatures: the scikit-learn face of thali. It validates, delegates, and shows what was found."""

import hashlib
import os
import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from thali import saving
from thali.auto import Choice, choose
from thali.diagnostics import Diagnosis, diagnose, verdict
from thali.errors import InvalidDataError, InvalidDataTypeError, InvalidParameterError
from thali.files import damaged
from thali.model import Model
from thali.observations import LinearGaussian
from thali.posterior import Draws
from thali.priors import IBP
from thali.progress import Progress
from thali.protocols import Observation, Prior
from thali.rng import make_generator
from thali.run import run_chains
from thali.spec import Spec

Array = np.ndarray


class LatentFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Find which hidden features the rows of X are made of, and how many there are.

    Parameters
    ----------
    observation : how a row comes about from its features; None means LinearGaussian().
    prior : the prior over which row has which feature; None means IBP().
    inference : "auto", or an inference such as CollapsedGibbs(n_draws=1000).
    n_chains : independent chains, compared to judge convergence.
    n_jobs : threads; None or -1 for as many as there are cores. The result does not depend on it.
    random_state : an integer makes the run reproducible bit for bit.
    verbose : True shows progress, False never; None shows it on a terminal.

    Attributes
    ----------
    n_components_ : most probable number of features; `k_posterior_` is {K: probability}.
    components_ : (n_components_, n_dims) features of the representative draw.
    posterior_ : all draws. history_ : traces, warm-up included. inference_ : what was used, and why.
    converged_ : whether all chains agree; `check()` says it in words. diagnostics_ : R-hat and ESS by summary.
    interrupted_ : whether Ctrl-C ended the sampling early; what was drawn until then is kept.
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
    ) -> None:
        self.observation = observation
        self.prior = prior
        self.inference = inference
        self.n_chains = n_chains
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # ---- fitting

    def fit(self, X: Any, y: Any = None) -> Self:
        """Sample the posterior given X (n_rows, n_dims); NaN cells are missing. y is ignored."""
        model = self._model()
        if not isinstance(self.n_chains, int | np.integer) or isinstance(self.n_chains, bool) or self.n_chains < 1:
            raise InvalidParameterError(f"n_chains must be a positive integer. Got {self.n_chains!r}.")
        X = model.observation.check_data(self._validated(X, reset=True))
        choice = choose(self.inference, model.prior, model.observation, *X.shape)
        rng = make_generator(self.random_state)
        inference = choice.inference
        n_steps = inference.n_warmup + inference.n_draws * inference.thin
        with Progress(self.n_chains, n_steps, self.verbose) as progress:
            result = run_chains(rng, inference, model, X, n_chains=self.n_chains, n_jobs=self.n_jobs, on_step=progress)
        self.interrupted_ = result.interrupted
        if result.interrupted:
            kept = f"{result.posterior.n_chains} of {self.n_chains} chains with {result.posterior.n_draws} draws each"
            warnings.warn(f"Interrupted: kept {kept}, of {inference.n_draws}.", stacklevel=2)
        self._adopt(result.posterior, result.history, choice, fingerprint(X))
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

    def _validated(self, X: Any, *, reset: bool) -> Array:
        try:
            return validate_data(self, X, reset=reset, dtype=np.float64, order="C", ensure_all_finite="allow-nan")
        except (TypeError, ValueError) as error:  # scikit-learn's words, our class
            kind = InvalidDataTypeError if isinstance(error, TypeError) else InvalidDataError
            raise kind(f"X must be a matrix of real numbers, NaN where a cell is missing. Got: {error}") from error

    def _adopt(self, posterior: Draws, history: dict[str, Array], choice: Choice, data_fingerprint: str) -> None:
        self.posterior_ = posterior
        self.history_ = history
        self.inference_ = choice
        self.data_fingerprint_ = data_fingerprint
        self.k_posterior_ = posterior.k_posterior
        chain, draw = posterior.representative
        self.components_ = posterior.features(chain, draw)
        self.n_components_ = len(self.components_)
        self._n_features_out = self.n_components_  # scikit-learn's mixin names the output columns by it
        self.diagnostics_: dict[str, Diagnosis] = diagnose(posterior.draws)
        self.converged_ = all(d.good for d in self.diagnostics_.values())

    def check(self) -> str:
        """Whether the run can be trusted, in words: what is wrong, and what to do."""
        check_is_fitted(self)
        return verdict(self.diagnostics_)

    # ---- using a fit

    def presence(self, X: Any) -> Array:
        """P(row has feature), (n_rows, n_components_): each row on its own, features of the representative draw."""
        return self._encode(X)

    def transform(self, X: Any) -> Array:
        """Codes of the rows: E[z]. A row that is wholly missing gets the prior's answer."""
        return self._encode(X)

    def _encode(self, X: Any) -> Array:
        check_is_fitted(self)
        presence, _ = self.posterior_.encode(self._validated(X, reset=False), *self.posterior_.representative)
        return presence

    def inverse_transform(self, codes: Any) -> Array:
        """Expected rows of X given codes, the offset included."""
        check_is_fitted(self)
        codes = np.asarray(codes, dtype=float)
        if codes.ndim != 2 or codes.shape[1] != self.n_components_:
            raise InvalidDataError(
                f"codes must have shape (n_rows, {self.n_components_}), as transform gives. Got {codes.shape}."
            )
        observation = self.posterior_.concrete(*self.posterior_.representative).observation
        return observation.reconstruct(codes, self.components_)

    def score_samples(self, X: Any) -> Array:
        """Log predictive density of the observed cells of each row, averaged over draws of all chains."""
        check_is_fitted(self)
        return self.posterior_.log_density(self._validated(X, reset=False))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`."""
        return float(np.mean(self.score_samples(X)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to a `.thali` file; `thali.load` brings it back with the same bits."""
        check_is_fitted(self)
        names = [str(name) for name in getattr(self, "feature_names_in_", [])]
        params = self.get_params(deep=False)
        fit = (params, self.posterior_, self.history_, self.inference_, self.data_fingerprint_, self.n_features_in_)
        saving.save(saving.SavedFit(*fit, names), path)

    # ---- scikit-learn's conventions

    def set_params(self, **params: Any) -> Self:
        """As in scikit-learn, nested by `prior__mass`. Specs are frozen: a changed copy takes their place."""
        own = {name: value for name, value in params.items() if "__" not in name}
        super().set_params(**own)
        model = None
        for name, value in params.items():
            outer, nested, inner = name.partition("__")
            if not nested:
                continue
            if outer not in self.get_params(deep=False):
                super().set_params(**{name: value})  # raises scikit-learn's error
            part = getattr(self, outer)
            if part is None and outer in ("prior", "observation"):
                model = model or self._model()
                part = getattr(model, outer)
            if not isinstance(part, Spec):
                raise InvalidParameterError(f"{outer} is {part!r}, which has no parameter {inner!r}.")
            setattr(self, outer, part.replace(**{inner: value}))
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def fingerprint(X: Array) -> str:
    """A digest that tells one data set from another."""
    return hashlib.sha256(repr(X.shape).encode() + np.ascontiguousarray(X).tobytes()).hexdigest()


def load(path: str | os.PathLike[str]) -> LatentFeatures:
    """The fitted estimator in a `.thali` file. Nothing in the file is executed."""
    fit = saving.load(path)
    try:
        estimator = LatentFeatures(**fit.params)
        estimator.n_features_in_ = fit.n_dims
        if fit.dim_names:
            estimator.feature_names_in_ = np.array(fit.dim_names, dtype=object)
        estimator._adopt(fit.posterior, fit.history, fit.choice, fit.data_fingerprint)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error
    return estimator
