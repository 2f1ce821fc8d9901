"""Twin of thali.kernels.weights.swaps: densities of both choices written out."""

import numpy as np

from reference.weights.slabs import draw_slab, log_slab


def like_pairs(A):
    size = np.linalg.norm(A, axis=1)
    likeness = np.abs(A @ A.T) / np.maximum(np.outer(size, size), 1e-300)
    np.fill_diagonal(likeness, 0.0)
    return np.array([[k, row.argmax()] for k, row in enumerate(likeness) if row.max() > 0.3]).reshape(-1, 2)


def swap_features(
    X, missing_start, missing_dim, V, A, counts, scales, pairs, log_odds, noise_var, rate, precision, log_norm, rng
):
    for n in range(len(X)):
        seen = np.ones(X.shape[1], dtype=bool)
        seen[missing_dim[missing_start[n] : missing_start[n + 1]]] = False
        chosen = False
        for pair in pairs:
            on = V[n, pair] != 0
            if on.sum() != 1:
                continue
            rest = V[n].copy()
            rest[pair] = 0.0
            e = (X[n] - rest @ A)[seen]
            scaled = [scales[k] * A[k, seen] for k in pair]
            forms = [(a @ e / noise_var, a @ a / noise_var) for a in scaled]
            others = [(np.delete(V[:, k], n) != 0).sum() for k in pair]
            odds = [log_odds[m] for m in others] + np.array([log_slab(*f, rate, precision, log_norm) for f in forms])
            u = rng.random()
            if odds[int(on[1])] == -np.inf:
                continue
            chosen = True
            new = int(u < 1 / (1 + np.exp(odds[0] - odds[1])))
            V[n, pair] = 0.0
            V[n, pair[new]] = scales[pair[new]] * draw_slab(*forms[new], rate, precision, rng)
            counts[pair] = (V[:, pair] != 0).sum(axis=0)
        if chosen:
            for d in np.flatnonzero(~seen):
                X[n, d] = V[n] @ A[: V.shape[1], d] + np.sqrt(noise_var) * rng.standard_normal()
