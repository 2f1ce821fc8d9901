"""The search for a start: spectral and annealed candidates, the better one repaired by moves of whole columns.

Nothing here needs to be reversible; sampling begins where it ends. All of it counts in sweeps, never in seconds, so
that a seed gives the same start on every machine.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.core.odds import row_odds
from thali.core.protocols.engines.chains import (
    BitEntropy,
    CollapsedRows,
    ColumnMoves,
    ConditionalRows,
    FactorStart,
    OwnStart,
    StartRows,
)
from thali.core.protocols.prior import AuxiliaryPrior
from thali.inference.samplers.column_moves import AND_NOT, COMPLEMENT, OR, XOR, Rebirth, column_weight
from thali.inference.starts.factors import factor_start
from thali.inference.starts.given import given_codes, is_given
from thali.inference.starts.searching_chain import SearchOver, Walk
from thali.inference.starts.spectral import fit_columns, low_rank_completion, source_start, spectral_start, start_units

Array = np.ndarray
State = tuple[Any, Any, Any]  # concrete prior, concrete observation, local

KINDS = ("search", "spectral", "annealed", "empty")

_SETTLING = 12  # rounds with learned hyperparameters
_HEAT, _COOLING = 16.0, 150  # noise variance at the start of annealing, sweeps until it is 1
_ROUNDS = 4  # of search, with the hyperparameters learned in between
_SMALL, _MOST_EFFORT = 20_000, 8  # cells below which the search takes its time (sweeps are cheap there), how much
_TINY = 200  # cells in which there is little to find
_PATIENCE = 25  # failures in a row, for up to 8 features; more for more
_LONGEST = 5  # times the budget, however much progress there is
_STALE = 25  # trials after which the score to beat is measured anew, since a lucky one would block all others
_HOPELESS, _POOR = 120.0, 40.0  # nats below the best at which a trial is given up, before and after settling
_BETTER, _CLEAR = 1.0, 5.0  # nats above the best: accepted, and counted as progress
_TRIALS = (
    Rebirth(1, 0), Rebirth(1, 1), Rebirth(2, 1), Rebirth(1, 2), Rebirth(2, 2), Rebirth(0, 1), Rebirth(3, 2),
    Rebirth(2, 3), XOR, OR, AND_NOT, COMPLEMENT,
)  # fmt: skip


def find_start(
    rng: np.random.Generator, model: Model, data: Any, kind: Any, budget: int, tick: Callable[[], None] | None = None
) -> State:
    """A state to begin with; the search ends after `budget` sweeps without progress. No budget, no search.

    `kind` is one of KINDS, or codes (n_rows, n_features), from which there is nothing to search. `tick` is called after
    every sweep: if it raises `SearchOver`, the search ends where it has come to.
    """
    n_features, observation = model.prior.n_features, model.observation
    start = observation.engine(StartRows)
    if is_given(kind):
        return _at_codes(rng, model, data, kind)
    if observation.has(OwnStart) or observation.has(FactorStart):
        codes = _own_codes(rng, observation, data, n_features, kind, partial(_is_over, tick))
        codes = codes[:, codes.any(axis=0)] if n_features is None else codes
        observation, local = start.begin(data, codes, np.empty((0, 0)))  # by the codes alone
        return model.prior.resample(rng, model.prior.draw(rng), local.z), observation, local
    matrix, has_offset = start.matrix(data)
    by_row = isinstance(model.prior, AuxiliaryPrior)
    if by_row or not all(observation.has(engine) for engine in (CollapsedRows, ColumnMoves, BitEntropy)):
        return _without_search(rng, model, data, matrix, has_offset, kind, budget, tick)
    matrix = low_rank_completion(matrix)
    empty = np.zeros((len(matrix), 0), dtype=np.uint8)
    Z = empty if kind == "empty" else spectral_start(rng, matrix, has_offset=has_offset)
    Z = fit_columns(Z, n_features)
    prior = model.prior.resample(rng, model.prior.draw(rng), Z)
    observation, local = start.begin(data, Z, matrix)
    walk = Walk(rng, model, data, (prior, observation, local), tick)
    if kind == "empty":
        return walk.state
    try:
        if not has_offset and n_features is None:
            _try_constant(walk)
        walk.settle(min(3, budget), births=False)
        walk.settle(min(_SETTLING, budget), learn=True)
        if kind in ("search", "annealed") and budget > 0:
            cooled = _annealed(walk, fit_columns(empty, n_features), min(_COOLING, budget))
            if kind == "annealed" or cooled.score(12) > walk.score(12):
                walk = cooled
        if kind == "search" and budget > 0:
            effort = max(1, min(_SMALL // matrix.size, matrix.size // _TINY, _MOST_EFFORT))
            for _ in range(_ROUNDS):
                soft_search(walk, effort * _PATIENCE, effort * budget // _ROUNDS)
                walk.settle(8, learn=True)
    except SearchOver:
        pass  # where it has come to
    return walk.state


def _own_codes(
    rng: np.random.Generator,
    observation: Any,
    data: Any,
    n_features: int | None,
    kind: str,
    is_over: Callable[[], bool],
) -> Array:
    """Codes of models that know better than the directions of their rows where to begin."""
    if observation.has(OwnStart):
        codes = observation.engine(OwnStart).start_codes(rng, data, n_features, is_over)
        return np.zeros_like(codes) if kind == "empty" else codes
    if kind == "empty":
        return np.zeros((len(data), n_features or 0))
    Y = observation.engine(FactorStart).start_factors(data)
    return fit_columns(factor_start(rng, Y, n_features, is_over), n_features)


def _is_over(tick: Callable[[], None] | None) -> bool:
    try:
        if tick is not None:
            tick()
    except SearchOver:
        return True
    return False


def _at_codes(rng: np.random.Generator, model: Model, data: Any, codes: Any) -> State:
    """The state with the codes that a user gave."""
    start, n_features = model.observation.engine(StartRows), model.prior.n_features
    if model.observation.has(OwnStart) or model.observation.has(
        FactorStart
    ):  # its rows may be sparse, and are not looked at
        codes = given_codes(codes, len(data), model.observation, n_features)
        observation, local = start.begin(data, codes, np.empty((0, 0)))
    else:
        matrix, _ = start.matrix(data)
        codes = given_codes(codes, len(matrix), model.observation, n_features)
        units = start_units(model.observation, matrix)
        observation, local = start.begin(data, codes, low_rank_completion(matrix / units) * units)
    return model.prior.resample(rng, model.prior.draw(rng), local.z), observation, local


def _without_search(
    rng: np.random.Generator,
    model: Model,
    data: Any,
    matrix: Array,
    has_offset: bool,
    kind: str,
    budget: int,
    tick: Callable[[], None] | None,
) -> State:
    """For models that have no moves of columns, such as those whose features have weights: sources of the leading
    directions of the data, or no features and much noise, cooled. Sweeps mend such a start."""
    n_features, bits = model.prior.n_features, model.observation.code_kind == "bits"
    nothing = fit_columns(np.zeros((len(matrix), 0), dtype=np.uint8 if bits else float), n_features)
    units = start_units(model.observation, matrix)
    completed = low_rank_completion(matrix / units)
    if kind == "empty":
        codes = nothing
    elif bits:
        codes = fit_columns(spectral_start(rng, completed, has_offset=has_offset), n_features)
    else:
        codes = fit_columns(source_start(rng, matrix / units), n_features)
    completed = completed * units
    start = model.observation.engine(StartRows)
    observation, local = start.begin(data, codes, completed)
    prior = model.prior.resample(rng, model.prior.draw(rng), local.z)
    if kind == "annealed":
        _, local = start.begin(data, nothing, completed)
        n_sweeps = min(_COOLING, budget)
        for i in range(n_sweeps):
            odds = row_odds(rng, prior, local.z)
            hot = observation.engine(StartRows).tempered(_HEAT ** (1 - i / n_sweeps))
            if hot.has(ConditionalRows):
                local = hot.engine(ConditionalRows).conditional_sweep(rng, data, local, odds)
            else:
                local, _ = hot.engine(CollapsedRows).sweep(rng, data, local, odds)
            try:
                if tick is not None:
                    tick()
            except SearchOver:
                break
    return prior, observation, local


def _try_constant(walk: Walk) -> None:
    """A feature that every row has, if it makes the joint larger: the mean of the data, which ICA does not see."""
    before, Z = walk.log_joint(), walk.local.z
    walk.place(np.hstack([Z, np.ones((len(Z), 1), dtype=np.uint8)]))
    if walk.log_joint() < before:
        walk.place(Z)


def _annealed(walk: Walk, Z: Array, n_sweeps: int) -> Walk:
    """A second candidate, from no features and much noise, with the hyperparameters of the first. It finds the rare
    features that lie below the spectral edge."""
    cooled = Walk(walk.rng, walk.model, walk.data, (walk.prior, walk.observation, walk.local), walk.tick)
    cooled.place(Z)
    for i in range(n_sweeps):
        hot = cooled.observation.engine(StartRows).tempered(_HEAT ** (1 - i / n_sweeps))
        cooled.sweep(observation=hot)
    cooled.settle(min(_SETTLING, n_sweeps), learn=True)
    cooled.n_sweeps += walk.n_sweeps
    return cooled


def soft_search(walk: Walk, patience: int, budget: int) -> None:
    """Try moves of columns, hyperparameters fixed; keep what has the higher free energy.

    It ends after `patience` failures in a row (more with many features), or `budget` sweeps without clear progress.
    """
    walk.settle(4)
    best, kept = walk.score(12), walk.local
    failures, stale = 0, 0
    begun = progress = walk.n_sweeps
    while (
        failures < patience * max(1.0, walk.n_features / 8)
        and walk.n_sweeps < progress + budget
        and walk.n_sweeps < begun + _LONGEST * budget
    ):
        stale += 1
        if stale >= _STALE:
            walk.settle(1)
            best, kept, stale = walk.score(12), walk.local, 0
        try:
            score = _trial(walk, best)
        except SearchOver:
            walk.local = kept
            raise
        if score > best + _BETTER:
            if score > best + _CLEAR:
                failures, progress = 0, walk.n_sweeps
            best, kept, stale = score, walk.local, 0
        else:
            walk.local = kept
            failures += 1


def _trial(walk: Walk, best: float) -> float:
    """Change some columns, settle, and score; hopeless ones are given up early."""
    move = _TRIALS[int(walk.rng.integers(len(_TRIALS)))]
    grows = walk.odds.infinite
    if walk.n_features < move.n_columns or not (grows or getattr(move, "n_new", 2) == move.n_columns):
        return -np.inf
    weight = column_weight(*walk.odds.table())
    columns = _pick(walk, move.n_columns)
    engine = walk.observation.engine(ColumnMoves)
    local, _ = move.propose(walk.rng, engine, walk.data, walk.local, weight, columns)
    walk.local = local
    if grows and not local.z.any(axis=0).all():
        walk.place(local.z)
    walk.sweep()
    score = walk.score(3)
    if score < best - _HOPELESS:
        return -np.inf
    walk.settle(2)
    score = walk.score(3)
    if score < best - _POOR:
        return -np.inf
    return (3 * score + 9 * walk.score(9)) / 12


def _pick(walk: Walk, n_columns: int) -> Array:
    """One column at random; its partners at random too, or half of the time by the likeness of their features."""
    rng, n_features = walk.rng, walk.n_features
    if n_columns < 2 or rng.random() < 0.5:
        return rng.permutation(n_features)[:n_columns]
    first = int(rng.integers(n_features))
    chance = walk.observation.engine(ColumnMoves).likeness(walk.local)[first] + 1e-3
    chance[first] = 0.0
    partners = rng.choice(n_features, n_columns - 1, replace=False, p=chance / chance.sum())
    return np.concatenate([[first], partners])
