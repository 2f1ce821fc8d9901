"""Twin of `thali.kernels.bits.encode_sampled`: the same scans and draws, every score from whole densities."""

import numpy as np
from scipy.special import expit, logsumexp

from reference.bits.encode_rows import log_joint


def encode_sampled(X, observed, features, gram_inv, log_odds, new_rate, noise_var, feature_var, u_scan, u_draw):
    n_rows, K = len(X), len(features)
    warm = len(u_scan) // 5
    presence, log_density = np.zeros((n_rows, K)), np.zeros(n_rows)
    for n, seen in enumerate(observed):
        if not seen.any():
            presence[n] = expit(log_odds)
            continue

        def score(z, n=n, seen=seen):
            return log_joint(z, X[n, seen], features[:, seen], gram_inv, log_odds, new_rate, noise_var, feature_var)

        def flipped(z, k):
            other = z.copy()
            other[k] = 1 - z[k]
            return other

        z = np.zeros(K)
        for _ in range(K):  # steepest ascent
            gains = [score(flipped(z, k)) - score(z) for k in range(K)]
            if max(gains) <= 1e-9:
                break
            z = flipped(z, int(np.argmax(gains)))
        visited = {}
        chances = []
        for u in u_scan:
            chances.append(np.zeros(K))
            for k in range(K):
                flip = expit(score(flipped(z, k)) - score(z))
                chances[-1][k] = 1 - flip if z[k] else flip
                if u[k] < flip:
                    z = flipped(z, k)
            visited[tuple(z)] = score(z)
        presence[n] = np.mean(chances[warm:], axis=0)
        proposal = np.clip(presence[n], 0.01, 0.99)
        terms = list(visited.values())
        for u in u_draw:
            z = (u < proposal).astype(float)
            if tuple(z) not in visited:
                log_proposal = np.log(np.where(z == 1, proposal, 1 - proposal)).sum()
                terms.append(score(z) - log_proposal - np.log(len(u_draw)))
        log_density[n] = logsumexp(terms)
    return presence, log_density
