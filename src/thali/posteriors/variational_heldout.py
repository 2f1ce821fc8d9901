"""Held-out cells of rows that a variational fit has seen, by its own factors of those rows.

The primary score is a mixture, row by row: log E_q[prod_d p(x_nd | codes)] with the features integrated out; exact over
the bits where few of them are uncertain, else over draws. Papers do not always say which score they report, so the
others are at hand by name.
"""

from typing import Any

import numpy as np

from thali.core.protocols.engines.predictions import CellMoments, Predictions
from thali.errors import InvalidParameterError
from thali.posteriors.variational import Variational

Array = np.ndarray

OTHERS = ("moment", "jensen", "plugin")

_DRAWS = 1000
_ENUMERATED = 12  # bits of a row
_CERTAIN = 1e-6  # a bit with a smaller probability of either value is taken as the other
_BLOCK = 4_000_000  # cells at a time


def log_mixture(posterior: Variational, X: Array, mask: Array, rows: Array, *, by_cell: bool) -> Array:
    """log predictive density of the masked cells of these rows: of each row's together, or of each cell.

    X and mask have a row for each of `rows`; cells are in row-major order.
    """
    result = np.zeros(mask.shape if by_cell else len(rows))
    few = np.zeros(len(rows), dtype=bool)
    if posterior.codes_are_bits:
        chances = np.asarray(posterior.z_prob[rows], dtype=float)
        uncertain = (chances > _CERTAIN) & (chances < 1 - _CERTAIN)
        n_uncertain = uncertain.sum(axis=1)
        few = n_uncertain <= _ENUMERATED
        for n in np.unique(n_uncertain[few]):
            same = np.flatnonzero(few & (n_uncertain == n))
            size = max(_BLOCK // (2**n * X.shape[1]), 1)
            for some in np.split(same, range(size, len(same), size)):
                result[some] = _enumerated(posterior, X[some], mask[some], chances[some], uncertain[some], by_cell)
    many = np.flatnonzero(~few)
    if len(many):
        total = np.full((len(many), *result.shape[1:]), -np.inf)
        for observation, codes, codebook in posterior.fitted_draws(rows[many], _DRAWS):
            cells = np.where(mask[many], observation.engine(Predictions).log_cells(X[many], codes, codebook), 0.0)
            total = np.logaddexp(total, cells if by_cell else cells.sum(axis=1))
        result[many] = total - np.log(_DRAWS)
    return result[mask] if by_cell else result


def _enumerated(
    posterior: Variational, X: Array, mask: Array, chances: Array, uncertain: Array, by_cell: bool
) -> Array:
    """As `log_mixture`, for rows with the same number of uncertain bits, over all their values."""
    n = int(uncertain[0].sum())
    values = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    bits = np.repeat((chances > 0.5).astype(float)[:, None], 2**n, axis=1)  # (rows, values, features)
    row, column = np.nonzero(uncertain)
    bits[row, :, column] = np.tile(values.T, (len(X), 1))
    chance = chances[row, column].reshape(len(X), 1, n)
    # eq: DV09.heldout-mixture
    log_weight = np.where(values == 1, np.log(chance), np.log1p(-chance)).sum(axis=2)
    codes = bits.reshape(len(X) * 2**n, bits.shape[2])
    repeated = np.repeat(X, 2**n, axis=0)
    engine = posterior.q.model.observation.engine(Predictions)
    cells = engine.log_cells(repeated, codes, posterior.q.codebook)
    cells = np.where(mask[:, None], cells.reshape(len(X), 2**n, -1), 0.0)
    if by_cell:
        return np.logaddexp.reduce(log_weight[:, :, None] + cells, axis=1)
    return np.logaddexp.reduce(log_weight + cells.sum(axis=2), axis=1)


def log_summary(posterior: Variational, X: Array, mask: Array, rows: Array, by: str) -> Array:
    """Of each masked cell: a Gaussian with the moments of the mixture, E_q[log p], or everything at its mean."""
    observation = posterior.q.model.observation
    if not observation.has(CellMoments):
        raise InvalidParameterError(
            f'by={by!r} is for Gaussian models. Got {type(observation).__name__}; use by="row" or "cell".'
        )
    mean, var = _code_moments(posterior, rows)
    expected, noise, spread = observation.engine(CellMoments).cell_moments(mean, var, posterior.q.codebook)
    square = (observation.engine(CellMoments).from_origin(X) - expected) ** 2
    if by == "moment":  # eq: DV09.heldout-moment
        cells = -0.5 * (np.log(2 * np.pi * (noise + spread)) + square / (noise + spread))
    elif by == "jensen":  # eq: DV09.heldout-jensen
        cells = -0.5 * (np.log(2 * np.pi * noise) + (square + spread) / noise)
    else:
        cells = -0.5 * (np.log(2 * np.pi * noise) + square / noise)  # eq: DV09.heldout-plugin
    return cells[mask]


def _code_moments(posterior: Variational, rows: Array) -> tuple[Array, Array]:
    """Mean and variance of the codes of these rows; of weights by draws."""
    mean = posterior.q.codes[rows]
    if posterior.codes_are_bits:
        return mean, mean * (1 - mean)
    total = np.zeros_like(mean)
    for _, codes, _ in posterior.fitted_draws(rows, _DRAWS):
        total += (codes - mean) ** 2
    return mean, total / _DRAWS


def check_kind(posterior: Any, by: str, *, fitted: bool) -> None:
    """An error for a score that this posterior, or these rows, do not have."""
    kinds = ("row", "cell")
    if by in kinds or (by in OTHERS and isinstance(posterior, Variational) and fitted):
        return
    if by in OTHERS:
        wanted = "the rows that were fitted" if isinstance(posterior, Variational) else "variational fits (MeanField)"
        raise InvalidParameterError(f'by={by!r} is for {wanted}. Use by="row" or by="cell" here.')
    names = ", ".join(f'"{name}"' for name in (*kinds, *OTHERS))
    raise InvalidParameterError(f"by must be one of {names}. Got {by!r}.")
