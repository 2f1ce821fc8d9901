"""BP-means (Broderick, Kulis & Jordan 2013): the features, and how many, as the minimum of |X - Z A|^2 + penalty K.

It is the limit of a linear-Gaussian model with an IBP prior whose noise variance s goes to zero with
mass = exp(-penalty / (2 s)): -2 s log p(X, Z, A) tends to the objective, whatever the other hyperparameters are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thali.core.binary import check_binary, non_empty
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.core.protocols.engines.point import PointRows
from thali.core.protocols.prior import Predictive
from thali.core.registry import stored
from thali.core.spec import Domain, Spec, at_least, not_negative, one_of, positive, setting
from thali.core.statistics import are_alike
from thali.inference.starts.given import given_codes, is_given, start_domain
from thali.inference.starts.spectral import low_rank_completion, noise_level, spectral_start
from thali.posteriors.base import Draw
from thali.posteriors.draws import Draws

Array = np.ndarray

CANDIDATES = ("shared", "residual", "refit")

_MARGIN = 1.0  # standard deviations above a bound of the mean that is itself seldom reached
_MOST = 2_000  # features
_TRIES, _LAST_TRIES = 2, 8  # shared features looked at after a pass; and after one that changed nothing
_TRIALS, _TRIAL_PASSES = 10, 8
_PRIOR_DRAWS, _PRIOR_WARMUP = 400, 20

_penalty = Domain("None or a positive number", lambda value: value is None or positive.contains(value))


class BPData(NamedTuple):
    """What all restarts share."""

    X: Array  # as checked
    hard: Any  # as the observation's error needs it
    matrix: Array  # complete, in the units of the error
    has_offset: bool
    penalty: float
    limit: int


@stored("PointState")
class BPState(NamedTuple):
    """Bits, features, and the objective that they have."""

    z: Array
    features: Array
    objective: float

    @property
    def n_features(self) -> int:
        return self.z.shape[1]


@stored("BPMeans")
@dataclass(frozen=True, eq=False)
class BPMeans(Spec):
    """One answer instead of a posterior, in a fraction of the time: bits and features of the lowest objective found.

    A pass chooses every bit given the features, drops features that are not worth the penalty, and fits the rest by
    least squares; the objective never rises. With "shared", a pass that changes nothing is followed by a few trials in
    which columns or a row are changed at random, kept if they lead lower. The prior enters by its limit only: a finite
    one caps the number of features, and what it has to learn is set to its posterior mean given Z, for predictions.

    Parameters
    ----------
    penalty : float or None
        What a feature costs, in squared units of X (in units of the noise, where it differs from dim to dim). None
        takes what white noise cannot pay, noise_var (sqrt(2 N / pi) + sqrt(D) + 1)^2, with the noise variance of
        the model or, if that is learned, of the bulk of the spectrum of X, at least its floor and 1 % of the
        variance.
    candidates : "shared", "residual" or "refit"
        Where new features come from. "residual": a row that is left with more than the penalty; "refit": a row
        whose own feature, all others fitted anew, lowers the objective (slow where cells are missing). Both are
        published, and find nothing where the penalty exceeds what one row can gain. "shared": the best of a few
        columns that any number of rows share.
    max_iter : int
        Passes after which a restart ends at the latest.
    tol : float
        A restart ends with a pass that lowers the objective by less than this share.
    n_restarts : int
        The best of so many is taken.
    start : "auto" or array of shape (n_rows, n_features)
        "auto": in turn from a spectral start, from the mean of X (as published), both, no features, random bits; or
        each of them from codes that are given.
    """

    penalty: float | None = setting(None, _penalty)
    candidates: str = setting("shared", one_of(*CANDIDATES))
    max_iter: int = setting(200, at_least(1))
    tol: float = setting(1e-8, not_negative)
    n_restarts: int = setting(5, at_least(1))
    start: Any = setting("auto", start_domain("auto"))

    shape = "restarts"
    needs_prior = (Predictive,)
    needs_observation = (PointRows, ChainRows)

    def prepare(self, model: Model, X: Array) -> BPData:
        engine = model.observation.engine(PointRows)
        hard = engine.prepare(X)
        matrix, has_offset = engine.matrix(hard)
        matrix = low_rank_completion(matrix)
        penalty = self.penalty
        if penalty is None:
            noise, least = engine.noise(hard)
            if noise is None:  # cells that were filled have none
                noise = max(noise_level(matrix) / float(np.mean(~np.isnan(X))), least)
            penalty = noise_penalty(len(X), X.shape[1], noise)
        limit = model.prior.n_features or _MOST
        return BPData(X, hard, matrix, has_offset, float(penalty), limit)

    def init(
        self,
        rng: np.random.Generator,
        model: Model,
        data: BPData,
        restart: int,
        is_over: Callable[[], bool] | None = None,
    ) -> BPState:
        n_rows, kind = len(data.X), restart % 5
        if is_given(self.start):
            codes = given_codes(self.start, n_rows, model.observation, None)
            return self._state(model, data, codes[:, : data.limit])
        Z = np.ones((n_rows, 1), dtype=np.uint8)
        if kind == 0:
            Z = spectral_start(rng, data.matrix, has_offset=data.has_offset)
        elif kind == 2:  # the mean of X may be a feature that every row has
            Z = np.hstack([Z, spectral_start(rng, data.matrix, has_offset=True)])
        elif kind == 3:
            Z = Z[:, :0]
        elif kind == 4:
            Z = (rng.random((n_rows, rng.integers(1, 6))) < rng.random()).astype(np.uint8)
        return self._state(model, data, non_empty(Z)[:, : data.limit])

    def step(self, rng: np.random.Generator, state: BPState, model: Model, data: BPData) -> tuple[BPState, bool]:
        state, changed = self._pass(rng, state, model, data)
        if changed or self.candidates != "shared" or state.n_features == 0:
            return state, changed
        for _ in range(_TRIALS):
            trial, changed = self._state(model, data, _recoded(rng, state.z)), True
            for _ in range(_TRIAL_PASSES):
                if changed:
                    trial, changed = self._pass(rng, trial, model, data)
            if trial.objective < state.objective * (1.0 - 1e-9):
                return trial, True
        return state, False

    def _pass(self, rng: np.random.Generator, state: BPState, model: Model, data: BPData) -> tuple[BPState, bool]:
        """(the state after each bit was chosen once and the features were fitted anew, whether anything changed)."""
        engine, hard = model.observation.engine(PointRows), data.hard
        order = rng.permutation(len(state.z))
        sweep = engine.refit_sweep if self.candidates == "refit" else engine.sweep
        own = math.inf if self.candidates == "shared" else data.penalty
        Z, changes = sweep(hard, state.z, state.features, own, data.limit, order)
        Z = non_empty(Z)
        while Z.shape[1]:
            worth = engine.worth(hard, Z)
            least = int(np.argmin(worth))
            if worth[least] > data.penalty:
                break
            Z, changes = np.ascontiguousarray(np.delete(Z, least, axis=1)), changes + 1
        new = self._state(model, data, Z)
        if self.candidates == "shared" and Z.shape[1] < data.limit:
            column, gain = engine.column(rng, hard, Z, new.features, _TRIES if changes else _LAST_TRIES)
            if gain > data.penalty:
                new, changes = self._state(model, data, np.hstack([Z, column[:, None]])), changes + 1
        return new, changes > 0

    def _state(self, model: Model, data: BPData, Z: Array) -> BPState:
        engine = model.observation.engine(PointRows)
        features = engine.features(data.hard, Z)
        # eq: BKJ13.objective
        objective = engine.error(data.hard, Z, features) + data.penalty * Z.shape[1]
        return BPState(Z, features, objective)

    def record(self, rng: np.random.Generator, state: BPState, model: Model, data: BPData) -> Draw:
        observation, codebook = model.observation.engine(PointRows).point(data.hard, state.z, state.features)
        n_features = model.prior.n_features or state.n_features
        unused = np.zeros((len(state.z), n_features - state.n_features), dtype=np.uint8)
        Z = np.hstack([state.z, unused])
        prior = _posterior_mean(rng, model.prior, Z)
        completed = observation.engine(PointRows).completed(data.X, state.z, codebook)
        rows = observation.engine(ChainRows)
        prepared = rows.prepare(data.X)
        log_joint = prior.log_prob(Z) + rows.log_evidence(prepared, rows.place(prepared, Z, completed))
        return Draw(Z, log_joint, log_joint, prior, observation, codebook)

    def posterior(self, rng: np.random.Generator, state: BPState, model: Model, data: BPData) -> Draws:
        """One draw."""
        return Draws.from_chains(model, [[self.record(rng, state, model, data)]])

    def check_sound(self, state: Any, model: Model, data: BPData) -> None:
        if not isinstance(state, BPState) or state.n_features > data.limit or not math.isfinite(state.objective):
            raise ValueError("its state is none of BP-means")
        if check_binary(state.z).shape[0] != len(data.X) or state.z.dtype != np.uint8:
            raise ValueError("its bits are those of another number of rows")
        if not are_alike(model.observation.engine(PointRows).features(data.hard, state.z), state.features):
            raise ValueError("its features are those of other bits")

    def remarks(self, data: BPData) -> dict[str, float]:
        return {"penalty": data.penalty}


def noise_penalty(n_rows: int, n_dims: int, noise_var: float) -> float:
    """The most by which a feature can well lower the squared error of white noise E, beside a constant: the largest
    |z'E|^2 / |z|^2 over centred binary columns z."""
    reach = math.sqrt(2.0 * n_rows / math.pi) + math.sqrt(n_dims) + _MARGIN
    # eq: own.noise-penalty
    return noise_var * reach**2


