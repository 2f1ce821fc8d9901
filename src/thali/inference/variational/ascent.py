"""Coordinate ascent on the bound: a local step on parts of the data, a sum of statistics, a global step.

The prior's factor has `truncation` features, of which the first n_features are active; q(z) = 0 for the others, so that
they stay as in the prior but for what their absence says of their weights, and cost nothing in the rows.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np

from thali.core.model import Model
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows, ScaledFeatures
from thali.core.registry import stored
from thali.core.statistics import add, are_alike

Array = np.ndarray

_CELLS, _FEWEST = 2**24, 1024  # of one part of the data, and rows of it
_WEIGHT_PASSES, _LITTLE = 4, 1e-2  # over the weights at a time, while they gain so many nats


class Problem(NamedTuple):
    """What stays the same during a fit."""

    model: Model  # adapted to the data
    data: Any  # all of it, as `row_data` of the observation model
    parts: tuple[Any, ...]  # its rows, in order
    starts: Array  # the first row of each part, and the number of rows
    family: Family
    has_offset: bool = True  # that is learned

    @property
    def engine(self) -> MeanFieldRows:
        """That of the observation model."""
        return self.model.observation.engine(MeanFieldRows)

    @property
    def n_rows(self) -> int:
        return int(self.starts[-1])

    def some(self, n_parts: int) -> "Problem":
        """The first parts alone."""
        return self._replace(parts=self.parts[:n_parts], starts=self.starts[: n_parts + 1])


@stored("MeanFieldState")
class State(NamedTuple):
    """All factors, the sums over rows that go with them, and the bound that they have."""

    local: tuple[Any, ...]  # of each part
    statistics: Any
    q: Any
    weights: Any
    bound: float
    searched: bool = False  # whether moves were tried in vain

    @property
    def objective(self) -> float:
        return -self.bound

    @property
    def n_features(self) -> int:
        return len(self.statistics.counts)


def split_rows(model: Model, X: Any, family: Family, n_parts: int = 1) -> Problem:
    """The data in n_parts or more, by their size alone: so sums over parts do not depend on the number of threads."""
    data = model.observation.engine(MeanFieldRows).row_data(X)
    n_cells = X.shape[0] * X.shape[1] // max(len(data), 1)
    size = min(max(_CELLS // max(n_cells, 1), _FEWEST), -(-len(data) // n_parts))
    starts = np.append(np.arange(0, len(data), size), len(data))
    parts = tuple(data.part(int(a), int(b)) for a, b in itertools.pairwise(starts))
    return Problem(model, data, parts, starts, family)


def begin(problem: Problem, weights: Any, codes: Array, *, learn: bool = True) -> State:
    """The state near these codes."""
    engine = problem.engine
    edges = zip(problem.parts, problem.starts[:-1], problem.starts[1:], strict=True)
    local = tuple(engine.init_rows(part, codes[a:b]) for part, a, b in edges)
    q = engine.init_features(problem.data, codes.shape[1], problem.family)
    return refit(problem, local, q, weights, learn=learn)


def check_factors(problem: Problem, n_features: int, q: Any, weights: Any, local: Any = None, sums: Any = None) -> None:
    """A ValueError unless these factors (and sums), which may come from a file, have the forms that ours would have."""
    if n_weights(problem.model.prior, weights) < n_features:
        raise ValueError("it has more features than weights")
    ours = begin(problem, weights, np.full((problem.n_rows, n_features), 0.5))
    sound = are_alike(ours.weights, weights) and (local is None or are_alike(ours.local, local))
    for mine, its in ((ours.q, q), (ours.statistics, sums)):  # dims without missing cells share what they can
        sound = sound and (its is None or are_alike(mine, its, shared_axes=True))
    if not sound:
        raise ValueError("its factors do not fit the data")
    for part in () if local is None else local:
        problem.engine.check(q, part)


def strongest(problem: Problem, codes: Array, limit: int) -> Array:
    """At most `limit` of these codes: those whose features explain most of the data."""
    K = codes.shape[1]
    if limit >= K:
        return codes
    engine = problem.engine
    q = engine.init_features(problem.data, K, problem.family)
    _, statistics = engine.update_rows(problem.data, q, engine.init_rows(problem.data, codes), np.zeros(K), n_passes=0)
    q = engine.update_features(q, statistics, learn=False)
    return codes[:, np.sort(np.argsort(-explained(problem, q, statistics), kind="stable")[:limit])]


def explained(problem: Problem, q: Any, statistics: Any) -> Array:
    """How much of the data each feature explains, about: expected rows that have it times its square."""
    features = problem.engine.expected_features(q)
    return statistics.counts * np.einsum("kd,kd->k", features, features)


def refit(problem: Problem, local: tuple[Any, ...], q: Any, weights: Any, *, learn: bool = True) -> State:
    """The state with these rows: features and weights at their optimum, or near it."""
    local, statistics = local_step(problem, q, weights, local, n_passes=0)
    return global_step(problem, local, statistics, q, weights, learn=learn)


def local_step(
    problem: Problem, q: Any, weights: Any, local: tuple[Any, ...], n_passes: int = 1
) -> tuple[tuple[Any, ...], Any]:
    """Every row's factor at its optimum given the rest, `n_passes` times over the features; and the sums of all."""
    model = problem.model
    log_odds = model.prior.expected_log_odds(weights)[: local[0].z_prob.shape[1]]

    rows = zip(problem.parts, local, strict=True)  # kernels use all cores themselves
    done = [problem.engine.update_rows(part, q, mine, log_odds, n_passes) for part, mine in rows]
    statistics = done[0][1]
    for _, more in done[1:]:
        statistics = add(statistics, more)
    return tuple(mine for mine, _ in done), statistics


