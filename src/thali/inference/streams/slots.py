"""Mean field with a fixed number of slots for features, given a batch of rows and the sums of all rows before it.

Rows that are gone have no factors any more, only sums. So a slot that no row has yet can get a feature, whose codes are
those of the batch, and a slot can be emptied, with sums like those of another that no row has; each is a trial, kept
if the bound of all rows rises. Any other change would need the rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from thali.core.statistics import add
from thali.inference.variational.ascent import Problem, State, arrange, explained, global_step, local_step
from thali.inference.variational.births import direction_birth, row_birth, source_birth, spectral_birth
from thali.inference.variational.first_rows import first_rows

Array = np.ndarray
Generator = np.random.Generator
Birth = Callable[[Generator, Problem, State], Array | None]

IN_USE = 0.5  # expected rows that a feature has at least

_ENOUGH = 20  # rows among which sources can be told apart
_LITTLE = 1e-3  # nats that a birth has to bring
_BIRTHS: dict[str, tuple[Birth, ...]] = {
    "bits": (spectral_birth, row_birth),
    "real": (source_birth, direction_birth),
    "positive": (direction_birth,),
}


class Batch(NamedTuple):
    """Some rows, and what is known of those before them."""

    problem: Problem
    earlier: Any  # their sums, by slot; None if there were no rows
    n_rows: float  # of all; those that count for less are no whole number

    def updated(self, state: State, n_passes: int = 1) -> State:
        """After so many passes over the rows of the batch, features and weights given the sums of all rows."""
        local, sums = local_step(self.problem, state.q, state.weights, state.local, n_passes)
        return self.refit(local, sums if self.earlier is None else add(self.earlier, sums), state.q, state.weights)

    def refit(self, local: Any, sums: Any, q: Any, weights: Any) -> State:
        """Features and weights given these sums. No feature has more rows than there are, whatever rounding says."""
        n_rows = max(self.n_rows, float(np.max(sums.counts, initial=0.0)))
        return global_step(self.problem, local, sums, q, weights, n_rows=n_rows)

    def settled(self, state: State, n_inner: int, least: float) -> State:
        """After passes as long as each raises the bound by so much, n_inner at most."""
        for _ in range(n_inner):
            before, state = state.bound, self.updated(state)
            if state.bound - before < least:
                break
        return state


def begun(batch: Batch, q: Any, weights: Any) -> State:
    """Rows near their optimum given the features so far."""
    n_slots = len(batch.problem.engine.expected_features(q))
    if batch.earlier is None:
        return started(batch, q, weights, np.zeros((batch.problem.n_rows, n_slots)))
    local = first_rows(batch.problem, q, weights, n_slots)
    return batch.updated(State(local, batch.earlier, q, weights, -np.inf), n_passes=0)


def started(batch: Batch, q: Any, weights: Any, codes: Array) -> State:
    """Rows near these codes, and features fitted to them, as published."""
    problem = batch.problem
    edges = zip(problem.parts, problem.starts[:-1], problem.starts[1:], strict=True)
    local = tuple(problem.engine.init_rows(part, codes[a:b]) for part, a, b in edges)
    return batch.updated(State(local, batch.earlier, q, weights, -np.inf), n_passes=0)


def with_births(
    rng: Generator, batch: Batch, state: State, settle: Callable[[Batch, State], State]
) -> tuple[Batch, State]:
    """Features in slots that no row has, as long as the bound rises; slots may change places, in the batch too."""
    problem = batch.problem
    for birth in _BIRTHS[problem.model.observation.code_kind]:
        if birth in (spectral_birth, source_birth) and problem.n_rows < _ENOUGH:
            continue
        while (empty := np.flatnonzero(state.statistics.counts < IN_USE)).size:
            codes = birth(rng, problem, state)
            if codes is None or not codes.shape[1] or not np.isfinite(codes).all():
                break
            tried, trial = _born(batch, state, empty, codes[:, : len(empty)])
            trial = settle(tried, trial)
            if not trial.bound > state.bound + _LITTLE:
                break
            batch, state = tried, trial
    return batch, state


def _born(batch: Batch, state: State, empty: Array, codes: Array) -> tuple[Batch, State]:
    """With these codes in the first of the empty slots."""
    problem, engine = batch.problem, batch.problem.engine
    in_use = np.setdiff1d(np.arange(state.n_features), empty)
    batch, state = ordered(batch, state, np.concatenate([in_use, empty]))
    codes = np.hstack([codes, np.zeros((problem.n_rows, len(empty) - codes.shape[1]))])
    parts = []
    for mine, a, b in zip(state.local, problem.starts[:-1], problem.starts[1:], strict=True):
        kept = engine.keep_columns(mine, np.arange(len(in_use)))
        for column in codes[a:b].T:
            kept = engine.add_column(kept, column)
        parts.append(kept)
    return batch, batch.updated(state._replace(local=tuple(parts)), n_passes=0)


def without_idle(batch: Batch, state: State) -> tuple[Batch, State]:
    """Features whose deletion raises the bound, rows as they are, give up their slots: from the least, one by one."""
    for _ in range(state.n_features):
        counts = state.statistics.counts
        empty, in_use = np.flatnonzero(counts < IN_USE), np.flatnonzero(counts >= IN_USE)
        if not empty.size or not in_use.size:
            break
        size = explained(batch.problem, state.q, state.statistics)[in_use]
        for k in {int(in_use[np.argmin(size)]), int(in_use[np.argmin(counts[in_use])])}:
            tried, trial = _emptied(batch, state, k, int(empty[0]))
            if trial.bound >= state.bound:
                batch, state = tried, trial
                break
        else:
            break
    return batch, state


def _emptied(batch: Batch, state: State, k: int, empty: int) -> tuple[Batch, State]:
    """Slot k with the sums of one that is empty."""
    engine = batch.problem.engine
    columns = np.arange(state.n_features)
    columns[k] = empty
    batch = _rearranged(batch, columns)
    local = tuple(engine.keep_columns(mine, columns) for mine in state.local)
    return batch, batch.updated(state._replace(local=local), n_passes=0)


def in_order(batch: Batch, state: State) -> tuple[Batch, State]:
    """Slots in order of their counts, which sticks want, if the bound rises."""
    order = np.argsort(-state.statistics.counts, kind="stable")
    if (np.diff(order) == 1).all():
        return batch, state
    moved, new = ordered(batch, state, order)
    new = moved.refit(new.local, new.statistics, new.q, new.weights)
    return (moved, new) if new.bound > state.bound else (batch, state)


def ordered(batch: Batch, state: State, order: Array) -> tuple[Batch, State]:
    """Slots in this order."""
    return _rearranged(batch, order), arrange(batch.problem, state, order)


def _rearranged(batch: Batch, columns: Array) -> Batch:
    if batch.earlier is None:
        return batch
    return batch._replace(earlier=batch.problem.engine.keep_columns(batch.earlier, columns))
