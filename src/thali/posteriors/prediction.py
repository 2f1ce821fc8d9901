"""Predictions from posterior draws: missing cells, held-out cells, new rows.

Rows that were fitted have bits of their own in every draw. Their missing cells were filled when the features of a draw
were summed up; given the features the cell and its filling are independent draws of the same distribution, so the mean
over draws of a cell's predictive, features integrated out, is exactly that of the cell (own.fitted-cells).

Rows that were not fitted are encoded by several draws of all chains, each weighted by how well it predicts the observed
cells.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import softmax

from thali.core.protocols.engines.predictions import Predictions
from thali.core.spec import between, positive
from thali.errors import InvalidDataError, InvalidParameterError
from thali.numerics.blas import one_blas_thread
from thali.posteriors.base import Posterior, Predictor
from thali.posteriors.variational import Variational
from thali.posteriors.variational_heldout import OTHERS, check_kind, log_mixture, log_summary
from thali.rng import make_generator

Array = np.ndarray
Generator = np.random.Generator

_DRAWS = 1000  # at most so many draws predict the cells of fitted rows
_VALUES = 1000  # at least so many simulated values stand behind a quantile
_BLOCK = 30_000_000  # simulated values held at a time


# ---- missing cells


@one_blas_thread()
def impute(posterior: Posterior, X: Array, interval: float | None, *, fitted: bool) -> tuple[Array, Array, Array]:
    """X with its missing cells at their posterior mean, and at either end of a central interval of their predictive.

    For the ends, the bits of a new row are drawn independently by their probabilities, and it has one unknown feature
    or none. So the correlation of its bits is left out there; the mean is exact.
    """
    if interval is not None and not (positive.contains(interval) and interval < 1):
        raise InvalidParameterError(f"interval must be None or lie between 0 and 1. Got {interval!r}.")
    filled, lower, upper = X.copy(), X.copy(), X.copy()
    ends = None if interval is None else (0.5 - 0.5 * interval, 0.5 + 0.5 * interval)
    predict = _predict_fitted if fitted else _predict_new
    missing = np.isnan(X)
    rows = np.flatnonzero(missing.any(axis=1))
    size = missing[rows].sum(axis=1) if fitted else np.full(len(rows), 3 * X.shape[1])  # whole rows, copied twice
    block = np.cumsum(size) * (1 if ends is None else _VALUES) // _BLOCK
    for b in np.unique(block):
        some = rows[block == b]
        row, dim = np.nonzero(missing[some])
        cells = some[row], dim
        filled[cells], values = predict(posterior, X, some, missing[some], simulated=ends is not None)
        if ends is not None:
            lower[cells], upper[cells] = np.quantile(values, ends, axis=0)
    return filled, lower, upper


def _predict_fitted(
    posterior: Posterior, X: Array, rows: Array, missing: Array, *, simulated: bool
) -> tuple[Array, Array]:
    """Mean of the missing cells, and simulated values of them, (n_values, n_missing)."""
    rng = make_generator(0)
    total = np.zeros(np.count_nonzero(missing))
    values = []
    variational = isinstance(posterior, Variational)
    n_draws = _DRAWS if variational else len(posterior.spaced(_DRAWS))
    if simulated or not variational:
        for observation, codes, codebook in posterior.fitted_draws(rows, _DRAWS):
            engine = observation.engine(Predictions)
            total += engine.means(codes, codebook)[missing]
            if simulated:
                repeats = -(-_VALUES // n_draws)
                values += [engine.sample_rows(rng, codes, codebook, 0)[missing] for _ in range(repeats)]
    if isinstance(posterior, Variational):
        return posterior.fitted_mean(rows)[missing], np.array(values)
    return _in_units(posterior, total / n_draws, missing), np.array(values)


def _predict_new(
    posterior: Posterior, X: Array, rows: Array, missing: Array, *, simulated: bool
) -> tuple[Array, Array]:
    """As `_predict_fitted`. A draw gives so many of a row's values as its weight says."""
    rng = make_generator(0)
    X = X[rows]
    predictors = posterior.of_new(rows).pooled()
    encoded = [predictor.encode(X) for predictor in predictors]
    weights = softmax([one.log_density for one in encoded], axis=0)
    mean = np.zeros(X.shape)
    counts = np.diff(np.rint(_VALUES * np.cumsum(weights, axis=0)).astype(int), axis=0, prepend=0)
    owners, values = [], []
    for predictor, one, weight, count in zip(predictors, encoded, weights, counts, strict=True):
        engine, codebook = predictor.engine, predictor.codebook
        mean += weight[:, None] * engine.expected_rows(one, codebook)
        if simulated:
            owner = np.repeat(np.arange(len(X)), count)
            known = np.exp(_log_known(predictor, X) - one.log_density)
            owners.append(owner)
            values.append(engine.sample_like(rng, one, owner, codebook, known))
    cells = _in_units(posterior, mean[missing], missing)
    if not simulated:
        return cells, cells
    in_order = np.concatenate(values)[np.argsort(np.concatenate(owners), kind="stable")]
    return cells, in_order.reshape(len(X), _VALUES, -1).swapaxes(0, 1)[:, missing]


def _in_units(posterior: Posterior, cells: Array, missing: Array) -> Array:
    """The missing cells in the units of the data."""
    origin = posterior.model.observation.engine(Predictions).origin
    return cells if origin is None else cells + origin[np.nonzero(missing)[1]]


