"""Twin of `thali.kernels.replicates`."""

import numpy as np

from reference.collapsed_rows import BLOCK, collapsed_sweep


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
