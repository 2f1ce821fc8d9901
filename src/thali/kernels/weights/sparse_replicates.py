"""Many small problems of sparse factor analysis at once, for tests of joint distributions."""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.weights.sparse_rows import sparse_sweep


def _draw_factors(G, K, Y, missing, noise_vars, rng):
    """F (K, C) given the loadings: f_c ~ N(P^-1 G' y_c / noise, P^-1), P = I + G' G / noise, by rows that see c."""
    n_rows, n_cells = Y.shape
    F = np.zeros((K, n_cells))
    if K == 0:
        return F
    for c in range(n_cells):
        precision = np.eye(K)
        pull = np.zeros(K)
        for n in range(n_rows):
            if not missing[n, c]:
                for k in range(K):
                    pull[k] += G[n, k] * Y[n, c] / noise_vars[n]
                    for j in range(K):
                        precision[k, j] += G[n, k] * G[n, j] / noise_vars[n]
        root = np.linalg.cholesky(np.linalg.inv(precision))
        noise = np.empty(K)
        for k in range(K):
            noise[k] = rng.standard_normal()
        # eq: NSFA.factors
        drawn = np.dot(root, np.dot(root.T, pull) + noise)
        for k in range(K):
            F[k, c] = drawn[k]
    return F


def _sparse_replicates(
    Y, missing, G, K, precisions, log_odds, new_rate, noise_vars, loading_law, noise_law, n_moves, proposal, rng
):  # fmt: skip
    """Factors, a sweep, then precisions and noise, of each replicate. How many had no room.

    Y (R, N, C), G (R, N, capacity), K (R), precisions (R, capacity), noise_vars (R, N), whose law has no floor.
    """
    n_replicates, n_rows, n_cells = Y.shape
    capacity = G.shape[2]
    cells = np.nonzero(missing)[1].astype(np.int64)
    start = np.zeros(n_rows + 1, np.int64)
    for n in range(n_rows):
        start[n + 1] = start[n] + missing[n].sum()
    seen = np.empty((n_rows, n_cells))
    counts = np.zeros(capacity, np.int64)
    fitted = np.empty(n_cells)
    n_full = 0
    for i in range(n_replicates):
        for n in range(n_rows):
            for c in range(n_cells):
                seen[n, c] = 0.0 if missing[n, c] else Y[i, n, c]
        F, drawn = np.zeros((capacity, n_cells)), draw_factors(G[i], K[i], seen, missing, noise_vars[i], rng)
        for k in range(K[i]):
            for c in range(n_cells):
                F[k, c] = drawn[k, c]
        for k in range(K[i]):
            counts[k] = 0
            for n in range(n_rows):
                counts[k] += 1 if G[i, n, k] != 0.0 else 0
        cross = np.dot(seen, F.T)
        K[i], row = sparse_sweep(
            seen, start, cells, G[i], K[i], F, precisions[i], counts, cross, log_odds, new_rate, noise_vars[i],
            loading_law, noise_law, n_moves, proposal, 0, rng,
        )  # fmt: skip
        if row < n_rows:
            n_full += 1
        for k in range(K[i]):
            square = 0.0
            for n in range(n_rows):
                square += G[i, n, k] * G[i, n, k]
            if loading_law[0] > 0.0:
                # eq: NSFA.precision
                precisions[i, k] = rng.standard_gamma(loading_law[0] + 0.5 * counts[k]) / (
                    loading_law[1] + 0.5 * square
                )
        for n in range(n_rows):
            n_seen, left = 0, 0.0
            for c in range(n_cells):
                mean = 0.0
                for k in range(K[i]):
                    mean += G[i, n, k] * F[k, c]
                fitted[c] = mean
                if not missing[n, c]:
                    n_seen += 1
                    left += (Y[i, n, c] - mean) ** 2
            if noise_law[0] > 0.0:
                # eq: NSFA.noise
                noise_vars[i, n] = (noise_law[1] + 0.5 * left) / rng.standard_gamma(noise_law[0] + 0.5 * n_seen)
            for c in range(n_cells):
                if missing[n, c]:
                    Y[i, n, c] = fitted[c] + math.sqrt(noise_vars[i, n]) * rng.standard_normal()
    return n_full


draw_factors = jit(_draw_factors)
sparse_replicates = jit(_sparse_replicates)
