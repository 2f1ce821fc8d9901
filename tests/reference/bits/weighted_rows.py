"""Twin of thali.kernels.bits.weighted_rows: residuals in full."""

import numpy as np


def weighted_sweep(X, missing_start, missing_dim, Z, A, chances, kinds, sizes, level, noise_var, rng):
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
            u = rng.random()
            score = []
            for bit in (0, 1):
                z = Z.copy()
                z[n, k] = bit
                e = (X[n] - z[n] @ A)[seen]
                slice_below = sizes[z.any(axis=0)].min(initial=1.0)  # the slice is uniform below it
                chance = chances[kinds[n], k]
                prior = np.log(chance) if bit else np.log1p(-chance)
                score.append(prior - np.log(slice_below) - 0.5 * e @ e / noise_var)
            bit = 1 - Z[n, k]
            if u < 1 / (1 + np.exp(score[1 - bit] - score[bit])):
                Z[n, k] = bit
        for d in np.flatnonzero(~seen):
            X[n, d] = Z[n] @ A[:, d] + np.sqrt(noise_var) * rng.standard_normal()
