"""Mean field: all factors of q by coordinate ascent on a bound of log p(X), the number of features included.

Doshi-Velez, Miller, Van Gael & Teh (2009) for binary features and for ICA, Paisley, Carin & Blei (2011) for the beta
process; which of them, or what beyond, is decided by the prior and the observation model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows, FactorStart, OwnStart, StartRows
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows, ScaledFeatures
from thali.core.protocols.prior import AdaptiveWeights, VariationalWeights
from thali.core.registry import stored
from thali.core.spec import Domain, Spec, at_least, not_negative, one_of, setting
from thali.errors import InvalidParameterError
from thali.inference.starts.factors import factor_start
from thali.inference.starts.given import given_codes, is_given, start_domain
from thali.inference.starts.spectral import low_rank_completion, source_start, spectral_start, start_units
from thali.inference.variational.ascent import (
    Problem,
    State,
    ascend,
    begin,
    check_factors,
    global_step,
    local_step,
    n_weights,
    split_rows,
    stretched,
    strongest,
)
from thali.inference.variational.births import source_birth, spectral_birth
from thali.inference.variational.structure_moves import Scope, enough_weights, improve, n_trials, sort_features
from thali.posteriors.approximation import Approximation, Factors
from thali.posteriors.variational import Variational

Array = np.ndarray
Generator = np.random.Generator

STARTS = ("auto", "spectral", "random", "empty")

_WHOLE, _LOOKED_AT = 10**6, 3 * 10**6  # cells: up to so many, sources are those of all rows; else of so many cells
_COOLING = 30  # passes until the temperature is 1
_STAGES, _STAGE_PASSES = 8, 3  # in which rows are introduced, and passes in each
_SLOW = 3e-5  # of the bound: moves are tried after a pass that gains less, and again when all has settled

_truncation = Domain("None or an integer, 1 or more", lambda v: v is None or at_least(1).contains(v))
_temperature = Domain("a number, 1 or more", lambda v: not_negative.contains(v) and v >= 1)


class MeanFieldData(NamedTuple):
    """What all restarts share."""

    problem: Problem
    scope: Scope
    matrix: Array | None  # complete, for starts; None if it would be large, or the model has no such form


@stored("MeanField")
@dataclass(frozen=True, eq=False)
class MeanField(Spec):
    """A posterior that is a product of simple factors, in a fraction of the time of a sampler; and a bound of log p(X).

    Parameters
    ----------
    truncation : int or None
        How many features there may be in use. None leaves it to the prior, and an infinite one gets as many as are
        needed. More than there are rows are never used.
    max_iter : int
        Passes after which a restart ends at the latest.
    tol : float
        A restart ends when neither a pass nor a move raises the bound by this share of it.
    n_restarts : int
        The best of so many is taken.
    start : str or array of shape (n_rows, n_features)
        "auto": in turn from the leading independent sources of X ("spectral"), from no features ("empty", with
        moves) and from random bits ("random"); or each of them from one of these, or from codes that are given.
    moves : bool
        Whether features are born, merged, recoded and deleted on the way, each time if the bound rises by it.
    annealing : float
        The temperature of the evidence at which random starts begin, lowered to 1 in 30 passes; 1 for none.
    gradual : bool
        Whether starts see an eighth of the rows first, then two eighths, and so on.
    bits : "soft" or "hard"
        Probabilities, or a definite value of each bit.
    features : "joint" or "independent"
        One factor over all features of a dim, or one for each as published.
    codes : "joint" or "independent"
        One factor of each bit and its weight, or one for each as published.
    precision : "double" or "single"
        Of the work on rows; sums are double.
    """

    truncation: int | None = setting(None, _truncation)
    max_iter: int = setting(1000, at_least(1))
    tol: float = setting(1e-6, not_negative)
    n_restarts: int = setting(5, at_least(1))
    start: Any = setting("auto", start_domain(*STARTS))
    moves: bool = setting(True, one_of(True, False))
    annealing: float = setting(1.0, _temperature)
    gradual: bool = setting(False, one_of(True, False))
    bits: str = setting("soft", one_of("soft", "hard"))
    features: str = setting("joint", one_of("joint", "independent"))
    codes: str = setting("joint", one_of("joint", "independent"))
    precision: str = setting("double", one_of("double", "single"))

    shape = "restarts"
    needs_prior = (VariationalWeights, AdaptiveWeights)
    needs_observation = (MeanFieldRows,)

    def prepare(self, model: Model, X: Array) -> MeanFieldData:
        family = Family(self.bits, self.features, self.codes, self.precision)
        n_features, can_grow, prior = self._room(model.prior, model.observation.n_owners(X.shape))
        model = Model(prior, model.observation)
        problem = split_rows(model, X, family, _STAGES if self.gradual else 1)
        matrix, observation = None, model.observation
        if observation.has(StartRows) and not observation.has(OwnStart):
            few = X.shape[0] * X.shape[1] <= _WHOLE
            data = observation.engine(ChainRows).prepare(X if few else X[:1])
            matrix, has_offset = observation.engine(StartRows).matrix(data)
            if not few:
                matrix = None
            elif observation.code_kind == "bits":
                matrix = low_rank_completion(matrix)
            else:
                matrix = matrix / start_units(observation, matrix)
            problem = problem._replace(has_offset=has_offset)
        scope = Scope(n_features, can_grow, n_trials(X.shape[0] * X.shape[1]))
        return MeanFieldData(problem, scope, matrix)

    def _room(self, prior: Any, n_rows: int) -> tuple[int, bool, Any]:
        """(most features in use, whether the factor of the weights may grow, the prior with our truncation)."""
        fixed = prior.n_features or prior.get_params(deep=False).get("truncation")
        asked = self.truncation
        if fixed is not None:
            if asked is not None and asked > fixed:
                raise InvalidParameterError(
                    f"MeanField.truncation must be at most the {fixed} features that {type(prior).__name__} has. "
                    f"Got {asked}; leave it out, or let the prior have more."
                )
            return min(fixed, asked or fixed, n_rows), False, prior
        if asked is not None and "truncation" in prior.get_params(deep=False):
            return min(asked, n_rows), False, prior.replace(truncation=asked)
        return min(asked or n_rows, n_rows), True, prior

    # ---- starts

    def init(
        self,
        rng: Generator,
        model: Model,
        data: MeanFieldData,
        restart: int,
        is_over: Callable[[], bool] | None = None,
    ) -> State:
        is_over = is_over or (lambda: False)
        kinds = ("spectral", "empty", "random") if self.moves else ("spectral", "random")  # births lead from nothing
        kind = self.start
        if isinstance(kind, str) and kind == "auto":
            kind = kinds[restart % len(kinds)]
        problem, scope = data.problem, data.scope
        codes = strongest(problem, self._codes(rng, data, kind, is_over), scope.n_features)
        weights = problem.model.prior.init_weights(problem.n_rows)
        weights = enough_weights(problem, weights, codes.shape[1], can_grow=scope.can_grow)
        state = begin(problem, weights, codes)
        if isinstance(kind, str) and kind == "random" and self.annealing > 1:
            for t in range(_COOLING):
                if is_over():
                    break
                state = _hot_pass(problem, state, self.annealing ** (1 - t / _COOLING))
        if self.gradual and codes.shape[1]:
            state = _introduced(problem, state, is_over)
        return ascend(problem, state)

    def _codes(self, rng: Generator, data: MeanFieldData, kind: Any, is_over: Callable[[], bool]) -> Array:
        """Where a restart begins."""
        n_rows, matrix, observation = data.problem.n_rows, data.matrix, data.problem.model.observation
        if is_given(kind):
            return given_codes(kind, n_rows, observation, None).astype(float)
        if observation.has(OwnStart):  # a model that knows better; its rows need a feature
            n = 1 if kind == "empty" else min(data.scope.n_features, self._n_random(rng, data))
            return observation.engine(OwnStart).start_codes(rng, data.problem.data, n, is_over)
        are_bits = observation.code_kind == "bits"
        if kind == "empty":
            return np.zeros((n_rows, 0))
        if kind == "random":
            n = min(data.scope.n_features, self._n_random(rng, data))
            codes = 0.25 + 0.5 * rng.random((n_rows, n))
            return codes if are_bits else codes * rng.choice([-1.0, 1.0], size=(n_rows, n))
        if matrix is None:
            return self._sampled_codes(rng, data)
        if observation.has(FactorStart):
            return factor_start(rng, matrix.T, min(data.scope.n_features, n_rows), is_over)
        if not are_bits:
            return source_start(rng, matrix)
        return spectral_start(rng, matrix, has_offset=data.problem.has_offset).astype(float)

    def _sampled_codes(self, rng: Generator, data: MeanFieldData) -> Array:
        """The sources of some of the rows, and where all rows lie along them."""
        problem, nothing = data.problem, np.zeros((data.problem.n_rows, 0))
        empty = begin(problem, problem.model.prior.init_weights(problem.n_rows), nothing)
        if problem.model.observation.code_kind == "bits":
            found = spectral_birth(rng, problem, empty, _LOOKED_AT, problem.has_offset)
        else:
            found = source_birth(rng, problem, empty, _LOOKED_AT)
        return nothing if found is None else found

    def _n_random(self, rng: Generator, data: MeanFieldData) -> int:
        """How many features a random start has: those that the prior expects to be enough."""
        prior = data.problem.model.prior
        return n_weights(prior, prior.init_weights(data.problem.n_rows))

    # ---- passes

    def step(self, rng: Generator, state: State, model: Model, data: MeanFieldData) -> tuple[State, bool]:
        least = self.tol * abs(state.bound)
        little = max(least, _SLOW * abs(state.bound))
        new = ascend(data.problem, state)._replace(searched=state.searched)
        slow = max(_SLOW * abs(state.bound), 1.0)  # nats
        if new.bound - state.bound < slow and model.observation.has(ScaledFeatures):
            other = stretched(data.problem, new)
            new = other._replace(searched=state.searched) if other.bound > new.bound else new
        gain = new.bound - state.bound
        if gain > little or (gain > least and (state.searched or not self.moves)):
            return new, True
        new = sort_features(data.problem, new)
        if self.moves:
            better, found = improve(rng, data.problem, new, data.scope, least)
            if found:
                return better, True
        return new._replace(searched=True), gain > least

    def posterior(self, rng: Generator, state: State, model: Model, data: MeanFieldData) -> Variational:
        _, _, q, weights, bound, _ = state = sort_features(data.problem, state)
        whole = type(state.local[0])(*(np.concatenate(fields) for fields in zip(*state.local, strict=True)))
        observation = data.problem.model.observation
        if observation.has(ScaledFeatures):
            engine = observation.engine(ScaledFeatures)
            signs = engine.signs(q, [whole])
            whole, q = engine.turned(whole, signs), engine.turned(q, signs)
        return Variational(Approximation(data.problem.model, Factors(whole, q, weights, bound)))

    def check_sound(self, state: Any, model: Model, data: MeanFieldData) -> None:
        if not isinstance(state, State) or state.n_features > data.scope.n_features or not np.isfinite(state.bound):
            raise ValueError("its state is none of mean field")
        check_factors(data.problem, state.n_features, state.q, state.weights, state.local, state.statistics)

    def remarks(self, data: MeanFieldData) -> dict[str, float]:
        return {"is_bound": 1.0}


def _hot_pass(problem: Problem, state: State, temperature: float) -> State:
    """A pass whose rows see flattened evidence; the hyperparameters wait, since noise and heat look alike."""
    q = problem.engine.annealed(state.q, temperature)
    local, statistics = local_step(problem, q, state.weights, state.local)
    return global_step(problem, local, statistics, state.q, state.weights, learn=False)


def _introduced(problem: Problem, state: State, is_over: Callable[[], bool]) -> State:
    """The state after passes over more and more parts of the data."""
    q, weights, local = state.q, state.weights, state.local
    n_parts = len(problem.parts)
    for stage in range(1, _STAGES):
        n_some = max(n_parts * stage // _STAGES, 1)
        some = problem.some(n_some)
        for _ in range(_STAGE_PASSES):
            if is_over():
                break
            mine, statistics = local_step(some, q, weights, local[:n_some])
            _, _, q, weights, _, _ = global_step(some, mine, statistics, q, weights)
            local = mine + local[n_some:]
    local, statistics = local_step(problem, q, weights, local)
    return global_step(problem, local, statistics, q, weights)
