"""Maximum-likelihood factor analysis and probabilistic PCA by EM, with missing cells (NaN) integrated out exactly.

x_n = mean + f_n loadings + e_n, f_n ~ N(0, I), e_nd ~ N(0, noise_var_d): dense factors, whose noise levels say what a
sparse model can hope for. Both the factors and the missing cells are latent, so that one K x K solve serves all dims.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from thali.data.units import moments, unit_squares
from thali.numerics.blas import one_blas_thread

Array = np.ndarray

GRID = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 65, 80, 100, 125, 150, 200)
_SEARCH_ITER = 20  # rounds of EM while the number of factors is sought: enough to compare them
_SCORED = 2000  # cells that a score should rest on: small data are split several times
_GAIN = 1e-4  # nats per cell that further factors must be worth
_BLOCK = 4_000_000  # numbers held at a time for rows with matrices of their own


class FactorFit(NamedTuple):
    """A fitted model, in the units of the data."""

    mean: Array  # (n_dims,)
    loadings: Array  # (n_factors, n_dims)
    noise_var: Array  # (n_dims,)


class _Patterns(NamedTuple):
    """Rows with the same number of missing cells. Rows that lack the same cells share a pattern and its matrices."""

    rows: Array
    owner: Array  # (n_rows,): index of a row's pattern
    counts: Array  # (n_patterns,): rows of each
    cells: Array  # (n_patterns, n_missing): its dims


# ---- fitting


@one_blas_thread()
def fit_factors(X: Array, n_factors: int, *, n_iter: int = 60, per_dim: bool = True, floor: float = 0.01) -> FactorFit:
    """The fit after `n_iter` rounds of EM from the leading principal directions of the mean-filled data.

    Noise variances are one per dim (factor analysis), each at least `floor` times the square of its dim's unit
    (`unit_squares`), or the same for all (probabilistic PCA), at least `floor` times the mean variance. Factor analysis
    works in each dim's own unit, so that dims in other units give the same fit in those units (the same bits, if they
    differ by powers of two).
    """
    missing = np.isnan(X)
    centre, var = moments(X, missing)
    # squares of squares follow: in these units they neither overflow nor vanish
    square = unit_squares(X) if per_dim else np.full(len(var), var.mean() or 1.0)
    unit = np.sqrt(square)
    R = np.where(missing, 0.0, (X - centre) / unit)
    fit = _start(R, var / square, n_factors, floor, per_dim=per_dim)
    if n_factors:
        patterns = _patterns(missing, n_factors)
        for _ in range(n_iter):
            fit = _round(fit, R, missing, patterns, floor, per_dim=per_dim)
    return FactorFit(centre + unit * fit.mean, unit * fit.loadings, square * fit.noise_var)


def _start(R: Array, var: Array, n_factors: int, lowest: float, *, per_dim: bool) -> FactorFit:
    """Probabilistic PCA of the mean-filled data; with one noise level and no missing cell it is the maximum."""
    n_rows, n_dims = R.shape
    wide = n_dims > n_rows
    values, vectors = np.linalg.eigh((R @ R.T if wide else R.T @ R) / n_rows)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1][:, :n_factors]
    rest = values[n_factors:].sum() / max(n_dims - n_factors, 1)
    leading = values[:n_factors, None]
    directions = vectors.T @ R / np.sqrt(n_rows * np.maximum(leading, 1e-12)) if wide else vectors.T
    loadings = np.sqrt(np.maximum(leading - max(rest, lowest), 0.0)) * directions
    if per_dim:
        noise_var = np.maximum(var - np.sum(loadings**2, axis=0), 0.1 * var)
    else:
        noise_var = np.full(n_dims, rest if n_factors else var.mean())
    return FactorFit(np.zeros(n_dims), loadings, np.maximum(noise_var, lowest))


def _patterns(missing: Array, n_factors: int) -> tuple[list[_Patterns], list[Array]]:
    """Rows that lack up to `n_factors` cells, by their number, and blocks of the rows that lack more."""
    n_missing = missing.sum(axis=1)
    few = []
    for m in np.unique(n_missing[(n_missing > 0) & (n_missing <= n_factors)]):
        for rows in _parts(np.flatnonzero(n_missing == m), m):
            lacking = np.nonzero(missing[rows])[1].reshape(len(rows), m)
            cells, owner, counts = np.unique(lacking, axis=0, return_inverse=True, return_counts=True)
            few.append(_Patterns(rows, owner.ravel(), counts, cells))
    return few, _parts(np.flatnonzero(n_missing > n_factors), n_factors)


def _parts(rows: Array, size: int) -> list[Array]:
    """The rows, so many at a time that a size x size matrix for each of them fits in memory."""
    step = max(1, _BLOCK // max(1, size * size))
    return [rows[first : first + step] for first in range(0, len(rows), step)]


def _round(
    fit: FactorFit,
    R: Array,
    missing: Array,
    patterns: tuple[list[_Patterns], list[Array]],
    lowest: float,
    *,
    per_dim: bool,
) -> FactorFit:
    """One round of EM. R are the data with missing cells at 0, in the coordinates in which `fit` has its mean.

    With C the covariance of a complete row's factors, S = diag(noise_var) - loadings' C loadings at a row's missing
    cells and T the sum of S^-1 over the rows, all that missing cells add to the second moments is linear in T.
    """
    mean, A, psi = fit
    n_rows, n_dims = R.shape
    scaled = A / psi
    C = _inverse(np.eye(len(A)) + scaled @ A.T)
    project = scaled.T @ C  # factors of a complete row: (x - mean) @ project
    filled = np.where(missing, 0.0, R - mean)
    few, many = patterns

    T, TAC = np.zeros((n_dims, 0)), np.zeros((n_dims, len(A)))
    if few:
        table = np.zeros(n_dims * n_dims)
        S = (np.diag(psi) - A.T @ C @ A).ravel()
        guess = (filled @ project) @ A
        for p in few:
            pairs = p.cells[:, :, None] * n_dims + p.cells[:, None, :]
            S_inv = _inverse(S[pairs])
            at = p.rows[:, None], p.cells[p.owner]
            # eq: own.factor-em
            filled[at] = psi[at[1]] * np.squeeze(S_inv[p.owner] @ guess[at][:, :, None], 2)
            weighted = S_inv * p.counts[:, None, None]
            table += np.bincount(pairs.ravel(), weighted.ravel(), minlength=n_dims * n_dims)
        T = table.reshape(n_dims, n_dims)
        TAC = (T @ A.T) @ C
    n_more = sum(len(rows) for rows in many)
    factor_cov = (n_rows - n_more) * C + C @ A @ TAC  # summed over rows, as all that follows
    cell_cov = psi[:, None] * TAC
    cell_var = psi**2 * np.diag(T) if few else np.zeros(n_dims)
    for rows in many:  # a K x K matrix for each row
        m, C_rows = _factors(fit, filled[rows] + mean, ~missing[rows])
        filled[rows] = np.where(missing[rows], m @ A, filled[rows])
        lacking = missing[rows].astype(float)
        by_dim = (lacking.T @ C_rows.reshape(len(rows), -1)).reshape(n_dims, *C.shape)
        extra = np.einsum("kd,dkl->dl", A, by_dim)
        factor_cov += C_rows.sum(axis=0)
        cell_cov += extra
        cell_var += lacking.sum(axis=0) * psi + np.sum(extra * A.T, axis=1)

    F = np.column_stack([filled @ project, np.ones(n_rows)])
    second = F.T @ F
    second[:-1, :-1] += factor_cov
    filled += mean
    cross = F.T @ filled
    cross[:-1] += cell_cov.T
    new = np.linalg.solve(second, cross)
    left = np.sum(filled**2, axis=0) + cell_var - np.sum(new * cross, axis=0)
    noise_var = left / n_rows if per_dim else np.full(n_dims, left.mean() / n_rows)
    return FactorFit(new[-1], new[:-1], np.maximum(noise_var, lowest))


# ---- what a fit says of rows


def _factors(fit: FactorFit, X: Array, given: Array) -> tuple[Array, Array]:
    """Mean and covariance of each row's factors given its cells where `given` is True."""
    n_factors = len(fit.loadings)
    scaled = fit.loadings / fit.noise_var
    outer = (scaled[:, None, :] * fit.loadings[None, :, :]).reshape(n_factors**2, X.shape[1])
    precision = (given.astype(float) @ outer.T).reshape(len(X), n_factors, n_factors) + np.eye(n_factors)
    cov = _inverse(precision)
    return np.squeeze(cov @ (np.where(given, X - fit.mean, 0.0) @ scaled.T)[:, :, None], 2), cov


