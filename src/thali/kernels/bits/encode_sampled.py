"""Posterior of a new row's bits and its log predictive density when there are too many features to enumerate.

Bits: a Gibbs scan from the best pattern of an ascent; presence is the mean of the conditional probabilities. Density:
the patterns that were visited are summed exactly, the others by importance sampling from independent bits with those
probabilities. Every row uses the same uniforms, so its answer does not depend on the rows around it.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.encode_rows import log_row, row_forms


def _encode_sampled(X, observed, features, gram_inv, log_odds, new_rate, noise_var, feature_var, u_scan, u_draw):
    """As `encode_rows`; u_scan (scans, K) and u_draw (draws, K) are uniforms. A fifth of the scans is warm-up.

    eq: own.encode-sampled. Cost O(K D + (scans + draws) K^2) per row.
    """
    n_rows = X.shape[0]
    K = features.shape[0]
    n_scans, n_draws = len(u_scan), len(u_draw)
    warm = n_scans // 5
    presence = np.zeros((n_rows, K))
    log_density = np.zeros(n_rows)
    full_gram = np.dot(features, features.T)
    gram = np.zeros((K, K))
    b = np.zeros(K)
    z = np.zeros(K)
    Pz = np.zeros(K)
    Gz = np.zeros(K)
    visited = np.zeros((n_scans, K), np.uint8)
    visited_score = np.zeros(n_scans)
    log_none = 0.0  # log prior probability of having no feature at all
    for k in range(K):
        log_none -= max(log_odds[k], 0.0) + math.log1p(math.exp(-abs(log_odds[k])))
    for n in range(n_rows):
        used, xx = row_forms(X[n], observed[n], features, full_gram, b, gram)
        if used == 0:
            for k in range(K):
                presence[n, k] = 1.0 / (1.0 + math.exp(-log_odds[k]))
            continue
        s = xx
        q = 0.0
        prior = log_none
        for k in range(K):
            z[k] = Pz[k] = Gz[k] = 0.0
        score = prior + log_row(q, s, used, noise_var, feature_var, new_rate)
        n_visited = 0
        scan = -K  # steepest ascent first, at most K flips
        while scan < n_scans:
            best_k = -1
            best_gain = 1e-9
            for k in range(K):
                step = 1.0 - 2.0 * z[k]
                q_new = q + 2.0 * step * Pz[k] + gram_inv[k, k]
                s_new = max(s + 2.0 * step * (Gz[k] - b[k]) + gram[k, k], 0.0)
                prior_new = prior + step * log_odds[k]
                score_new = prior_new + log_row(q_new, s_new, used, noise_var, feature_var, new_rate)
                gain = score_new - score
                if scan < 0:
                    if gain > best_gain:
                        best_k = k
                        best_gain = gain
                    continue
                flip = 1.0 / (1.0 + math.exp(-gain)) if gain > -700.0 else 0.0
                if scan >= warm:
                    presence[n, k] += (flip if step > 0 else 1.0 - flip) / (n_scans - warm)
                if u_scan[scan, k] < flip:
                    q = q_new
                    s = s_new
                    prior = prior_new
                    score = score_new
                    z[k] += step
                    for j in range(K):
                        Pz[j] += step * gram_inv[k, j]
                        Gz[j] += step * gram[k, j]
            if scan < 0 and best_k >= 0:
                k = best_k
                step = 1.0 - 2.0 * z[k]
                q += 2.0 * step * Pz[k] + gram_inv[k, k]
                s = max(s + 2.0 * step * (Gz[k] - b[k]) + gram[k, k], 0.0)
                prior += step * log_odds[k]
                score += best_gain
                z[k] += step
                for j in range(K):
                    Pz[j] += step * gram_inv[k, j]
                    Gz[j] += step * gram[k, j]
            elif scan < 0:
                scan = -1  # at the top: the next scan is the first
            if scan >= 0 and not _is_listed_(z, visited, n_visited):
                for k in range(K):
                    visited[n_visited, k] = 1 if z[k] != 0.0 else 0
                visited_score[n_visited] = score
                n_visited += 1
            scan += 1

        top = visited_score[:n_visited].max()
        total = 0.0
        for i in range(n_visited):
            total += math.exp(visited_score[i] - top)
        for i in range(n_draws):
            q = 0.0
            s = xx
            score = log_none
            log_proposal = 0.0
            for k in range(K):
                chance = min(max(presence[n, k], 0.01), 0.99)
                z[k] = 1.0 if u_draw[i, k] < chance else 0.0
                log_proposal += math.log(chance) if z[k] != 0.0 else math.log1p(-chance)
            if _is_listed_(z, visited, n_visited):
                continue
            for k in range(K):
                if z[k] != 0.0:
                    score += log_odds[k]
                    s -= 2.0 * b[k]
                    for j in range(K):
                        q += gram_inv[k, j] * z[j]
                        s += gram[k, j] * z[j]
            score += log_row(q, max(s, 0.0), used, noise_var, feature_var, new_rate)
            total += math.exp(min(score - log_proposal - top, 600.0)) / n_draws
        log_density[n] = top + math.log(total)
    return presence, log_density


def _is_listed(z, patterns, count):
    for i in range(count):
        same = True
        for k in range(z.size):
            if (patterns[i, k] != 0) != (z[k] != 0.0):
                same = False
                break
        if same:
            return True
    return False


_is_listed_ = jit(_is_listed)
encode_sampled = jit(_encode_sampled)
