"""Keeping P = (Z'Z + ridge I)^-1 and G = mu mu', mu = P Z'X, in step with the columns of Z.

`counts`, `gram` = Z'Z and `cross` = Z'X hold one entry per column in use (K of them; the arrays have room for more).
"""

import numpy as np

from thali.kernels._jit import jit


def _rebuild(gram, cross, K, ridge, P, G):
    """P = (gram + ridge I)^-1 and G = P cross cross' P. Cost O(K^3 + K^2 D)."""
    if K == 0:
        return
    M = gram[:K, :K].copy()
    for k in range(K):
        M[k, k] += ridge
    inverse = np.linalg.inv(M)
    for i in range(K):
        for j in range(K):
            P[i, j] = 0.5 * (inverse[i, j] + inverse[j, i])
            M[i, j] = P[i, j]
    mu = np.dot(M, cross[:K])
    product = np.dot(mu, mu.T)
    for i in range(K):
        for j in range(K):
            G[i, j] = product[i, j]


def _delete_column(owner, k, K, Z, counts, P, G, gram, cross, Y, flips):
    """Delete column k, which only row `owner` has: Schur complement in P and G, last column moved into its place.

    With u = P[:, k] / P[k, k] the features lose u mu_k, hence the rank-two change of G. Cost O(K^2 + N + D).
    """
    scale = 1.0 / P[k, k]
    for i in range(K):
        if i == k:
            continue
        u = P[i, k] * scale
        gi = G[i, k] - u * G[k, k]
        for j in range(K):
            if j != k:
                G[i, j] += -u * G[k, j] - gi * P[j, k] * scale
                P[i, j] -= u * P[k, j]
    last = K - 1
    if k != last:
        counts[k] = counts[last]
        for j in range(K):
            P[k, j] = P[last, j]
            G[k, j] = G[last, j]
            gram[k, j] = gram[last, j]
        for j in range(K):
            P[j, k] = P[j, last]
            G[j, k] = G[j, last]
            gram[j, k] = gram[j, last]
        for n in range(Z.shape[0]):
            Z[n, k] = Z[n, last]
            Z[n, last] = 0
        for t in range(Y.shape[0]):
            Y[t, k] = Y[t, last]
            flips[k, t] = flips[last, t]
        for d in range(cross.shape[1]):
            cross[k, d] = cross[last, d]
    counts[last] = 0
    Z[owner, last] = 0


def _append_column(K, ridge, counts, P, G, gram, cross, Y, flips):
    """A feature nobody has yet: P block 1/ridge, everything else zero."""
    for i in range(K + 1):
        P[i, K] = P[K, i] = 0.0
        G[i, K] = G[K, i] = 0.0
        gram[i, K] = gram[K, i] = 0.0
    P[K, K] = 1.0 / ridge
    counts[K] = 0
    for d in range(cross.shape[1]):
        cross[K, d] = 0.0
    for t in range(Y.shape[0]):
        Y[t, K] = 0.0
        flips[K, t] = 0.0


def _add_flips(flips, X, K, cross):
    """cross += flips X for the rows of a block; flips are then zero."""
    rows = X.shape[0]
    change = np.zeros((K, rows))
    for k in range(K):
        for t in range(rows):
            change[k, t] = flips[k, t]
            flips[k, t] = 0.0
    product = np.dot(change, X)
    for k in range(K):
        for d in range(X.shape[1]):
            cross[k, d] += product[k, d]


rebuild = jit(_rebuild)
delete_column = jit(_delete_column)
append_column = jit(_append_column)
add_flips = jit(_add_flips)
