"""Chains of sparse factor analysis whose owners of loadings belong to classes, in place of a prior over their bits.

A class has a preference for every factor (Biron Lattes, section 6): how often its owners have the factor, and how large
their loadings are. The numbers of factors and of classes are fixed. See `thali.kernels.weights.class_rows`.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thali.core.protocols.engines.predictions import Predictions
from thali.kernels.weights.class_rows import draw_classes, draw_loadings, draw_preferences
from thali.observations.sparse.data import LoadingData
from thali.observations.sparse.factors import residual_squares
from thali.observations.sparse.rows import LoadingRows, SparseChain
from thali.observations.sparse.sweeps import draw_noise

if TYPE_CHECKING:  # which builds on this folder
    from thali.observations.sparse_factors import SparseFactorAnalysis

Array = np.ndarray
Generator = np.random.Generator

_TRIES, _ROUNDS = 8, 30  # chains of classes given the loadings, from which a chain of all begins, and their steps


class ClassState(NamedTuple):
    """All that a chain keeps."""

    observation: "SparseFactorAnalysis"  # concrete
    local: LoadingRows
    classes: Array  # (n_owners,) 0, ..., n_classes - 1
    preferences: Array  # (n_classes, n_features)


def begin(
    rng: Generator, observation: "SparseFactorAnalysis", data: LoadingData, loadings: Array, n_classes: int
) -> ClassState:
    """With these loadings and the classes that suit them best of several tries, each a short chain of its own.

    A factor is turned so that its loadings sum to a positive number: a class that has it likes it then, for its
    preference is also the mean of its loadings.
    """
    loadings = np.where(loadings.sum(axis=0) < 0, -1.0, 1.0) * loadings
    local = SparseChain(observation).place(data, loadings, data.Y)
    liked = 2.0 * local.z - 1.0
    best, best_fit = None, -np.inf
    for _ in range(_TRIES):
        state = ClassState(observation, local, np.zeros(len(loadings), np.int64), _unlike(rng, liked, n_classes))
        for _ in range(_ROUNDS):
            state, fit = _regrouped(rng, state)
        if best is None or fit > best_fit:
            best, best_fit = state, fit
    assert best is not None
    return best


def _unlike(rng: Generator, patterns: Array, n_classes: int) -> Array:
    """So many of the patterns, each drawn in proportion to how far it lies from those before it (k-means++)."""
    chosen = [int(rng.integers(len(patterns)))]
    for _ in range(n_classes - 1):
        away = np.min([np.abs(patterns - patterns[i]).sum(axis=1) for i in chosen], axis=0)
        away = away if away.any() else np.ones(len(patterns))
        chosen.append(int(rng.choice(len(patterns), p=away / away.sum())))
    return patterns[chosen]


def _regrouped(rng: Generator, state: ClassState) -> tuple[ClassState, float]:
    """Classes, preferences, levels and precisions given the loadings; and how well classes explained these."""
    model, local = state.observation, state.local
    classes, preferences, on = state.classes.copy(), state.preferences.copy(), local.z != 0
    fit = draw_classes(local.v, local.precisions, classes, preferences, rng)
    fit += 0.5 * float(np.sum(on * np.log(local.precisions)))
    draw_preferences(local.v, local.precisions, classes, preferences, rng)
    levels = model.laws.draw_levels(rng, local.precisions, local.noise)
    precisions, (shape, rate) = local.precisions, model.laws.precision(levels[0])
    if shape > 0:
        squares = np.where(on, local.v - preferences[classes], 0.0) ** 2
        # eq: NSFA.class-precision
        precisions = rng.standard_gamma(shape + 0.5 * on.sum(axis=0)) / (rate + 0.5 * squares.sum(axis=0))
    local = local._replace(precisions=precisions, levels=levels)
    return ClassState(model, local, classes, preferences), fit


def step(rng: Generator, spec: "SparseFactorAnalysis", data: LoadingData, state: ClassState) -> ClassState:
    """Loadings, classes, preferences, precisions, noise, offset, factors."""
    model, local = state.observation, state.local
    Y, V = data.without(model.owned_offset()), local.v.copy()
    draw_loadings(
        Y, data.start, data.cells, V, local.factors, local.precisions, local.noise,
        state.classes, state.preferences, rng,
    )  # fmt: skip
    state, _ = _regrouped(rng, state._replace(local=local._replace(z=(V != 0).astype(np.uint8), v=V)))
    local = state.local
    if model.laws.learns_noise:
        squares = residual_squares(data, Y, V, local.factors)
        local = local._replace(noise=draw_noise(rng, data, model.laws.noise(local.levels[1]), squares))
    model = SparseChain(model).resample(rng, spec, data, local)
    return state._replace(observation=model, local=SparseChain(model).refresh(rng, data, local))


def log_fit(state: ClassState, data: LoadingData) -> float:
    """log p(data | state)."""
    local = state.local
    squares = residual_squares(data, data.without(state.observation.owned_offset()), local.v, local.factors)
    return -0.5 * float(np.sum(data.n_seen * np.log(2 * np.pi * local.noise) + squares / local.noise))


def log_cells(state: ClassState, data: LoadingData, X: Array, cells: Array) -> Array:
    """log p(value of a cell of X | state) where `cells` is true, row by row."""
    codebook = SparseChain(state.observation).codebook(data, state.local)
    engine = state.observation.engine(Predictions)
    codes = engine.codes(state.local.z[:, state.local.z.any(axis=0)], codebook)
    return engine.log_cells(X, codes, codebook)[cells]
