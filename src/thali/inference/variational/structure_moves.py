"""Moves that change which features there are: births, deletions, merges and recodings of binary features.

Each is a trial: columns are dropped and added, the rest is fitted to them in a few passes, and the result is kept if
its bound is higher.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from thali.inference.variational.ascent import Problem, State, arrange, ascend, explained, global_step, n_weights, refit
from thali.inference.variational.births import direction_birth, row_birth, source_birth, spectral_birth

Array = np.ndarray
Generator = np.random.Generator

ALL = 10**6
_ROUNDING = 1e-12  # of the bound
_PASSES = 8  # after which a trial must be better
_WORK, _FEWEST, _MOST = 8_000_000, 8, 32  # trials without success after which the search ends: so many cells in all


class Scope(NamedTuple):
    """What moves may do: how many features there can be, and how many trials."""

    n_features: int
    can_grow: bool  # the factor of the weights
    n_trials: int


class Change(NamedTuple):
    """A trial: features that go, and codes (n_rows, n_new) of those that come."""

    drop: tuple[int, ...]
    codes: Array | None = None


def n_trials(n_cells: int) -> int:
    return int(np.clip(_WORK // n_cells, _FEWEST, _MOST))


def improve(rng: Generator, problem: Problem, state: State, scope: Scope, least: float) -> tuple[State, bool]:
    """(state, whether its bound is higher by at least `least`): after the first trial that succeeds, if any does."""
    state = prune(problem, state)
    moves = _MOVES[problem.model.observation.code_kind]
    for _ in range(scope.n_trials):
        change = moves[rng.integers(len(moves))](rng, problem, state)
        if change is None:
            continue
        trial = settle(problem, changed(problem, state, scope, change), state.bound + least)
        if trial is not None:
            return prune(problem, trial), True
    return state, False


def changed(problem: Problem, state: State, scope: Scope, change: Change) -> State:
    """The state after a change, features and weights fitted to the rows as they are."""
    engine = problem.engine
    kept = np.delete(np.arange(state.n_features), change.drop)
    _, _, q, weights, _, _ = state = arrange(problem, state, kept)
    local = state.local
    new = np.zeros((problem.n_rows, 0)) if change.codes is None else change.codes
    for column in new.T[: scope.n_features - len(kept)]:
        edges = zip(local, problem.starts[:-1], problem.starts[1:], strict=True)
        local = tuple(engine.add_column(mine, column[a:b]) for mine, a, b in edges)
        q = engine.add_feature(q)
    weights = enough_weights(problem, weights, local[0].z_prob.shape[1], can_grow=scope.can_grow)
    return refit(problem, local, q, weights)


def enough_weights(problem: Problem, weights: Any, n_features: int, *, can_grow: bool) -> Any:
    """The factor of the weights with at least so many features, and some to spare."""
    prior = problem.model.prior
    if can_grow and n_features > n_weights(prior, weights):
        return prior.grow_weights(weights, n_features + 4 + n_features // 4)
    return weights


def settle(problem: Problem, trial: State, target: float) -> State | None:
    """The trial once its bound is above the target; None if it does not get there."""
    for left in range(_PASSES, 0, -1):
        before = trial.bound
        if before > target:
            return trial
        trial = ascend(problem, trial)
        if target - trial.bound > left * (trial.bound - before):  # gains become smaller
            return None
    return trial if trial.bound > target else None


def prune(problem: Problem, state: State) -> State:
    """Without the features whose deletion raises the bound, rows as they are: from the least, one by one."""
    for _ in range(state.n_features):
        size = explained(problem, state.q, state.statistics)
        for k in {int(np.argmin(size)), int(np.argmin(state.statistics.counts))}:
            smaller, enough = _without(problem, state, k), state.bound - _ROUNDING * abs(state.bound)
            if smaller.bound >= enough:  # its sums may still have the entropy of the bits that are gone
                smaller = refit(problem, smaller.local, smaller.q, smaller.weights)
            if smaller.bound >= enough:
                state = smaller
                break
        else:
            return state
    return state


def _without(problem: Problem, state: State, k: int) -> State:
    kept = np.delete(np.arange(state.n_features), k)
    smaller = arrange(problem, state, kept)
    return global_step(problem, smaller.local, smaller.statistics, smaller.q, smaller.weights)


def sort_features(problem: Problem, state: State) -> State:
    """Features in order of their counts, which sticks want, if the bound rises."""
    order = np.argsort(-state.statistics.counts, kind="stable")
    if (np.diff(order) == 1).all():
        return state
    moved = arrange(problem, state, order)
    moved = global_step(problem, moved.local, moved.statistics, moved.q, moved.weights)
    return moved if moved.bound > state.bound else state


# ---- moves


def _some(rng: Generator, state: State, n: int) -> tuple[int, ...]:
    return tuple(int(k) for k in rng.permutation(state.n_features)[:n])


def _z_prob(state: State) -> Array:
    return np.vstack([mine.z_prob for mine in state.local])


def _like_pair(rng: Generator, state: State) -> tuple[int, int] | None:
    """Two features; the more likely, the more often rows have both or neither."""
    K = state.n_features
    if K < 2:
        return None
    total = sum(mine.z_prob.T @ mine.z_prob for mine in state.local)
    n_rows = sum(len(mine.z_prob) for mine in state.local)
    mean = sum(mine.z_prob.sum(axis=0) for mine in state.local) / n_rows
    cov = total / n_rows - np.outer(mean, mean)
    sd = np.sqrt(np.maximum(np.diag(cov), 1e-12))
    chance = (0.02 + np.abs(cov / np.outer(sd, sd))) * (1.0 - np.eye(K))
    return divmod(int(rng.choice(K * K, p=chance.ravel() / chance.sum())), K)


def _death(rng: Generator, problem: Problem, state: State) -> Change | None:
    return Change(_some(rng, state, 1)) if state.n_features else None


def _rebirth(kind: Callable[..., Array | None], n_out: int, n_in: int) -> Any:
    """A move that drops features and looks for others in what is then left; n_out beyond 2 stands for all of them."""

    def move(rng: Generator, problem: Problem, state: State) -> Change | None:
        if state.n_features < min(n_out, 2):
            return None
        drop = (_like_pair(rng, state) or ()) if n_out == 2 else _some(rng, state, n_out)
        rest = _dropped(problem, state, drop)
        found = kind(rng, problem, rest)
        return None if found is None else Change(drop, found[:, :n_in])

    return move


def _dropped(problem: Problem, state: State, drop: tuple[int, ...]) -> State:
    if not drop:
        return state
    smaller = arrange(problem, state, np.delete(np.arange(state.n_features), drop))
    return global_step(problem, smaller.local, smaller.statistics, smaller.q, smaller.weights, learn=False)


def _constant(rng: Generator, problem: Problem, state: State) -> Change | None:
    return Change((), np.full((problem.n_rows, 1), 0.999))


def _recoded(combine: Callable[[Array, Array], Array], *, both: bool = False) -> Any:
    """A move that puts one feature in the place of another (of `both`), made of the two."""

    def move(rng: Generator, problem: Problem, state: State) -> Change | None:
        pair = _like_pair(rng, state)
        if pair is None:
            return None
        z = _z_prob(state)[:, pair]
        return Change(pair if both else pair[:1], combine(z[:, 0], z[:, 1])[:, None])

    return move


def _sum(rng: Generator, problem: Problem, state: State) -> Change | None:
    """One feature in the place of two that are alike, its codes the sum of theirs: for features that are positive."""
    if state.n_features < 2:
        return None
    engine = problem.engine
    features = engine.expected_features(state.q)
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    chance = (0.02 + (features @ features.T) ** 2) * (1.0 - np.eye(len(features)))
    pair = divmod(int(rng.choice(chance.size, p=chance.ravel() / chance.sum())), len(features))
    codes = np.concatenate([engine.expected_codes(mine)[:, pair].sum(axis=1) for mine in state.local])
    return Change(pair, codes[:, None])


_merge = _recoded(np.maximum, both=True)
_xor = _recoded(lambda a, b: a * (1 - b) + b * (1 - a))
_or = _recoded(lambda a, b: 1 - (1 - a) * (1 - b))
_and_not = _recoded(lambda a, b: a * (1 - b))
_complement = _recoded(lambda a, b: 1 - a)

_BINARY = (
    _rebirth(row_birth, 0, 1), _rebirth(row_birth, 0, 1), _rebirth(spectral_birth, 0, ALL),
    _rebirth(spectral_birth, ALL, ALL), _rebirth(row_birth, 1, 1), _rebirth(row_birth, 2, 1),
    _rebirth(spectral_birth, 1, 2), _rebirth(spectral_birth, 2, 2), _death, _merge, _xor, _xor, _or, _and_not,
    _complement, _constant,
)  # fmt: skip
_WEIGHTED = (
    _rebirth(source_birth, 0, ALL), _rebirth(source_birth, ALL, ALL), _rebirth(direction_birth, 0, 1),
    _rebirth(direction_birth, 0, 1), _rebirth(direction_birth, 1, 1), _death,
)  # fmt: skip
_POSITIVE = (_rebirth(direction_birth, 0, 1), _rebirth(direction_birth, 1, 1), _death, _death, _sum, _sum)
_MOVES = {"bits": _BINARY, "real": _WEIGHTED, "positive": _POSITIVE}