def _blocks(fit: FactorFit, X: Array, given: Array) -> Iterator[tuple[slice, Array, Array]]:
    """Rows, and mean and variance of f_n loadings at each of their cells, in blocks that fit in memory."""
    A = fit.loadings
    step = max(1, _BLOCK // max(A.shape[0] ** 2, A.shape[1]))
    outer = (A[:, None, :] * A[None, :, :]).reshape(len(A) ** 2, A.shape[1])
    for first in range(0, len(X), step):
        rows = slice(first, first + step)
        m, cov = _factors(fit, X[rows], given[rows])
        yield rows, m @ A, cov.reshape(len(m), len(A) ** 2) @ outer


@one_blas_thread()
def log_cells(fit: FactorFit, X: Array, given: Array, farthest: float = np.inf) -> Array:
    """Log density of each cell given the *other* cells of its row where `given` is True, (n_rows, n_dims).

    NaN where X is NaN, which must not be given. Cells count as no more than `farthest` standard deviations away.
    """
    residual, var = residuals(fit, X, given)
    return -0.5 * (np.log(2 * np.pi * var) + np.minimum(residual**2 / var, farthest**2))


def residuals(fit: FactorFit, X: Array, given: Array) -> tuple[Array, Array]:
    """Each cell less its mean given the other cells of its row, and its variance given them, as in `log_cells`."""
    left, left_var = np.empty(X.shape), np.empty(X.shape)
    for rows, part, part_var in _blocks(fit, X, given):
        residual = X[rows] - fit.mean - part
        var = fit.noise_var + part_var
        # a given cell is taken out of what is known about its row
        kept = 1.0 - part_var / fit.noise_var
        # eq: own.factor-cells
        left_var[rows] = np.where(given[rows], fit.noise_var / np.maximum(kept, 1e-12), var)
        left[rows] = np.where(given[rows], residual / np.maximum(kept, 1e-12), residual)
    return left, left_var


@one_blas_thread()
def fill(fit: FactorFit, X: Array) -> Array:
    """X with its missing cells at their mean given the observed cells of their row."""
    filled = X.copy()
    missing = np.isnan(X)
    for rows, part, _ in _blocks(fit, X, ~missing):
        filled[rows] = np.where(missing[rows], fit.mean + part, X[rows])
    return filled


@one_blas_thread()
def log_rows(fit: FactorFit, X: Array) -> Array:
    """Log density of the observed cells of each row, (n_rows,)."""
    seen = ~np.isnan(X)
    scaled = np.where(seen, (X - fit.mean) / fit.noise_var, 0.0)
    m, cov = _factors(fit, X, seen)
    square = np.sum(np.where(seen, X - fit.mean, 0.0) * scaled, axis=1) - np.sum((scaled @ fit.loadings.T) * m, axis=1)
    log_det = seen @ np.log(2 * np.pi * fit.noise_var) - np.linalg.slogdet(cov)[1]
    return -0.5 * (log_det + square)


# ---- the number of factors


@one_blas_thread()
def validated_factors(
    rng: np.random.Generator,
    X: Array,
    *,
    per_dim: bool = True,
    share: float = 0.1,
    grid: Sequence[int] = GRID,
    farthest: float = np.inf,
    is_over: Callable[[], bool] = lambda: False,
) -> FactorFit:
    """The fit whose number of factors predicts a hidden `share` of the observed cells best, refitted to all of them.

    No factor at all is a candidate; the grid is left after two numbers in a row that predict no better. Where the
    score still rises at many factors, `noise_var` sinks towards its floor: end the grid earlier to keep it away. With
    `farthest` (in standard deviations) a cell far from what is predicted does not decide. A TimeoutError once
    `is_over()`.
    """
    splits = list(_splits(rng, X, share))
    best, best_score, n_falls = 0, -np.inf, 0
    for n_factors in (0, *(k for k in grid if 0 < k < min(X.shape))) if splits else ():
        scores = []
        for hidden in splits:
            if is_over():
                raise TimeoutError("the number of factors was not found in time")
            training = np.where(hidden, np.nan, X)
            fit = fit_factors(training, n_factors, n_iter=_SEARCH_ITER, per_dim=per_dim)
            scores.append(log_cells(fit, X, ~np.isnan(training), farthest)[hidden])
        score = np.concatenate(scores).mean()
        if score > best_score + _GAIN:
            best, best_score, n_falls = n_factors, score, 0
        else:
            n_falls += 1
        if n_falls == 2:
            break
    return fit_factors(X, best, per_dim=per_dim)


def _splits(rng: np.random.Generator, X: Array, share: float) -> Iterator[Array]:
    """Disjoint random sets of observed cells to hide, True in a mask; every dim keeps a cell to learn from."""
    seen = ~np.isnan(X)
    order = rng.permutation(np.flatnonzero(seen.ravel()))
    size = max(1, round(share * len(order)))
    for first in range(0, min(len(order) - size + 1, _SCORED), size):
        hidden = np.zeros(X.shape, dtype=bool)
        hidden.flat[order[first : first + size]] = True
        hidden[:, ~np.any(seen & ~hidden, axis=0)] = False
        if hidden.any():
            yield hidden


def _inverse(matrices: Array) -> Array:
    """Of symmetric matrices, symmetric to the last bit."""
    inverse = np.linalg.inv(matrices)
    return 0.5 * (inverse + np.swapaxes(inverse, -1, -2))