def _recoded(rng: np.random.Generator, Z: Array) -> Array:
    """Z with one or two columns dropped, or one recoded (its complement, or combined with another), or a row anew."""
    Z, kind = Z.copy(), int(rng.integers(6))
    first, *rest = (int(k) for k in rng.permutation(Z.shape[1])[:2])
    if kind == 5:
        Z[rng.integers(len(Z))] = rng.random(Z.shape[1]) < 0.5
        return non_empty(Z)
    if kind == 0 or (kind > 1 and not rest):
        return np.ascontiguousarray(np.delete(Z, [first, *rest][: int(rng.integers(1, 3))], axis=1))
    if kind == 1:
        Z[:, first] ^= 1
    elif kind == 2:
        Z[:, first] ^= Z[:, rest[0]]
    elif kind == 3:
        Z[:, first] |= Z[:, rest[0]]
    else:
        Z[:, first] &= 1 - Z[:, rest[0]]
    return non_empty(Z)


def _posterior_mean(rng: np.random.Generator, prior: Any, Z: Array) -> Any:
    """The prior with its learned hyperparameters at the mean of their posterior given Z."""
    if not prior.learned:
        return prior
    current = prior.draw(rng)
    total = dict.fromkeys(prior.learned, 0.0)
    for i in range(_PRIOR_WARMUP + _PRIOR_DRAWS):
        current = prior.resample(rng, current, Z)
        if i >= _PRIOR_WARMUP:
            total = {name: value + getattr(current, name) for name, value in total.items()}
    return prior.replace(**{name: value / _PRIOR_DRAWS for name, value in total.items()})
