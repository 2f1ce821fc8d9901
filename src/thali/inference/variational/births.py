"""Where new features come from: directions that the features leave unexplained, and the rows that go along with them.

A direction is found in some of the rows; every row is then judged by how far it goes along.
"""

from typing import Any

import numpy as np
from scipy.special import expit

from thali.inference.starts.spectral import source_start, spectral_start
from thali.inference.variational.ascent import Problem, State

Array = np.ndarray

_CELLS, _FEWEST, _MOST = 500_000, 200, 2000  # in which a direction is looked for, and rows of them
_ROUNDS = 4  # in which a direction and the rows that have it are fitted to each other
_SURE = 0.98  # probability at which a new feature is given to the rows that seem to have it


def row_birth(rng: np.random.Generator, problem: Problem, state: State) -> Array | None:
    """Presence (n_rows, 1) of a feature that begins as what a badly explained row has left."""
    R = _left_over(rng, problem, state)
    squares = np.einsum("nd,nd->n", R, R)
    if not squares.sum() > 0:
        return None
    direction = R[rng.choice(len(R), p=squares / squares.sum())]
    for _ in range(_ROUNDS):
        on = R @ direction > 0.5 * (direction @ direction)
        if on.any():
            direction = R[on].mean(axis=0)
    return _presence(problem, state, direction[None], np.zeros(1), float(np.mean(R * R)))


def spectral_birth(
    rng: np.random.Generator, problem: Problem, state: State, n_cells: int = _CELLS, has_offset: bool | None = None
) -> Array | None:
    """Presence (n_rows, n_new) of the independent binary sources of what is left."""
    R = _left_over(rng, problem, state, n_cells)
    if has_offset is None:
        has_offset = problem.has_offset or rng.random() < 0.5  # what is left may have a mean of its own
    Z = spectral_start(rng, R, has_offset=has_offset).astype(float)
    Z = Z[:, Z.any(axis=0) & ~Z.all(axis=0)]
    if not Z.shape[1]:
        return None
    level = np.column_stack([Z, np.full(len(Z), float(has_offset))])
    found = np.linalg.lstsq(level, R, rcond=None)[0]
    directions, offset = found[:-1], found[-1]
    return _presence(problem, state, directions, offset @ np.linalg.pinv(directions), float(np.mean(R * R)))


def _presence(problem: Problem, state: State, directions: Array, at: Array, noise: float) -> Array:
    """How probable it is that each row goes along with each direction, the others fitted by least squares."""
    inverse = np.linalg.pinv(directions)
    sharpness = np.einsum("kd,kd->k", directions, directions) / noise
    unexplained = problem.engine.unexplained
    along = np.vstack(
        [unexplained(part, state.q, mine) @ inverse - at for part, mine in zip(problem.parts, state.local, strict=True)]
    )
    return np.clip(expit(sharpness * (along - 0.5)), 1 - _SURE, _SURE)


def direction_birth(rng: np.random.Generator, problem: Problem, state: State) -> Array | None:
    """Codes (n_rows, 1) along the direction in which most is left, seen from a badly explained row."""
    R = _left_over(rng, problem, state)
    squares = np.einsum("nd,nd->n", R, R)
    if not squares.sum() > 0:
        return None
    direction = R[rng.choice(len(R), p=squares / squares.sum())]
    for _ in range(_ROUNDS):
        direction = direction / np.linalg.norm(direction) @ R.T @ R
    return _codes(problem, state, direction[None] / np.linalg.norm(direction))


def source_birth(rng: np.random.Generator, problem: Problem, state: State, n_cells: int = _CELLS) -> Array | None:
    """Codes (n_rows, n_new) of the independent real sources of what is left."""
    R = _left_over(rng, problem, state, n_cells)
    codes = source_start(rng, R)
    if not codes.shape[1]:
        return None
    return _codes(problem, state, np.linalg.lstsq(codes, R, rcond=None)[0])


def _codes(problem: Problem, state: State, directions: Array) -> Array:
    """Least-squares codes of all rows, of unit mean square."""
    inverse = np.linalg.pinv(directions)
    unexplained = problem.engine.unexplained
    rows = zip(problem.parts, state.local, strict=True)
    codes = np.vstack([unexplained(part, state.q, mine) @ inverse for part, mine in rows])
    return codes / np.sqrt(np.maximum(np.mean(codes * codes, axis=0), 1e-300))


def _left_over(rng: np.random.Generator, problem: Problem, state: State, n_cells: int = _CELLS) -> Array:
    """What the features leave of some rows."""
    left: list[Any] = []
    n_rows, wanted = 0, _FEWEST
    for i in rng.permutation(len(problem.parts)):
        if n_rows < wanted:
            left.append(problem.engine.unexplained(problem.parts[i], state.q, state.local[i]))
            n_rows += len(left[-1])
            wanted = int(np.clip(n_cells // left[-1].shape[1], _FEWEST, _MOST * n_cells // _CELLS))
    R = np.vstack(left)
    return R[np.sort(rng.permutation(len(R))[:wanted])]
