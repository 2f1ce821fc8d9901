"""Twin of `thali.kernels.bits.collapsed_rows`: every probability from full Gaussian densities, no algebra saved."""

import math

import numpy as np
from scipy.special import logsumexp

BLOCK = 32


def _log_density(x, z, n_own, others, cells, noise_var, feature_var):
    """log N(x; z mu, noise_var + z Sigma z' + n_own feature_var) over the observed cells, up to (2 pi)^(-D/2)."""
    Z, X = others
    Sigma = noise_var * np.linalg.inv(Z.T @ Z + noise_var / feature_var * np.eye(Z.shape[1]))
    mu = Sigma @ Z.T @ X / noise_var
    v = noise_var + z @ Sigma @ z + n_own * feature_var
    e = np.delete(x - z @ mu, cells)
    return -0.5 * e.size * math.log(v) - 0.5 * e @ e / v


def collapsed_sweep(
    X, square, block_gram, missing_start, missing_dim, Z, K, gram, cross,
    log_odds, new_rate, noise_var, feature_var, group, keys, start, pending, rng,
):  # fmt: skip
    n_rows = X.shape[0]
    grows = log_odds[0] == -np.inf
    n_changed = 0
    for n in range(start, n_rows):
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        before = Z[n, :K].copy()
        counts = Z[:, :K].sum(axis=0, dtype=int)
        own = [k for k in range(K) if grows and Z[n, k] and counts[k] == 1]
        k = 0
        while k < K:  # the last column moves into the place of a deleted one, as in the kernel
            if grows and Z[n, k] and Z[:, k].sum() == 1:
                Z[:, k] = Z[:, K - 1]
                Z[:, K - 1] = 0
                K -= 1
                keys[k] = keys[K]
            else:
                k += 1
        keep = np.arange(n_rows) != n
        others = (Z[keep, :K].astype(float), X[keep])
        z = Z[n, :K].astype(float)
        if pending < 0:
            groups = np.argsort(keys[:K], kind="stable") if group > 1 else np.zeros(0, dtype=int)
            for first in range(0, len(groups), group):
                columns = groups[first : first + group]
                u = rng.random()
                candidates, log_p = [], []
                for flips in range(2 ** len(columns)):
                    other = z.copy()
                    for i, k in enumerate(columns):
                        if flips >> i & 1:
                            other[k] = 1 - z[k]
                    prior = sum(other[k] * log_odds[int(others[0][:, k].sum())] for k in columns)
                    log_p.append(prior + _log_density(X[n], other, len(own), others, cells, noise_var, feature_var))
                    candidates.append(other)
                z = candidates[int(np.searchsorted(np.cumsum(np.exp(log_p - logsumexp(log_p))), u, side="right"))]
            order = list(range(K if group == 1 else 0))
            for i in range(len(order)):
                j = i + int(rng.random() * (K - i))
                order[i], order[j] = order[j], order[i]
                k = order[i]
                u = rng.random()
                flipped = z.copy()
                flipped[k] = 1 - z[k]
                step = flipped[k] - z[k]
                delta = (
                    _log_density(X[n], flipped, len(own), others, cells, noise_var, feature_var)
                    - _log_density(X[n], z, len(own), others, cells, noise_var, feature_var)
                    + step * log_odds[int(others[0][:, k].sum())]
                )
                if u < 1 / (1 + math.exp(min(-delta, 700))):
                    z = flipped
            u = rng.random()
            n_new = 0
            if new_rate > 0:
                j = np.arange(200)
                log_p = j * math.log(new_rate) - np.array([math.lgamma(i + 1) for i in j])
                log_p += [_log_density(X[n], z, i, others, cells, noise_var, feature_var) for i in j]
                n_new = int(np.searchsorted(np.cumsum(np.exp(log_p - logsumexp(log_p))), u, side="right"))
        else:
            n_new = pending
            pending = -1
        full = K + n_new > Z.shape[1]
        drawn = n_new
        if full:
            n_new = len(own)
        if cells.size:
            M = others[0].T @ others[0] + noise_var / feature_var * np.eye(K)
            mean = z @ np.linalg.solve(M, others[0].T @ others[1])
            var = noise_var * (1 + z @ np.linalg.solve(M, z)) + n_new * feature_var
            for d in cells:
                X[n, d] = mean[d] + math.sqrt(var) * rng.standard_normal()
        Z[n, :K] = z
        Z[n, K : K + n_new] = 1
        for k in range(K, K + n_new) if group > 1 else ():
            keys[k] = rng.random()
        K += n_new
        n_changed += bool(own or n_new or cells.size or not np.array_equal(before, Z[n, : before.size]))
        if full:
            break
    dense = Z[:, :K].astype(float)
    gram[:K, :K] = dense.T @ dense
    cross[:K] = dense.T @ X
    for row in range(n_rows):
        first = row - row % BLOCK
        block_gram[row, : min(BLOCK, n_rows - first)] = X[first : first + BLOCK] @ X[row]
    square[:] = (X**2).sum(axis=1)
    return (K, n, drawn, n_changed, 0, 0.0) if full else (K, n_rows, -1, n_changed, 0, 0.0)
