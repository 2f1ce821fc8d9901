"""BP-means (Broderick, Kulis & Jordan 2013): the features, and how many, as the minimum of |X - Z A|^2 + penalty K.

It is the limit of a linear-Gaussian model with an IBP prior whose noise variance s goes to zero with
mass = exp(-penalty / (2 s)): -2 s log p(X, Z, A) tends to the objective, whatever the other hyperparameters are.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thali.binary import non_empty
from thali.inference.starts import low_rank_completion, noise_level, spectral_start
from thali.model import Model
from thali.posterior import Draw
from thali.protocols import HardRows, Predictive
from thali.spec import Domain, Spec, at_least, not_negative, one_of, positive, setting

Array = np.ndarray

CANDIDATES = ("shared", "residual", "refit")

_SUBSET = 0.404913  # max over t of phi(t)^2 / Q(t): what the best subset makes of N standard normal numbers, per N
_MARGIN = 3.0  # standard deviations above its mean, which the best feature of pure noise exceeds in 1 % of data
_MOST = 2_000  # features
_TRIES, _LAST_TRIES = 2, 16  # shared features looked at after a pass; and after one that changed nothing
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


class BPState(NamedTuple):
    """Bits, features, and the objective that they have."""

    z: Array
    features: Array
    objective: float

    @property
    def n_features(self) -> int:
        return self.z.shape[1]


@dataclass(frozen=True, eq=False)
class BPMeans(Spec):
    """One answer instead of a posterior, in a fraction of the time: bits and features of the lowest objective found.

    penalty: what a feature costs, in squared units of X (in units of the noise, where it differs from dim to dim). None
    takes the least one that white noise cannot pay, noise_var (sqrt(0.405 N) + sqrt(D) + 3)^2, with the noise variance
    of the model or, if that is learned, of the bulk of the spectrum of X and at least 1 % of the variance (or the
    noise floor of the model).
    candidates: where new features come from. "residual": a row that is left with more than the penalty; "refit": a row
    whose own feature, all others fitted anew, lowers the objective (slow where cells are missing); both as published,
    they find nothing once the penalty exceeds what one row can gain. "shared": the best of a few columns that any
    number of rows share.
    max_iter, tol: a restart ends after so many passes, or with one that lowers the objective by less than this share.
    n_restarts: in turn from a spectral start, from the mean of X as published, from no features and from random bits.

    A pass chooses every bit given the features, drops features that are not worth the penalty, and fits the rest by
    least squares; the objective never rises. The prior enters by its limit only: a finite one caps the number of
    features, and what it has to learn is set to its posterior mean given Z, for predictions.
    """

    penalty: float | None = setting(None, _penalty)
    candidates: str = setting("shared", one_of(*CANDIDATES))
    max_iter: int = setting(200, at_least(1))
    tol: float = setting(1e-8, not_negative)
    n_restarts: int = setting(10, at_least(1))

    needs_prior = (Predictive,)
    needs_observation = (HardRows,)

    def prepare(self, model: Model, X: Array) -> BPData:
        observation = model.observation
        hard = observation.hard_data(X)
        matrix, has_offset = observation.hard_matrix(hard)
        matrix = low_rank_completion(matrix)
        penalty = self.penalty
        if penalty is None:
            noise, least = observation.hard_noise(hard)
            if noise is None:  # cells that were filled have none
                noise = max(noise_level(matrix) / float(np.mean(~np.isnan(X))), least)
            penalty = noise_penalty(len(X), X.shape[1], noise)
        limit = getattr(model.prior, "n_features", None) or _MOST
        return BPData(X, hard, matrix, has_offset, float(penalty), limit)

    def init(self, rng: np.random.Generator, model: Model, data: BPData, restart: int) -> BPState:
        n_rows = len(data.X)
        kind = restart % 4
        if kind == 0:
            Z = spectral_start(rng, data.matrix, has_offset=data.has_offset)
        elif kind == 1:
            Z = np.ones((n_rows, 1), dtype=np.uint8)
        elif kind == 2:
            Z = np.zeros((n_rows, 0), dtype=np.uint8)
        else:
            Z = (rng.random((n_rows, rng.integers(1, 6))) < 0.5).astype(np.uint8)
        Z = non_empty(Z)[:, : data.limit]
        return self._state(model, data, Z)

    def step(self, rng: np.random.Generator, state: BPState, model: Model, data: BPData) -> tuple[BPState, bool]:
        observation, hard = model.observation, data.hard
        order = rng.permutation(len(state.z))
        sweep = observation.hard_refit_sweep if self.candidates == "refit" else observation.hard_sweep
        own = math.inf if self.candidates == "shared" else data.penalty
        Z, changes = sweep(hard, state.z, state.features, own, data.limit, order)
        Z = non_empty(Z)
        while Z.shape[1]:
            worth = observation.hard_worth(hard, Z)
            least = int(np.argmin(worth))
            if worth[least] > data.penalty:
                break
            Z, changes = np.ascontiguousarray(np.delete(Z, least, axis=1)), changes + 1
        new = self._state(model, data, Z)
        if self.candidates == "shared" and Z.shape[1] < data.limit:
            tries = [
                observation.hard_column(rng, hard, Z, new.features) for _ in range(_TRIES if changes else _LAST_TRIES)
            ]
            column, gain = max(tries, key=lambda found: found[1])
            if gain > data.penalty:
                new, changes = self._state(model, data, np.hstack([Z, column[:, None]])), changes + 1
        return new, changes > 0

    def _state(self, model: Model, data: BPData, Z: Array) -> BPState:
        features = model.observation.hard_features(data.hard, Z)
        # eq: BKJ13.objective
        objective = model.observation.hard_error(data.hard, Z, features) + data.penalty * Z.shape[1]
        return BPState(Z, features, objective)

    def record(self, rng: np.random.Generator, state: BPState, model: Model, data: BPData) -> Draw:
        observation, codebook = model.observation.hard_point(data.hard, state.z, state.features)
        n_features = getattr(model.prior, "n_features", None) or state.n_features
        unused = np.zeros((len(state.z), n_features - state.n_features), dtype=np.uint8)
        Z = np.hstack([state.z, unused])
        prior = _posterior_mean(rng, model.prior, Z)
        rows = observation.reconstruct(state.z, codebook["features"])
        completed = np.where(np.isnan(data.X), rows, data.X)
        prepared = observation.prepare(data.X)
        log_joint = prior.log_prob(Z) + observation.log_evidence(prepared, observation.place(prepared, Z, completed))
        return Draw(Z, log_joint, log_joint, prior, observation, codebook)

    def remarks(self, data: BPData) -> dict[str, float]:
        return {"penalty": data.penalty}


def noise_penalty(n_rows: int, n_dims: int, noise_var: float) -> float:
    """The largest |z'E|^2 / |z|^2 over binary z that white noise E can well have."""
    reach = math.sqrt(_SUBSET * n_rows) + math.sqrt(n_dims) + _MARGIN
    # eq: own.noise-penalty
    return noise_var * reach**2


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