def global_step(
    problem: Problem,
    local: tuple[Any, ...],
    statistics: Any,
    q: Any,
    weights: Any,
    *,
    learn: bool = True,
    n_rows: float | None = None,
) -> State:
    """Features, hyperparameters and weights given the sums. Sticks converge slowly, and cost little beside rows.

    n_rows: that the sums stand for, if others than those of the problem are in them.
    """
    prior, engine = problem.model.prior, problem.engine
    n_rows = problem.n_rows if n_rows is None else n_rows
    q = engine.update_features(q, statistics, learn=learn)
    counts = all_counts(prior, weights, statistics)
    of_weights = -np.inf
    for _ in range(_WEIGHT_PASSES):
        before = of_weights
        weights = prior.update_weights(weights, counts, n_rows)
        of_weights = prior.weights_bound(weights, counts, n_rows)
        if of_weights - before < _LITTLE:
            break
    return State(local, statistics, q, weights, float(of_weights + engine.features_bound(q, statistics)))


def ascend(problem: Problem, state: State, *, learn: bool = True) -> State:
    """One pass over rows, features, hyperparameters and weights: the bound never falls."""
    local, statistics = local_step(problem, state.q, state.weights, state.local)
    return global_step(problem, local, statistics, state.q, state.weights, learn=learn)


def stretched(problem: Problem, state: State) -> State:
    """As `ascend`, with codes and features scaled against each other before: by passes alone their sizes change slowly.

    The bound may fall.
    """
    engine = problem.model.observation.engine(ScaledFeatures)
    factors = engine.stretch(state.q, state.local)
    local = tuple(engine.turned(mine, factors) for mine in state.local)
    return ascend(problem, state._replace(local=local, q=engine.turned(state.q, factors)))


def all_counts(prior: Any, weights: Any, statistics: Any) -> Array:
    """Expected number of rows with each feature of the prior's factor, the unused ones included."""
    counts = np.zeros(n_weights(prior, weights))
    counts[: len(statistics.counts)] = statistics.counts
    return counts


def n_weights(prior: Any, weights: Any) -> int:
    """The truncation of a factor of the weights."""
    return len(prior.expected_weights(weights))


def arrange(problem: Problem, state: State, columns: Array) -> State:
    """The state with these features only, in this order; the weights of the others become those of unused ones."""
    prior, engine = problem.model.prior, problem.engine
    columns = np.asarray(columns, dtype=np.int64)
    left = np.setdiff1d(np.arange(n_weights(prior, state.weights)), columns)
    weights = prior.reorder_weights(state.weights, np.concatenate([columns, left]))
    local = tuple(engine.keep_columns(mine, columns) for mine in state.local)
    return State(
        local,
        engine.keep_columns(state.statistics, columns),
        engine.keep_columns(state.q, columns),
        weights,
        state.bound,
    )
