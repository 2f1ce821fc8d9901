"""Twin of `thali.kernels.bits.replicates`."""

import numpy as np

from reference.bits.collapsed_rows import BLOCK, collapsed_sweep
from reference.bits.conditional_rows import conditional_sweep, draw_features
from reference.weights.scaled_rows import scaled_sweep


def sweep_replicates(X, missing_start, missing_dim, Z, K, log_odds, new_rate, noise_var, feature_var, group, rng):
    n_full = 0
    for i in range(len(X)):
        n_rows, n_dims = X[i].shape
        capacity = Z.shape[2]
        products = np.zeros((n_rows, BLOCK))
        products[:, :n_rows] = X[i] @ X[i].T
        keys = np.array([rng.random() for _ in range(capacity)])
        K[i], row, *_ = collapsed_sweep(
            X[i], np.diag(products).copy(), products, missing_start, missing_dim, Z[i], K[i],
            np.zeros((capacity, capacity)), np.zeros((capacity, n_dims)),
            log_odds, new_rate, noise_var, feature_var, group, keys, 0, -1, rng,
        )  # fmt: skip
        n_full += row < n_rows
    return n_full


def conditional_replicates(X, missing_start, missing_dim, Z, K, log_odds, new_rate, noise_var, feature_var, group, rng):
    n_full = 0
    for i in range(len(X)):
        A, counts = np.zeros((Z.shape[2], X.shape[2])), np.zeros(Z.shape[2], dtype=np.int64)
        z = Z[i, :, : K[i]].astype(float)
        counts[: K[i]] = z.sum(axis=0)
        A[: K[i]] = draw_features(z.T @ z, z.T @ X[i], K[i], noise_var, feature_var, rng)
        K[i], row, _ = conditional_sweep(
            X[i], missing_start, missing_dim, Z[i], K[i], A, counts,
            log_odds, new_rate, noise_var, feature_var, 0, -1, rng,
        )  # fmt: skip
        n_full += row < X.shape[1]
    return n_full


def scaled_replicates(
    X, missing_start, missing_dim, V, K, log_odds, new_rate, noise_var, feature_var, rate, precision, log_norm, rng
):
    n_full = 0
    most_own = 0 if np.isfinite(log_odds[0]) else 16 + int(8 * new_rate)
    for i in range(len(X)):
        A, counts = np.zeros((V.shape[2], X.shape[2])), np.zeros(V.shape[2], dtype=np.int64)
        scales = np.ones(V.shape[2])
        v = V[i, :, : K[i]]
        counts[: K[i]] = (v != 0).sum(axis=0)
        A[: K[i]] = draw_features(v.T @ v, v.T @ X[i], K[i], noise_var, feature_var, rng)
        K[i], row = scaled_sweep(
            X[i], missing_start, missing_dim, V[i], K[i], A, counts, scales, log_odds, new_rate, noise_var, feature_var,
            rate, precision, log_norm, 0.0, 4, most_own, 0, rng,
        )  # fmt: skip
        n_full += row < X.shape[1]
    return n_full
