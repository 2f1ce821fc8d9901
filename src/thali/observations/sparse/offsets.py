"""The offset of sparse factor analysis given the loadings, with what the factors have in common with it integrated out.

Given the factors it could hardly move: a factor whose values are all a little larger would do as well.
"""

import numpy as np
from scipy.linalg import solve_triangular

from thali.observations.sparse.data import LoadingData
from thali.observations.sparse.factors import precisions

Array = np.ndarray
Generator = np.random.Generator


def offset_of_owners(
    rng: Generator, data: LoadingData, V: Array, F: Array, noise: Array, centre: Array, spread: float
) -> Array:
    """One number for each owner of loadings, given how factors vary but not their means.

    The means m ~ N(0, I / n_cells) of the factors are independent of how they vary about them. They are drawn with the
    offset integrated out, then the offset is drawn given them.
    """
    varying = F - F.mean(axis=1, keepdims=True) if F.size else F
    left = data.Y - np.where(data.missing, 0.0, V @ varying)
    n_seen = np.maximum(data.n_seen, 1e-12)
    mean, var = left.sum(axis=1) / n_seen, noise / n_seen
    K = V.shape[1]
    if K:
        weight = 1.0 / (var + spread)
        L = np.linalg.cholesky(data.n_cells * np.eye(K) + (V.T * weight) @ V)
        half = solve_triangular(L, (V.T * weight) @ (mean - centre), lower=True)
        # eq: NSFA.factor-means
        mean = mean - V @ solve_triangular(L, half + rng.standard_normal(K), lower=True, trans="T")
    precision = 1.0 / var + 1.0 / spread
    # eq: NSFA.offset
    return (mean / var + centre / spread) / precision + rng.standard_normal(len(mean)) / np.sqrt(precision)


def offset_of_cells(rng: Generator, data: LoadingData, V: Array, noise: Array, centre: Array, spread: float) -> Array:
    """One number for each cell of an owner, all factors integrated out: y_c ~ N(offset_c 1, V V' + noise)."""
    weight = 1.0 / noise
    scaled = V * weight[:, None]
    # 1' S^-1 1 and 1' S^-1 y with S = V V' + noise, by Woodbury's identity
    ones, pull = scaled.T @ data.seen, scaled.T @ data.Y
    precision, mean = weight @ data.seen, weight @ data.Y
    for cells in data.blocks(V.shape[1]):
        P = precisions(data, cells, V, noise)
        solved = np.linalg.solve(P, ones[:, cells].T[:, :, None])[:, :, 0].T
        # eq: NSFA.offset-of-cells
        precision[cells] -= np.sum(solved * ones[:, cells], axis=0)
        mean[cells] -= np.sum(solved * pull[:, cells], axis=0)
    precision += 1.0 / spread
    return (mean + centre / spread) / precision + rng.standard_normal(data.n_cells) / np.sqrt(precision)
