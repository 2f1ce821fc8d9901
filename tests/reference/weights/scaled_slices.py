"""Twin of thali.kernels.weights.scaled_slices: residuals in full."""

import numpy as np

from reference.weights.slabs import draw_slab, log_slab


def scaled_slice_sweep(
    X, missing_start, missing_dim, V, A, chances, kinds, sizes, level, scales, noise_var, rate, precision, log_norm, rng
):
    K = len(sizes)
    for n in range(len(X)):
        seen = np.ones(X.shape[1], dtype=bool)
        seen[missing_dim[missing_start[n] : missing_start[n + 1]]] = False
        order = np.arange(K)
        for i in range(K):
            j = i + int(rng.random() * (K - i))
            order[i], order[j] = order[j], order[i]
            k = order[i]
            if sizes[k] < level:
                continue
            score = []
            for bit in (0, 1):
                v = V.copy()
                v[n, k] = bit
                slice_below = sizes[v.any(axis=0)].min(initial=1.0)  # the slice is uniform below it
                chance = chances[kinds[n], k]
                score.append((np.log(chance) if bit else np.log1p(-chance)) - np.log(slice_below))
            e = X[n] - np.delete(V[n], k) @ np.delete(A, k, axis=0)
            a = scales[k] * A[k, seen]
            pull, curve = a @ e[seen] / noise_var, a @ a / noise_var
            odds = score[1] - score[0] + log_slab(pull, curve, rate, precision, log_norm)
            is_on = rng.random() < 1 / (1 + np.exp(-odds))
            V[n, k] = scales[k] * draw_slab(pull, curve, rate, precision, rng) if is_on else 0.0
        for d in np.flatnonzero(~seen):
            X[n, d] = V[n] @ A[:, d] + np.sqrt(noise_var) * rng.standard_normal()
