"""Many small independent problems in one call: what joint-distribution tests need."""

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.collapsed_rows import BLOCK, collapsed_sweep
from thali.kernels.bits.conditional_rows import conditional_sweep, draw_features
from thali.kernels.weights.scaled_rows import scaled_sweep


def _sweep_replicates(X, missing_start, missing_dim, Z, K, log_odds, new_rate, noise_var, feature_var, group, rng):
    """One `collapsed_sweep`, `group` bits at a time, in each replicate.

    X (R, N, D), Z (R, N, capacity) and K (R,) change in place. N must not exceed one block of rows. Returns the number
    of replicates whose capacity did not suffice; their sweep is incomplete.
    """
    n_replicates, n_rows, n_dims = X.shape
    capacity = Z.shape[2]
    gram = np.zeros((capacity, capacity))
    cross = np.zeros((capacity, n_dims))
    products = np.zeros((n_rows, BLOCK))
    square = np.zeros(n_rows)
    keys = np.zeros(capacity)
    n_full = 0
    for i in range(n_replicates):
        gram[:] = 0.0
        cross[:] = 0.0
        for n in range(n_rows):
            for t in range(n_rows):
                products[n, t] = 0.0
                for d in range(n_dims):
                    products[n, t] += X[i, n, d] * X[i, t, d]
            square[n] = products[n, n]
            for k in range(K[i]):
                if Z[i, n, k]:
                    for d in range(n_dims):
                        cross[k, d] += X[i, n, d]
                    for j in range(K[i]):
                        gram[k, j] += Z[i, n, j]
        for k in range(capacity):
            keys[k] = rng.random()
        K[i], row, _, _, _, _ = collapsed_sweep(
            X[i], square, products, missing_start, missing_dim, Z[i], K[i], gram, cross,
            log_odds, new_rate, noise_var, feature_var, group, keys, 0, -1, rng,
        )  # fmt: skip
        if row < n_rows:
            n_full += 1
    return n_full


def _conditional_replicates(
    X, missing_start, missing_dim, Z, K, log_odds, new_rate, noise_var, feature_var, group, rng
):
    """As `sweep_replicates`, with the features drawn and one `conditional_sweep` given them; `group` is not used."""
    n_replicates, n_rows, n_dims = X.shape
    capacity = Z.shape[2]
    A = np.zeros((capacity, n_dims))
    counts = np.zeros(capacity, np.int64)
    n_full = 0
    for i in range(n_replicates):
        z = Z[i, :, : K[i]].astype(np.float64)
        gram = np.dot(z.T, z)
        features = draw_features(gram, np.dot(z.T, X[i]), K[i], noise_var, feature_var, rng)
        for k in range(K[i]):
            counts[k] = int(gram[k, k])
            for d in range(n_dims):
                A[k, d] = features[k, d]
        K[i], row, _ = conditional_sweep(
            X[i], missing_start, missing_dim, Z[i], K[i], A, counts,
            log_odds, new_rate, noise_var, feature_var, 0, -1, rng,
        )  # fmt: skip
        if row < n_rows:
            n_full += 1
    return n_full


def _scaled_replicates(
    X, missing_start, missing_dim, V, K, log_odds, new_rate, noise_var, feature_var, rate, precision, log_norm, rng
):
    """As `conditional_replicates`, with codes V (R, N, capacity) whose weights have the law (rate, precision)."""
    scales = np.ones(V.shape[2])
    n_replicates, n_rows, n_dims = X.shape
    capacity = V.shape[2]
    A = np.zeros((capacity, n_dims))
    counts = np.zeros(capacity, np.int64)
    most_own = 0 if log_odds[0] > -np.inf else 16 + int(8 * new_rate)
    n_full = 0
    for i in range(n_replicates):
        v = np.ascontiguousarray(V[i, :, : K[i]])
        features = draw_features(np.dot(v.T, v), np.dot(v.T, X[i]), K[i], noise_var, feature_var, rng)
        for k in range(K[i]):
            counts[k] = 0
            for n in range(n_rows):
                counts[k] += 1 if v[n, k] != 0.0 else 0
            for d in range(n_dims):
                A[k, d] = features[k, d]
        K[i], row = scaled_sweep(
            X[i], missing_start, missing_dim, V[i], K[i], A, counts, scales, log_odds, new_rate, noise_var, feature_var,
            rate, precision, log_norm, 0.0, 4, most_own, 0, rng,
        )  # fmt: skip
        if row < n_rows:
            n_full += 1
    return n_full


sweep_replicates = jit(_sweep_replicates)
scaled_replicates = jit(_scaled_replicates)
conditional_replicates = jit(_conditional_replicates)