# ---- held-out cells


def check_mask(X: Array, mask: Any) -> Array:
    """A boolean matrix as large as X, True at cells whose values X holds."""
    try:
        mask = np.asarray(mask)
    except ValueError:  # rows of different lengths
        mask = np.empty(0, dtype=object)
    if mask.dtype != bool or mask.shape != X.shape or not mask.any():
        raise InvalidDataError(
            f"mask must be True where a cell of X is held out, with the shape {X.shape} of X. "
            f"Got an array of dtype {mask.dtype} and shape {mask.shape}{' with no such cell' if mask.size else ''}."
        )
    if np.isnan(X[mask]).any():
        raise InvalidDataError("The masked cells of X must hold their true values. Got NaN in some of them.")
    return mask


@one_blas_thread()
def heldout(posterior: Posterior, X: Array, mask: Array, by: str, *, fitted: bool) -> float:
    """Mean log predictive density of the masked cells given the others, per cell.

    By "row", the masked cells of a row are predicted together; by "cell", each on its own. Others see `log_summary`.
    """
    return float(log_heldout(posterior, X, mask, by, fitted=fitted).sum() / np.count_nonzero(mask))


@one_blas_thread()
def log_heldout(posterior: Posterior, X: Array, mask: Array, by: str, *, fitted: bool) -> Array:
    """Log predictive densities of the masked cells, of each row with such cells, or of each cell."""
    check_kind(posterior, by, fitted=fitted)
    by_cell = by == "cell"
    rows = np.flatnonzero(mask.any(axis=1))
    X, mask = X[rows], mask[rows]
    row, dim = np.nonzero(mask)
    if isinstance(posterior, Variational) and fitted:
        if by in OTHERS:
            total = log_summary(posterior, X, mask, rows, by)
        else:
            total = log_mixture(posterior, X, mask, rows, by_cell=by_cell)
    elif fitted:
        group = np.arange(len(row)) if by_cell else row
        total = np.full(group[-1] + 1, -np.inf)
        n_draws = 0
        for observation, codes, codebook in posterior.fitted_draws(rows, _DRAWS):
            # eq: own.fitted-cells
            log_cells = observation.engine(Predictions).log_cells(X, codes, codebook)[mask]
            total = np.logaddexp(total, np.bincount(group, log_cells))
            n_draws += 1
        total -= np.log(n_draws)
    else:
        given = np.where(mask, np.nan, X)
        posterior = posterior.of_new(rows)
        before = posterior.log_density(given)
        if by_cell:  # a row for each cell, with that cell beside the given ones
            given, before = given[row], before[row]
            given[np.arange(len(row)), dim] = X[row, dim]
            posterior = posterior.of_new(row)
        total = posterior.log_density(given if by_cell else X) - before
    return np.asarray(total)


def scorer(X: Array, heldout: Array) -> Callable[[Any], float]:
    """A function of a draw: mean log density of the cells that are missing in X and known in `heldout`, given it."""
    mask = np.isnan(X) & ~np.isnan(heldout) if heldout.shape == X.shape else np.zeros(1, dtype=bool)
    if not mask.any():
        raise InvalidDataError(
            f"heldout must have the shape {X.shape} of X and hold values of cells that are missing in X. "
            f"Got shape {heldout.shape} with none. Leave it out, or give X as it was before cells were hidden."
        )
    rows = np.flatnonzero(mask.any(axis=1))

    def score(draw: Any) -> float:
        engine = draw.observation.engine(Predictions)
        codes = engine.codes(draw.z[:, draw.z.any(axis=0)], draw.codebook)[rows]
        return float(engine.log_cells(heldout[rows], codes, draw.codebook.rows(rows))[mask[rows]].mean())

    return score


# ---- new rows


@one_blas_thread()
def sample(posterior: Posterior, n: int, rng: Generator) -> Array:
    """n rows, each as a draw of its own choice sees the next row."""
    if not between(1, 10**9).contains(n):
        raise InvalidParameterError(f"n must be an integer from 1 to 10^9. Got {n!r}.")
    chosen = rng.integers(posterior.n_chains * posterior.n_draws, size=n)
    n_dims = posterior.features(0, 0).shape[1]
    X = np.zeros((n, n_dims))
    for i in np.unique(chosen):
        rows = np.flatnonzero(chosen == i)
        predictor = posterior.of_new(rows).predictor(*divmod(int(i), posterior.n_draws))
        codes = predictor.new_codes(rng, len(rows))
        n_unknown = rng.poisson(predictor.rate, len(rows))
        X[rows] = predictor.engine.sample_rows(rng, codes, predictor.codebook, n_unknown)
    return X


@one_blas_thread()
def novelty(posterior: Posterior, X: Array) -> Array:
    """P(a row has a feature that no fitted row has | its observed cells)."""
    predictors = posterior.pooled()
    known = np.logaddexp.reduce([_log_known(predictor, X) for predictor in predictors], axis=0)
    either = np.logaddexp.reduce([predictor.encode(X).log_density for predictor in predictors], axis=0)
    return np.clip(-np.expm1(known - either), 0.0, 1.0)


def _log_known(predictor: Predictor, X: Array) -> Array:
    """log p(x_n, and it has no unknown feature)."""
    # eq: own.novelty
    return predictor.encode(X, rate=0.0).log_density - predictor.rate
