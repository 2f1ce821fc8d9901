"""Weights of groups and draws of them, and a quadrature for the sizes of features."""

from typing import Any

import numpy as np

from thali.core.binary import Array
from thali.errors import InvalidParameterError


def beta_nodes(c: float, n_rows: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss's quadrature for p ~ Beta(1, c), exact for polynomials of degree n_rows.

    Golub and Welsch: eigenvalues of the matrix of the recurrence of the Jacobi polynomials, moved to (0, 1).
    """
    from scipy.linalg import eigh_tridiagonal  # slow to import

    k = np.arange(1.0, n_rows // 2 + 1)
    a = c - 1.0
    # eq: own.beta-quadrature
    diagonal = (2 * k * k + 2 * k * c + a) / ((2 * k + a) * (2 * k + a + 2))
    beside = k * (k + a) / ((2 * k + a) * np.sqrt((2 * k + a + 1) * (2 * k + a - 1)))
    nodes, vectors = eigh_tridiagonal(np.concatenate([[1.0 / (c + 1.0)], diagonal]), beside)
    return nodes, vectors[0] ** 2


def draw_groups(rng: np.random.Generator, cumulative: Array, n_draws: int) -> Array:
    """A group of each row, (n_draws, n_rows), given the running sums of its probabilities but for the last."""
    n_rows, n_inner = cumulative.shape
    rows = np.arange(n_rows)
    # each row's sums lie in its own unit interval; those of the rows before it are counted off
    at = np.searchsorted((cumulative + rows[:, None]).ravel(), rng.random((n_draws, n_rows)) + rows, side="right")
    return np.clip(at - rows * n_inner, 0, n_inner)


def check_weights(given: Any) -> Array:
    try:
        weights = np.asarray(given)
    except ValueError:  # rows of different lengths
        weights = np.empty(0)
    if weights.dtype.kind not in "buif" or weights.ndim != 2 or 0 in weights.shape:
        raise InvalidParameterError(
            "weights must be a matrix (n_rows, n_groups), the probability of each group for each row; or use "
            f".from_distances. Got {'nothing' if given is None else f'an array of shape {weights.shape}'}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any() or (np.abs(weights.sum(axis=1) - 1) > 1e-9).any():
        raise InvalidParameterError(
            f"Each row of weights must be zero or more and sum to one. Got sums from {weights.sum(axis=1).min():.6g} "
            f"to {weights.sum(axis=1).max():.6g}, the smallest entry {weights.min():.6g}; divide each row by its sum."
        )
    return weights if weights.dtype == float else weights.astype(float)
