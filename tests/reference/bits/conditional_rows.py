"""Twin of thali.kernels.bits.conditional_rows: residuals in full, nothing kept in step."""

import numpy as np

from reference.bits.row_draws import draw_new


def draw_features(gram, cross, K, noise_var, feature_var, rng):
    P = np.linalg.inv(gram[:K, :K] + noise_var / feature_var * np.eye(K))
    noise = np.sqrt(noise_var) * rng.standard_normal((K, cross.shape[1]))
    return P @ cross[:K] + np.linalg.cholesky(P) @ noise if K else noise


def add_to_forms(k, step, K, A, gram, cells, Gz):
    seen = np.setdiff1d(np.arange(A.shape[1]), cells)
    Gz[:K] += step * A[:K][:, seen] @ A[k, seen]


def fill_gram(k, A, K, gram):
    gram[k, :K] = gram[:K, k] = A[:K] @ A[k]


def move_column(source, target, Z, A, counts, gram):
    A[target], counts[target] = A[source], counts[source]
    Z[:, target] = Z[:, source]
    Z[:, source] = 0
    gram[target, : source + 1] = gram[source, : source + 1]
    gram[: source + 1, target] = gram[: source + 1, source]


def conditional_sweep(
    X, missing_start, missing_dim, Z, K, A, counts, log_odds, new_rate, noise_var, feature_var, start, pending, rng
):
    n_rows, n_dims = X.shape
    ridge = noise_var / feature_var
    for n in range(start, n_rows):
        seen = np.ones(n_dims, dtype=bool)
        seen[missing_dim[missing_start[n] : missing_start[n + 1]]] = False
        n_own = k = 0
        while log_odds[0] == -np.inf and k < K:
            if counts[k] == 1 and Z[n, k] == 1:
                K -= 1
                Z[:, k], A[k], counts[k] = Z[:, K], A[K], counts[K]
                Z[:, K] = 0
                n_own += 1
            else:
                k += 1
        if pending < 0:
            var = noise_var + n_own * feature_var
            order = np.arange(K)
            for i in range(K):
                j = i + int(rng.random() * (K - i))
                order[i], order[j] = order[j], order[i]
                k, u = order[i], rng.random()
                m = counts[k] - Z[n, k]
                score = []
                for bit in (0, 1):
                    row = Z[n, :K].astype(float)
                    row[k] = bit
                    e = (X[n] - row @ A[:K])[seen]
                    score.append(-0.5 * e @ e / var + bit * log_odds[m])
                bit = 1 - Z[n, k]
                if u < 1 / (1 + np.exp(score[1 - bit] - score[bit])):
                    Z[n, k] = bit
                    counts[k] += 2 * int(bit) - 1
            e = (X[n] - Z[n, :K] @ A[:K])[seen]
            n_new = draw_new(0.0, e @ e, seen.sum(), ridge, 1 / noise_var, new_rate, np.empty(64), rng.random())
        else:
            n_new, pending = pending, -1
        is_full = K + n_new > Z.shape[1]
        if is_full:
            pending, n_new = n_new, n_own
        e = X[n] - Z[n, :K] @ A[:K]
        for d in range(n_dims):
            normal = rng.standard_normal(n_new)
            values = np.sqrt(feature_var) * normal
            if seen[d] and n_new:
                c = (1 - np.sqrt(ridge / (n_new + ridge))) / n_new
                values = e[d] / (n_new + ridge) + np.sqrt(feature_var) * (normal - c * normal.sum())
            A[K : K + n_new, d] = values
        Z[n, K : K + n_new] = 1
        counts[K : K + n_new] = 1
        K += n_new
        for d in np.flatnonzero(~seen):
            X[n, d] = Z[n, :K] @ A[:K, d] + np.sqrt(noise_var) * rng.standard_normal()
        if is_full:
            return K, n, pending
    return K, n_rows, -1
