"""Twin of thali.kernels.bits.importance_rows: residuals in full, all candidates side by side."""

import numpy as np


def log_fit(e, own, is_seen, half_precision):
    return -half_precision * np.sum((e - own.sum(axis=0))[is_seen] ** 2)


def enlarged(Z, A, counts, gram, K, room):
    more = room - K
    return (
        np.pad(Z[:, :K], ((0, 0), (0, more))),
        np.pad(A[:K], ((0, more), (0, 0))),
        np.pad(counts[:K], (0, more)),
        np.pad(gram[:K, :K], (0, more)),
    )


def importance_sweep(
    X, missing_start, missing_dim, Z, K, A, counts, log_odds, new_rate, noise_var, feature_var, n_candidates, rng
):
    Z, A, counts = Z[:, :K].copy(), A[:K].copy(), counts[:K].copy()
    grows = log_odds[0] == -np.inf
    for n in range(len(X)):
        seen = np.ones(X.shape[1], dtype=bool)
        seen[missing_dim[missing_start[n] : missing_start[n + 1]]] = False
        own = np.zeros((0, X.shape[1]))
        k = 0
        while grows and k < len(counts):  # the last column takes the place of one that is set aside
            if counts[k] == 1 and Z[n, k] == 1:
                own = np.vstack([own, A[k]])
                Z[:, k], A[k], counts[k] = Z[:, -1], A[-1], counts[-1]
                Z, A, counts = Z[:, :-1], A[:-1], counts[:-1]
            else:
                k += 1
        K = len(counts)
        order = np.arange(K)
        for i in range(K):
            j = i + int(rng.random() * (K - i))
            order[i], order[j] = order[j], order[i]
            k, u = order[i], rng.random()
            others = counts[k] - Z[n, k]
            score = []
            for bit in (0, 1):
                row = Z[n].astype(float)
                row[k] = bit
                score.append(log_fit(X[n] - row @ A, own, seen, 0.5 / noise_var) + bit * log_odds[others])
            bit = 1 - Z[n, k]
            if u < 1 / (1 + np.exp(score[1 - bit] - score[bit])):
                Z[n, k] = bit
                counts[k] = others + bit
        e = X[n] - Z[n] @ A
        candidates, log_weights, u = [own], [log_fit(e, own, seen, 0.5 / noise_var)], []
        for _ in range(n_candidates - 1 if grows else 0):
            columns = rng.standard_normal((rng.poisson(new_rate), X.shape[1]))
            candidates.append(np.sqrt(feature_var) * columns)
            log_weights.append(log_fit(e, candidates[-1], seen, 0.5 / noise_var))
            u.append(rng.random())
        weights = np.exp(np.array(log_weights) - max(log_weights))
        for c, share in enumerate(weights[1:] / np.cumsum(weights)[1:]):
            if u[c] < share:
                own = candidates[c + 1]
        Z = np.hstack([Z, np.zeros((len(X), len(own)), np.uint8)])
        Z[n, K:] = 1
        A, counts = np.vstack([A, own]), np.append(counts, np.ones(len(own), np.int64))
        for d in np.flatnonzero(~seen):
            X[n, d] = Z[n] @ A[:, d] + np.sqrt(noise_var) * rng.standard_normal()
    return len(counts), Z, A, counts
