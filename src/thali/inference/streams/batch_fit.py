"""Mean field of a batch of rows, given the sums of all rows before it.

Rows that are gone have no factors any more, only sums. So a new feature is one that none of them has, and a feature
can only be kept or deleted as a whole; each is a trial, kept if the bound of all rows rises. Any other change would
need the rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from thali.core.protocols.engines.mean_field import GrowingSums
from thali.core.statistics import add
from thali.inference.variational.ascent import Problem, State, arrange, explained, global_step, local_step
from thali.inference.variational.births import direction_birth, row_birth, source_birth, spectral_birth
from thali.inference.variational.first_rows import first_rows

Array = np.ndarray
Generator = np.random.Generator
Birth = Callable[[Generator, Problem, State], Array | None]

_ENOUGH = 20  # rows among which several features can be told apart
_REACH = 20  # passes like the last one in which a trial should reach its target
_LITTLE = 1e-3  # nats that a birth has to bring
_BIRTHS: dict[str, tuple[Birth, ...]] = {
    "bits": (spectral_birth, row_birth),
    "real": (source_birth, direction_birth),
    "positive": (direction_birth,),
}


class Batch(NamedTuple):
    """Some rows, what is known of those before them, and how they are fitted."""

    problem: Problem
    earlier: Any  # sums of the rows before; None if there were none
    n_before: float  # how many they stand for: no whole number where they count for less
    n_slots: int  # features that there may be
    n_inner: int
    least: float  # nats that a pass has to bring

    @property
    def n_rows(self) -> float:
        """Those of all sums together."""
        return self.n_before + self.problem.n_rows

    def updated(self, state: State, n_passes: int = 1) -> State:
        """After so many passes over the rows of the batch, features and weights given the sums of all rows."""
        local, sums = local_step(self.problem, state.q, state.weights, state.local, n_passes)
        return self.refit(state._replace(local=local, statistics=self._with_earlier(sums)))

    def _with_earlier(self, sums: Any) -> Any:
        # eq: S22.streaming-sums
        return sums if self.earlier is None else add(self.earlier, sums)

    def refit(self, state: State) -> State:
        """Features and weights given the sums. No feature has more rows than there are, whatever rounding says."""
        n_rows = max(self.n_rows, float(np.max(state.statistics.counts, initial=0.0)))
        return global_step(self.problem, *state[:4], n_rows=n_rows)

    def settled(self, state: State, target: float = -np.inf) -> State:
        """After passes as long as each raises the bound enough, and it may come to the target."""
        for _ in range(self.n_inner):
            before, state = state.bound, self.updated(state)
            gain = state.bound - before
            if gain < self.least or state.bound + _REACH * gain < target:
                break
        return state

    def columns(self, state: State, columns: Array) -> tuple["Batch", State]:
        """With these features only, in this order; nothing is fitted anew."""
        engine = self.problem.engine
        earlier = None if self.earlier is None else engine.keep_columns(self.earlier, columns)
        return self._replace(earlier=earlier), arrange(self.problem, state, columns)


def known(batch: Batch, q: Any, weights: Any) -> State:
    """Rows near their optimum given the features so far."""
    n_features = len(batch.problem.engine.expected_features(q))
    local = first_rows(batch.problem, q, weights, n_features)
    return batch.settled(batch.updated(State(local, None, q, weights, -np.inf), n_passes=0))


def begun(batch: Batch, q: Any, weights: Any, codes: Array) -> State:
    """Rows near these codes, and features fitted to them first."""
    problem = batch.problem
    edges = zip(problem.parts, problem.starts[:-1], problem.starts[1:], strict=True)
    local = tuple(problem.engine.init_rows(part, codes[a:b]) for part, a, b in edges)
    return batch.settled(batch.updated(State(local, None, q, weights, -np.inf), n_passes=0))


def left_over(batch: Batch, state: State) -> Array:
    """Sums of squares that the features leave: of the worst row, and of a mean one."""
    unexplained = batch.problem.engine.unexplained
    left = [unexplained(part, state.q, mine) for part, mine in zip(batch.problem.parts, state.local, strict=True)]
    squares = np.concatenate([np.einsum("nd,nd->n", R, R) for R in left])
    return np.array([squares.max(), squares.mean()])


def with_births(rng: Generator, batch: Batch, state: State) -> tuple[Batch, State]:
    """More features, as long as the bound rises.

    The better of two ways: as many at a time as there seem to be, then one by one; or the other way round.
    """
    kinds = _BIRTHS[batch.problem.model.observation.code_kind]
    if batch.problem.n_rows < _ENOUGH:
        kinds = kinds[-1:]
    ways = [_births(rng, batch, state, order) for order in dict.fromkeys((kinds, kinds[::-1]))]
    return max(ways, key=lambda way: way[1].bound)


def _births(rng: Generator, batch: Batch, state: State, kinds: tuple[Birth, ...]) -> tuple[Batch, State]:
    for birth in kinds:
        while state.n_features < batch.n_slots:
            codes = birth(rng, batch.problem, state)
            if codes is None or not codes.shape[1]:
                break
            tried, trial = _born(batch, state, codes[:, : batch.n_slots - state.n_features])
            tried, trial = without_idle(tried, tried.settled(trial, state.bound))
            if not trial.bound > state.bound + _LITTLE:
                break
            batch, state = tried, trial
    return batch, state


def _born(batch: Batch, state: State, codes: Array) -> tuple[Batch, State]:
    """With one more feature for each column of these codes."""
    problem, engine = batch.problem, batch.problem.engine
    local, q, earlier = state.local, state.q, batch.earlier
    for column in codes.T:
        edges = zip(local, problem.starts[:-1], problem.starts[1:], strict=True)
        local = tuple(engine.add_column(mine, column[a:b]) for mine, a, b in edges)
        q = engine.add_feature(q)
        if earlier is not None:
            earlier = problem.model.observation.engine(GrowingSums).with_unused(q, earlier, batch.n_before)
    batch = batch._replace(earlier=earlier)
    return batch, batch.updated(state._replace(local=local, q=q), n_passes=0)


def without_idle(batch: Batch, state: State) -> tuple[Batch, State]:
    """Without the features whose deletion raises the bound, rows as they are: from the least, one by one."""
    for _ in range(state.n_features):
        size = explained(batch.problem, state.q, state.statistics)
        for k in {int(np.argmin(size)), int(np.argmin(state.statistics.counts))}:
            tried, smaller = batch.columns(state, np.delete(np.arange(state.n_features), k))
            smaller = tried.updated(smaller, n_passes=0)
            if smaller.bound >= state.bound:
                batch, state = tried, smaller
                break
        else:
            break
    return batch, state


def in_order(batch: Batch, state: State) -> State:
    """Features in order of their counts, which sticks want, if the bound rises."""
    order = np.argsort(-state.statistics.counts, kind="stable")
    if (np.diff(order) == 1).all():
        return state
    batch, moved = batch.columns(state, order)
    moved = batch.refit(moved)
    return moved if moved.bound > state.bound else state
