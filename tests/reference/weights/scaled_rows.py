"""Twin of thali.kernels.weights.scaled_rows: residuals in full, nothing kept in step."""

import numpy as np

from reference.weights.slabs import draw_own, draw_slab, log_slab


def scaled_sweep(
    X, missing_start, missing_dim, V, K, A, counts, scales, log_odds, new_rate, noise_var, feature_var,
    rate, precision, log_norm, ard, n_candidates, most_own, start, rng,
):  # fmt: skip
    n_rows, n_dims = X.shape
    ridge = noise_var / feature_var
    grows = log_odds[0] == -np.inf
    for n in range(start, n_rows):
        if grows and K + most_own > V.shape[1]:
            return K, n
        seen = np.ones(n_dims, dtype=bool)
        seen[missing_dim[missing_start[n] : missing_start[n + 1]]] = False
        own = np.zeros((K + most_own, 2))
        n_own = k = 0
        while grows and k < K:
            if counts[k] == 1 and V[n, k] != 0:
                own[n_own] = V[n, k], scales[k]
                n_own += 1
                K -= 1
                V[:, k], A[k], counts[k], scales[k] = V[:, K], A[K], counts[K], scales[K]
                V[:, K] = 0
            else:
                k += 1
        var = noise_var + feature_var * np.sum(own[:n_own, 0] ** 2)
        order = np.arange(K)
        for i in range(K):
            j = i + int(rng.random() * (K - i))
            order[i], order[j] = order[j], order[i]
            k = order[i]
            others = (np.delete(V[:, k], n) != 0).sum()
            e = X[n] - np.delete(V[n, :K], k) @ np.delete(A[:K], k, axis=0)
            a = scales[k] * A[k, seen]
            pull, curve = a @ e[seen] / var, a @ a / var
            odds = log_odds[others] + log_slab(pull, curve, rate, precision, log_norm)
            is_on = rng.random() < 1 / (1 + np.exp(-odds))
            V[n, k] = scales[k] * draw_slab(pull, curve, rate, precision, rng) if is_on else 0.0
            counts[k] = others + is_on
        e = X[n] - V[n, :K] @ A[:K]
        if grows:
            candidates = np.zeros((n_candidates, most_own, 2))
            n_new = draw_own(
                e[seen] @ e[seen], seen.sum(), own, n_own, noise_var, feature_var, new_rate, rate, precision,
                ard, candidates, rng,
            )  # fmt: skip
            w = own[:n_new, 0]
            P = np.linalg.inv(np.outer(w, w) + ridge * np.eye(n_new)) if n_new else np.zeros((0, 0))
            power = w @ w
            shrink = (1 - np.sqrt(ridge / (ridge + power))) / power if n_new else 0.0
            root = np.sqrt(feature_var) * (np.eye(n_new) - shrink * np.outer(w, w))  # root root' = noise_var P
            for d in range(n_dims):
                normal = rng.standard_normal(n_new)
                values = P @ w * e[d] + root @ normal if seen[d] else np.sqrt(feature_var) * normal
                A[K : K + n_new, d] = values
            V[n, K : K + n_new] = w
            counts[K : K + n_new] = 1
            scales[K : K + n_new] = own[:n_new, 1]
            K += n_new
        for d in np.flatnonzero(~seen):
            X[n, d] = V[n, :K] @ A[:K, d] + np.sqrt(noise_var) * rng.standard_normal()
    return K, n_rows
