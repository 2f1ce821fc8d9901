"""How far the noise may be learned away: the floor that hidden cells ask for.

A factor analysis that finds hardly any factors, as with few rows, says little about the noise. Then short chains with
lower and lower floors predict hidden cells, until they do worse.
"""

from typing import Any

import numpy as np

Array = np.ndarray

SHARES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.03)
_SWEEPS = 150  # of a chain; the second half predicts
_HIDDEN = 0.1  # of the observed cells
_DIRECTIONS = 20


def validated_share(rng: np.random.Generator, model: Any, X: Array) -> float:
    """The share of each dim's variance, downwards from the largest, with the best density of hidden cells.

    `model` is adapted to X. The bits have the prior of an IBP with mass 1.
    """
    hidden = _hidden_cells(rng, X)
    if not hidden.any():
        return SHARES[-1]
    best, score = SHARES[0], -np.inf
    for share in SHARES:
        now = _predict(rng, model.replace(noise_floor=share), X, hidden)
        if now < score:
            break
        best, score = share, now
    return best


def _hidden_cells(rng: np.random.Generator, X: Array) -> Array:
    """A mask of observed cells to hide; every row and dim keeps some."""
    seen = ~np.isnan(X)
    hidden = seen & (rng.random(X.shape) < _HIDDEN)
    left = seen & ~hidden
    hidden[left.sum(axis=1) < 2] = False
    hidden[:, left.sum(axis=0) < 2] = False
    return hidden


def _predict(rng: np.random.Generator, model: Any, X: Array, hidden: Array) -> float:
    """Mean log density of the hidden cells over the second half of a chain."""
    n_rows = len(X)
    given = np.where(hidden, np.nan, X)
    data = model.prepare(given)
    filled = np.where(np.isnan(given), np.nanmean(given, axis=0), given)
    left, _, _ = np.linalg.svd(filled - filled.mean(axis=0), full_matrices=False)
    n_directions = min(_DIRECTIONS, max(n_rows // 4, 1), left.shape[1])
    matrix, _ = model.as_matrix(data)
    centre = np.nanmean(matrix, axis=0)
    codes = np.sqrt(n_rows) * left[:, :n_directions]
    current, local = model.start(data, codes, np.where(np.isnan(matrix), centre, matrix))
    with np.errstate(divide="ignore"):
        m = np.arange(n_rows)
        log_odds = np.log(m) - np.log(n_rows - m)
    total = np.full(int(hidden.sum()), -np.inf)
    for i in range(_SWEEPS):
        local = current.conditional_sweep(rng, data, local, log_odds, 1.0 / n_rows)
        current = model.resample(rng, current, data, local)
        if i >= _SWEEPS // 2:
            book = current.codebook(data, local)
            codes = current.codes(local.z[:, local.z.any(axis=0)], book)
            total = np.logaddexp(total, current.log_cells(X, codes, book)[hidden])
    return float(np.mean(total)) - np.log(_SWEEPS - _SWEEPS // 2)
