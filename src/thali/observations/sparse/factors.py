"""The factors given sparse loadings: f_c ~ N(P^-1 G' y_c / noise, P^-1), P = I + G' G / noise over rows that see c."""

import numpy as np
from scipy.linalg import solve_triangular

from thali.observations.sparse.data import LoadingData

Array = np.ndarray
Generator = np.random.Generator


def residual_squares(data: LoadingData, Y: Array, V: Array, F: Array) -> Array:
    """|y_n - v_n F|^2 of each row, over the cells that are seen."""
    left = Y - V @ F
    if data.any_missing:
        left[data.missing] = 0.0
    return np.einsum("nc,nc->n", left, left)


def precisions(data: LoadingData, cells: slice, V: Array, noise: Array) -> Array:
    """P of each of these cells, (n_cells, K, K); one for all of them, if no cell is missing."""
    K = V.shape[1]
    scaled = V / noise[:, None]
    if not data.any_missing:
        return (np.eye(K) + V.T @ scaled)[None]
    seen = data.seen[:, cells].T
    outer = (V[:, :, None] * scaled[:, None, :]).reshape(len(V), K * K)
    return np.eye(K) + (seen @ outer).reshape(len(seen), K, K)


def factor_means(data: LoadingData, Y: Array, V: Array, noise: Array) -> Array:
    """E[F | loadings, noise, Y]."""
    F = (V / noise[:, None]).T @ Y
    for cells in data.blocks(V.shape[1]):
        P = precisions(data, cells, V, noise)
        F[:, cells] = np.linalg.solve(P, F[:, cells].T[:, :, None])[:, :, 0].T
    return F


def draw_factors(rng: Generator, data: LoadingData, Y: Array, V: Array, noise: Array) -> Array:
    """F given loadings, noise and Y: one Cholesky factor for all cells that the same rows see."""
    K = V.shape[1]
    F = rng.standard_normal((K, data.n_cells))
    if K == 0:
        return F
    pull = (V / noise[:, None]).T @ Y
    # eq: NSFA.factors
    if not data.any_missing:
        L = np.linalg.cholesky(precisions(data, slice(None), V, noise)[0])
        return np.asarray(solve_triangular(L, solve_triangular(L, pull, lower=True) + F, lower=True, trans="T"))
    for cells in data.blocks(K):
        cov = np.linalg.inv(precisions(data, cells, V, noise))
        root = np.linalg.cholesky(0.5 * (cov + cov.swapaxes(1, 2)))
        F[:, cells] = np.squeeze(cov @ pull[:, cells].T[:, :, None] + root @ F[:, cells].T[:, :, None], 2).T
    return F
