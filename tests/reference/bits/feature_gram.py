"""Twin of `thali.kernels.bits.feature_gram`: every inverse taken from scratch, no rank-one algebra."""

import numpy as np


def rebuild(gram, cross, K, ridge, P, G):
    P[:K, :K] = np.linalg.inv(gram[:K, :K] + ridge * np.eye(K))
    mu = P[:K, :K] @ cross[:K]
    G[:K, :K] = mu @ mu.T


def delete_column(owner, k, K, Z, counts, P, G, gram, cross, Y, flips):
    """Strike column k from M = P^-1 = Z'Z + ridge I and from Z'X, and begin again."""
    M = np.linalg.inv(P[:K, :K])
    keep = list(range(K))
    keep[k] = K - 1  # the last column moves into the place of the deleted one
    keep = keep[: K - 1]
    square = np.ix_(keep, keep)
    P[: K - 1, : K - 1] = np.linalg.inv(M[square])
    gram[: K - 1, : K - 1] = gram[square]
    cross[: K - 1] = cross[keep]
    mu = P[: K - 1, : K - 1] @ cross[: K - 1]
    G[: K - 1, : K - 1] = mu @ mu.T
    Y[:, : K - 1] = Y[:, keep]
    flips[: K - 1] = flips[keep]
    for array in (counts, Z.T):
        array[: K - 1] = array[keep]
        array[K - 1] = 0


def append_column(K, ridge, counts, P, G, gram, cross, Y, flips):
    """The inverse of a matrix with one more diagonal entry `ridge` and nothing beside it."""
    M = np.zeros((K + 1, K + 1))
    M[:K, :K] = np.linalg.inv(P[:K, :K])
    M[K, K] = ridge
    P[: K + 1, : K + 1] = np.linalg.inv(M)
    for array in (G, gram):
        array[: K + 1, K] = 0
        array[K, : K + 1] = 0
    counts[K] = 0
    cross[K] = 0
    Y[:, K] = 0
    flips[K] = 0


def add_flips(flips, X, K, cross):
    rows = slice(0, len(X))
    cross[:K] += flips[:K, rows] @ X
    flips[:K, rows] = 0
