"""The held-out cells of Doshi-Velez et al. (2009, Section 7), and what ordinary models say of them.

In the last half of the rows a third of the dims is hidden, others in each row; all else is training data, the test
rows' other cells included. A score is the log density of the hidden cells of a row together, given the observed ones.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from thali.inference.calibration.factor_em import FactorFit, log_rows, validated_factors

Array = np.ndarray
Entry = dict[str, Any]


class HiddenCells(NamedTuple):
    """Complete data, and the cells that no method sees."""

    X: Array
    hidden: Array

    @property
    def seen(self) -> Array:
        return np.where(self.hidden, np.nan, self.X)

    @property
    def test_rows(self) -> Array:
        return np.flatnonzero(self.hidden.any(axis=1))

    @property
    def n_hidden(self) -> int:
        return int(np.count_nonzero(self.hidden))


def hide_a_third(X: Array, seed: int = 77) -> HiddenCells:
    """A third of the dims of each row of the last half, the same for all methods."""
    rng = np.random.default_rng(seed)
    n_rows, n_dims = X.shape
    hidden = np.zeros(X.shape, dtype=bool)
    for row in range(math.ceil(n_rows / 2), n_rows):
        hidden[row, rng.choice(n_dims, max(1, round(n_dims / 3)), replace=False)] = True
    return HiddenCells(X, hidden)


def normal_rows(cells: HiddenCells, mean: Array, var: Any) -> Array:
    """Scores of the test rows if the hidden cells are independent and normal."""
    log_density = -0.5 * (np.log(2 * np.pi * var) + (cells.X - mean) ** 2 / var)
    return np.sum(log_density, axis=1, where=cells.hidden)[cells.test_rows]


def factor_rows(cells: HiddenCells, fit: FactorFit) -> Array:
    """Scores of the test rows under a factor analysis: log p(whole row) - log p(its observed cells)."""
    rows = cells.test_rows
    return log_rows(fit, cells.X[rows]) - log_rows(fit, cells.seen[rows])


def log_mean_rows(states: Sequence[Array]) -> Array:
    """Scores of a mixture of states, each given by its scores of the rows."""
    return np.logaddexp.reduce(states) - math.log(len(states))


# --- ordinary models -------------------------------------------------------------------------------


def column_means(cells: HiddenCells) -> tuple[Array, int]:
    """Scores by each dim's own mean and variance, and K."""
    return normal_rows(cells, np.nanmean(cells.seen, axis=0), np.nanvar(cells.seen, axis=0)), 0


def factor_analysis(cells: HiddenCells, *, per_dim: bool, grid: Sequence[int]) -> tuple[Array, int]:
    """Factor analysis, or probabilistic PCA, by EM; the number of factors by a further hidden tenth of the cells."""
    fit = validated_factors(np.random.default_rng(0), cells.seen, per_dim=per_dim, grid=grid)
    return factor_rows(cells, fit), len(fit.loadings)


def fit_nmf(X: Array, rank: int, *, n_rounds: int = 25, n_inner: int = 3) -> Array:
    """The product of non-negative factors (scikit-learn, squared error), missing cells refilled in every round."""
    from sklearn.decomposition import non_negative_factorization
    from sklearn.decomposition._nmf import _initialize_nmf

    missing = np.isnan(X)
    filled = np.where(missing, np.nanmean(X, axis=0), X)
    W, H = _initialize_nmf(filled, rank, init="nndsvda", random_state=0)
    for _ in range(n_rounds):
        W, H, _ = non_negative_factorization(filled, W, H, n_components=rank, init="custom", max_iter=n_inner, tol=0.0)
        product = W @ H
        filled = np.where(missing, product, X)
    return product


def nmf(cells: HiddenCells, *, grid: Sequence[int]) -> tuple[Array, int]:
    """NMF with the rank and the noise level that a further hidden tenth of the cells asks for."""
    inner = np.random.default_rng(78).random(cells.X.shape) < 0.1
    inner &= ~cells.hidden
    best, noise_var = 0, math.inf
    for rank in grid:
        left = np.mean((cells.X - fit_nmf(np.where(inner, np.nan, cells.seen), rank))[inner] ** 2)
        if left >= noise_var:
            break
        best, noise_var = rank, left
    return normal_rows(cells, fit_nmf(cells.seen, best), noise_var), best


def measured(name: str, method: Callable[[], tuple[Array, Any]], n_hidden: int) -> Entry:
    """One line of a table: seconds, K, and the score as a sum and per hidden cell."""
    start = time.perf_counter()
    rows, k = method()
    seconds = time.perf_counter() - start
    total = float(np.sum(rows))
    return {"method": name, "seconds": round(seconds, 2), "k": k, "tll": total, "per_cell": total / n_hidden}
