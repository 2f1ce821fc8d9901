"""Twin of thali.kernels.weights.sparse_replicates."""

import numpy as np

from reference.weights.sparse_rows import sparse_sweep


def draw_factors(G, K, Y, missing, noise_vars, rng):
    F = np.zeros((K, Y.shape[1]))
    for c in range(Y.shape[1] if K else 0):
        seen = ~missing[:, c]
        scaled = G[seen, :K] / noise_vars[seen, None]
        cov = np.linalg.inv(np.eye(K) + scaled.T @ G[seen, :K])
        normal = np.array([rng.standard_normal() for _ in range(K)])
        F[:, c] = cov @ (scaled.T @ Y[seen, c]) + np.linalg.cholesky(cov) @ normal
    return F


def sparse_replicates(
    Y, missing, G, K, precisions, log_odds, new_rate, noise_vars, loading_law, noise_law, n_moves, proposal, rng
):  # fmt: skip
    n_full = 0
    start = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64)
    cells = np.nonzero(missing)[1]
    for i in range(len(Y)):
        seen = np.where(missing, 0.0, Y[i])
        F = np.zeros((G.shape[2], Y.shape[2]))
        F[: K[i]] = draw_factors(G[i], K[i], seen, missing, noise_vars[i], rng)
        counts = np.count_nonzero(G[i], axis=0)
        K[i], row = sparse_sweep(
            seen, start, cells, G[i], K[i], F, precisions[i], counts, seen @ F.T, log_odds, new_rate, noise_vars[i],
            loading_law, noise_law, n_moves, proposal, 0, rng,
        )  # fmt: skip
        n_full += row < Y.shape[1]
        for k in range(K[i] if loading_law[0] > 0 else 0):
            shape = loading_law[0] + 0.5 * np.count_nonzero(G[i, :, k])
            precisions[i, k] = rng.standard_gamma(shape) / (loading_law[1] + 0.5 * np.sum(G[i, :, k] ** 2))
        fitted = G[i, :, : K[i]] @ F[: K[i]]
        for n in range(Y.shape[1]):
            left = (Y[i, n] - fitted[n])[~missing[n]]
            if noise_law[0] > 0:
                noise_vars[i, n] = (noise_law[1] + 0.5 * left @ left) / rng.standard_gamma(
                    noise_law[0] + 0.5 * len(left)
                )
            for c in np.flatnonzero(missing[n]):
                Y[i, n, c] = fitted[n, c] + np.sqrt(noise_vars[i, n]) * rng.standard_normal()
    return n_full
