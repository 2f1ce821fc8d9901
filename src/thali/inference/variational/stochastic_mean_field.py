"""Mean field by blocks of rows: after each block the features and weights are updated, and the block can be forgotten.

Sums of statistics are all that is kept of the rows. "memoised" keeps those of each block and replaces them when it
comes again (Hughes & Sudderth 2013): over a pass the bound never falls, and the result is that of a fit of all rows at
once. "robbins-monro" keeps one running mean, in which a block counts by a falling rate: natural gradients with noise
(Hoffman, Blei, Wang & Paisley 2013).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thali.core.model import Model
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows
from thali.core.protocols.prior import AdaptiveWeights, VariationalWeights
from thali.core.registry import stored
from thali.core.spec import Domain, Spec, at_least, not_negative, one_of, setting
from thali.core.statistics import add, are_alike, combine, scale, subtract
from thali.inference.restart import climb
from thali.inference.starts.given import start_domain
from thali.inference.variational.ascent import (
    Problem,
    State,
    ascend,
    check_factors,
    global_step,
    local_step,
    n_weights,
    split_rows,
)
from thali.inference.variational.first_rows import first_rows
from thali.inference.variational.mean_field import STARTS, MeanField
from thali.inference.variational.structure_moves import improve, sort_features
from thali.posteriors.approximation import Approximation, Factors, RowSums, SummedApproximation
from thali.posteriors.variational import Variational
from thali.posteriors.variational_sums import VariationalSums

Array = np.ndarray
Generator = np.random.Generator

_SETTLING = 5  # passes over some rows before features are looked for in them
_MOST_CHANGES = 10  # of the features at a time

_forgetting = Domain("a number above 0.5, up to 1", lambda v: not_negative.contains(v) and 0.5 < v <= 1)
_optional = Domain("None or an integer, 1 or more", lambda v: v is None or at_least(1).contains(v))


@stored("BlockState")
class BlockState(NamedTuple):
    """The factors of features and weights, and the sums that they go with."""

    model: Model  # adapted to the first rows
    q: Any
    weights: Any
    n_features: int
    statistics: Any  # None before the first block, if sums are kept
    n_rows: int  # that the statistics stand for
    n_seen: int  # that came, counted again if they came again
    n_visits: int  # of blocks
    bound: float  # of the rows that the statistics stand for; an estimate with a running mean
    sums: dict[Any, Any]  # statistics of the blocks that come again
    local: dict[Any, tuple[Any, ...]]  # rows' factors of the blocks that are in memory
    no_rows: Any  # the factors of no row at all


@stored("StochasticMeanField")
@dataclass(frozen=True, eq=False)
class StochasticMeanField(Spec):
    """Mean field for data that are many, on disk, or come in batches.

    Factors of rows are kept if the data are in memory. Else they begin anew at each visit, and a block's old statistics
    stay if the new ones would lower the bound.

    Parameters
    ----------
    method : "memoised" or "robbins-monro"
        "memoised" keeps the statistics of each block; "robbins-monro" a running mean in which block t counts by (t
        + delay)^-forgetting, scaled to all rows; a batch of a stream by no more than share^forgetting, with its
        share of the rows so far.
    batch_size : int
        Rows of a block.
    n_inner : int
        Passes over a block's rows before its statistics are used.
    n_epochs : int
        Passes over the data after which a fit ends at the latest.
    tol : float
        A fit ends when a pass raises the bound by less than this share of it.
    delay : float
        Of "robbins-monro": larger values make the first blocks count less.
    forgetting : float
        Of "robbins-monro": larger values forget earlier blocks more slowly.
    n_rows : int or None
        How many rows an iterator or `partial_fit` will bring in all, for the running mean; None: as many as came.
    n_start : int
        Rows from which the features begin, by `MeanField` with the settings below.
    truncation : int or None
        How many features there may be in use, as in `MeanField`.
    n_restarts : int
        Of the fit to the first rows, of which the best is taken.
    start : str or array of shape (n_rows, n_features)
        As in `MeanField`.
    moves : bool
        As in `MeanField`.
    bits : "soft" or "hard"
        Probabilities, or a definite value of each bit.
    features : "joint" or "independent"
        One factor over all features of a dim, or one for each as published.
    codes : "joint" or "independent"
        One factor of each bit and its weight, or one for each as published.
    precision : "double" or "single"
        Of the work on rows; sums are double.
    """

    method: str = setting("memoised", one_of("memoised", "robbins-monro"))
    batch_size: int = setting(8192, at_least(1))
    n_inner: int = setting(3, at_least(1))
    n_epochs: int = setting(30, at_least(1))
    tol: float = setting(1e-6, not_negative)
    delay: float = setting(1.0, not_negative)
    forgetting: float = setting(0.7, _forgetting)
    n_rows: int | None = setting(None, _optional)
    n_start: int = setting(5000, at_least(1))
    truncation: int | None = setting(None, _optional)
    n_restarts: int = setting(3, at_least(1))
    start: Any = setting("auto", start_domain(*STARTS))
    moves: bool = setting(True, one_of(True, False))
    bits: str = setting("soft", one_of("soft", "hard"))
    features: str = setting("joint", one_of("joint", "independent"))
    codes: str = setting("joint", one_of("joint", "independent"))
    precision: str = setting("double", one_of("double", "single"))

    shape = "blocks"
    needs_prior = (VariationalWeights, AdaptiveWeights)
    needs_observation = (MeanFieldRows,)

    @property
    def memoised(self) -> bool:
        return self.method == "memoised"

    @property
    def family(self) -> Family:
        return Family(self.bits, self.features, self.codes, self.precision)

    @property
    def first(self) -> MeanField:
        """The inference of the first rows."""
        shared = ("truncation", "n_restarts", "start", "moves", "bits", "features", "codes", "precision")
        return MeanField(**{name: getattr(self, name) for name in shared})

    def rate(self, visit: int) -> float:
        """How much block `visit` = 1, 2, ... counts in the running mean."""
        # eq: HBWP13.rate
        return float((visit + self.delay) ** -self.forgetting)

    # ---- where it begins

    def begin(
        self, rng: Generator, model: Model, X: Array, n_rows: int | None, is_over: Callable[[], bool]
    ) -> BlockState:
        """Before the first block: features as in a fit of the rows X, which are some of n_rows (None: not known)."""
        first = self.first
        data = first.prepare(model, X)
        numbers = (number for number in range(self.n_restarts) if number == 0 or not is_over())
        best = max((climb(rng, first, model, data, n, is_over) for n in numbers), key=lambda state: state.bound)
        problem = data.problem
        weights = best.weights
        if n_rows is not None and data.scope.can_grow:  # what that many rows may need
            prior = problem.model.prior
            enough = n_weights(prior, prior.init_weights(n_rows))
            weights = prior.grow_weights(weights, max(enough, n_weights(prior, weights)))
        return self._without_blocks(problem, best._replace(weights=weights))

    def with_more(self, rng: Generator, state: BlockState, X: Array) -> BlockState | None:
        """Other features, and perhaps more of them, if the rows X alone are better explained by those: to be tried."""
        data = self.first.prepare(state.model, X)
        problem = data.problem
        local, statistics = local_step(problem, state.q, state.weights, _first_rows(problem, state), self.n_inner)
        mine = global_step(problem, local, statistics, state.q, state.weights)
        for _ in range(_SETTLING):
            mine = ascend(problem, mine)
        n_changes = 0
        while n_changes < _MOST_CHANGES:
            mine, better = improve(rng, problem, mine, data.scope, self.tol * abs(mine.bound))
            if not better:
                break
            n_changes += 1
        return self._without_blocks(problem, mine) if n_changes else None

    def misfit(self, state: BlockState, X: Array) -> Array:
        """Sum of squares that the features leave of each row."""
        problem = split_rows(state.model, X, self.family)
        local, _ = local_step(problem, state.q, state.weights, _first_rows(problem, state), self.n_inner)
        unexplained = problem.engine.unexplained
        left = (unexplained(part, state.q, mine) for part, mine in zip(problem.parts, local, strict=True))
        return np.concatenate([np.einsum("nd,nd->n", R, R) for R in left])

    def _without_blocks(self, problem: Problem, state: State) -> BlockState:
        """Before the first block. A running mean begins with these rows."""
        statistics, n_rows = (None, 0) if self.memoised else (state.statistics, problem.n_rows)
        _, _, q, weights, bound = state[:5]
        return BlockState(problem.model, q, weights, state.n_features, statistics, n_rows, 0, 0, bound, {}, {}, None)

    # ---- blocks

    def visit(
        self, state: BlockState, X: Array, index: int | None = None, *, n_all: int | None = None, keep: bool = False
    ) -> BlockState:
        """The state after a block of checked rows, which comes again if it has an index; `keep` its rows' factors.

        n_all: how many rows all blocks have together, if it is known. With memoised statistics the bound never falls
        when a block comes again, and until all have come sums are all that changes: features that the first blocks
        happen not to have would be forgotten.
        """
        problem = split_rows(state.model, X, self.family)
        local = state.local[index] if index in state.local else _first_rows(problem, state)
        local, new = local_step(problem, state.q, state.weights, local, self.n_inner)
        again = self.memoised and index in state.sums
        if self.memoised:
            old = state.sums.get(index)
            statistics, n_rows = _memoised(state, old, new), state.n_rows + (0 if again else problem.n_rows)
        else:
            n_rows = n_all or max(self.n_rows or 0, state.n_seen + problem.n_rows)
            # a row or two after hundreds must not count as a block does: no more than their share would, forgetting
            share = problem.n_rows / (state.n_seen + problem.n_rows) if index is None else 1.0
            statistics = self._blended(state, scale(new, n_rows / problem.n_rows), n_rows, share**self.forgetting)
        counted = state._replace(
            n_visits=state.n_visits + 1,
            n_seen=state.n_seen + problem.n_rows,
            no_rows=type(local[0])(*(field[:0] for field in local[0])),
        )
        if self.memoised and index is not None and n_rows < (n_all or 0):
            done = counted._replace(statistics=statistics, n_rows=n_rows)
        else:
            done = _updated(counted, statistics, n_rows, self.family)
        if again and done.bound < state.bound:  # rows that began anew got stuck where they had not before
            return counted
        if index is None:
            return done
        return done._replace(
            sums=state.sums | {index: new} if self.memoised else {},
            local=state.local | {index: local} if keep else {},
        )

    def _blended(self, state: BlockState, new: Any, n_rows: int, at_most: float = 1.0) -> Any:
        """The running mean after statistics that are scaled to n_rows, as it is; it begins with the first rows."""
        rate = min(self.rate(state.n_visits + 1), at_most)
        if rate == 1:
            return new
        # eq: HBWP13.step
        return add(scale(state.statistics, (1 - rate) * n_rows / state.n_rows), scale(new, rate))

    def in_order(self, state: BlockState) -> BlockState:
        """Sums added anew, which undoes rounding, and features in order of their counts if the bound rises by it."""
        statistics = combine(state.sums[i] for i in sorted(state.sums)) if state.sums else state.statistics
        problem = _all_rows(state.model, state.n_rows, self.family)
        keys, kept = list(state.local), [len(local) for local in state.local.values()]
        carried = (*state.sums.values(), *(part for local in state.local.values() for part in local), state.no_rows)
        whole = global_step(problem, carried, statistics, state.q, state.weights)
        whole = sort_features(problem, whole)
        sums = dict(zip(state.sums, whole.local, strict=False))
        parts = iter(whole.local[len(sums) :])
        local = {key: tuple(next(parts) for _ in range(n)) for key, n in zip(keys, kept, strict=True)}
        return state._replace(
            q=whole.q,
            weights=whole.weights,
            statistics=whole.statistics,
            bound=whole.bound,
            sums=sums,
            local=local,
            no_rows=next(parts),
        )

    def posterior(self, state: BlockState, n_blocks: int | None = None) -> Variational:
        """With the factors of the rows, if those of all n_blocks blocks were kept."""
        _, q, weights = state[:3]
        if n_blocks != len(state.local):
            factors = Factors(state.no_rows, q, weights, state.bound)
            sums = RowSums(state.n_rows, np.asarray(state.statistics.counts))
            return VariationalSums(SummedApproximation(state.model, factors, sums))
        parts = [part for index in range(n_blocks) for part in state.local[index]]
        whole = type(parts[0])(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))
        return Variational(Approximation(state.model, Factors(whole, q, weights, state.bound)))

    def check_resumable(self, state: Any, model: Model, blocks: Any) -> None:
        """A ValueError if the state, which comes from a file, is none in the middle of a pass over these blocks."""
        if not isinstance(state, BlockState):
            raise ValueError("its state is none of a fit by blocks")
        _check_model(state, model)
        known = set(range(blocks.n_blocks))
        if not state.sums.keys() <= known or not state.local.keys() <= known:
            raise ValueError("its blocks are not those of the data")
        for index in state.local.keys() | {0}:
            problem = split_rows(state.model, blocks.block(index), self.family)
            local, sums = state.local.get(index), state.statistics
            check_factors(problem, state.n_features, state.q, state.weights, local, sums)
        if not all(are_alike(state.statistics, sums, shared_axes=True) for sums in state.sums.values()):
            raise ValueError("its sums do not fit together")

    def check_sound(self, state: Any, model: Model) -> None:
        """A ValueError if the state, which comes from a file, does not fit the model or itself."""
        if not isinstance(state, BlockState) or state.n_rows < 1 or state.n_features != len(state.statistics.counts):
            raise ValueError("its state is none of a fit by blocks")
        _check_model(state, model)
        anew = _updated(state, state.statistics, state.n_rows, self.family)
        same = all(np.shape(mine) == np.shape(its) for mine, its in zip(anew.q, state.q, strict=True))
        if not same or not np.isfinite(anew.bound):
            raise ValueError("its factors do not fit its sums")


def _check_model(state: BlockState, model: Model) -> None:
    kinds = [type(part) for one in (state.model, model) for part in (one.prior, one.observation)]
    if kinds[:2] != kinds[2:]:
        raise ValueError("its state is that of another model")


def _first_rows(problem: Problem, state: BlockState) -> tuple[Any, ...]:
    return first_rows(problem, state.q, state.weights, state.n_features)


def _memoised(state: BlockState, old: Any, new: Any) -> Any:
    """The sums with those of one block in place of its old ones."""
    if state.statistics is None:
        return new
    # eq: HS13.memoised
    return add(state.statistics if old is None else subtract(state.statistics, old), new)


def _updated(state: BlockState, statistics: Any, n_rows: int, family: Family) -> BlockState:
    """Features, hyperparameters and weights given these sums."""
    done = global_step(_all_rows(state.model, n_rows, family), (), statistics, state.q, state.weights)
    return state._replace(q=done.q, weights=done.weights, statistics=statistics, n_rows=n_rows, bound=done.bound)


def _all_rows(model: Model, n_rows: int, family: Family) -> Problem:
    """So many rows, none of which is at hand."""
    return Problem(model, None, (), np.array([0, n_rows]), family)
