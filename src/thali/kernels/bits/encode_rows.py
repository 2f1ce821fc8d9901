"""Posterior of one new row's bits given the features' posterior, and the row's log predictive density: exact.

All 2^K patterns are summed, so this is for few features; `encode_sampled` serves the rest.
"""

import math

import numpy as np

from thali.kernels._jit import jit

_LOG_2PI = math.log(2.0 * math.pi)
_NEGLIGIBLE = 36.0
_MOST = 256  # unknown features of a row: an outlier of 10^9 sd would else ask for as many


def _row_forms(x, observed, features, full_gram, b, gram):
    """mu x and mu mu' over the observed cells of a row, into b and gram. Returns (number of them, |x|^2)."""
    K, n_dims = features.shape
    used = 0
    xx = 0.0
    for d in range(n_dims):
        if observed[d]:
            used += 1
            xx += x[d] * x[d]
    for k in range(K):
        b[k] = 0.0
        for d in range(n_dims):
            if observed[d]:
                b[k] += features[k, d] * x[d]
        for j in range(k + 1):
            a = full_gram[k, j]
            if used < n_dims:
                a = 0.0
                for d in range(n_dims):
                    if observed[d]:
                        a += features[k, d] * features[j, d]
            gram[k, j] = gram[j, k] = a
    return used, xx


def _log_row(q, s, n_dims, noise_var, feature_var, new_rate):
    """log sum_j Poisson(j; new_rate) N(residual; 0, noise_var (1 + q) + j feature_var), s = |residual|^2.

    eq: own.encode. Terms are added until the Poisson tail is negligible against any likelihood, at most _MOST.
    """
    v = noise_var * (1.0 + max(q, 0.0))  # of an ill-conditioned P, rounding may leave q below zero
    top = -0.5 * n_dims * (_LOG_2PI + math.log(v)) - 0.5 * s / v - new_rate
    total = 1.0
    if new_rate <= 0.0:
        return top
    peak = s / n_dims if n_dims > 0 else 0.0
    log_poisson = -new_rate
    j = 0
    while True:
        j += 1
        log_poisson += math.log(new_rate / j)
        v += feature_var
        best = max(v, peak)
        tail = log_poisson - 0.5 * (n_dims * (_LOG_2PI + math.log(best)) + s / best)
        if (j > new_rate and tail < top - _NEGLIGIBLE) or j == _MOST:
            break
        term = log_poisson - 0.5 * n_dims * (_LOG_2PI + math.log(v)) - 0.5 * s / v
        if term > top:
            total = total * math.exp(top - term) + 1.0
            top = term
        else:
            total += math.exp(term - top)
    return top + math.log(total)


def _encode_rows(X, observed, features, gram_inv, log_odds, new_rate, noise_var, feature_var):
    """presence[n, k] = P(z_nk = 1 | x_n) and log p(x_n), over the observed cells of each row on its own.

    x | z, j ~ N(z mu, noise_var (1 + z P z') + j feature_var), j ~ Poisson(new_rate), z_k ~ Bernoulli by log_odds[k].
    Patterns follow each other in Gray code, one flip at a time. Cost O(K D + 2^K K) per row.
    """
    n_rows = X.shape[0]
    K = features.shape[0]
    presence = np.zeros((n_rows, K))
    log_density = np.zeros(n_rows)
    full_gram = np.dot(features, features.T)
    gram = np.zeros((K, K))
    b = np.zeros(K)
    z = np.zeros(K)
    Pz = np.zeros(K)
    Gz = np.zeros(K)
    score = np.zeros(2**K)
    log_none = 0.0  # log prior probability of having no feature at all
    for k in range(K):
        log_none -= max(log_odds[k], 0.0) + math.log1p(math.exp(-abs(log_odds[k])))
    for n in range(n_rows):
        used, s = row_forms(X[n], observed[n], features, full_gram, b, gram)
        q = 0.0
        prior = log_none
        for k in range(K):
            z[k] = Pz[k] = Gz[k] = 0.0
        score[0] = prior + log_row(q, s, used, noise_var, feature_var, new_rate)
        for code in range(1, 2**K):
            k = 0
            while not (code >> k) & 1:
                k += 1
            step = 1.0 - 2.0 * z[k]
            q += 2.0 * step * Pz[k] + gram_inv[k, k]
            s += 2.0 * step * (Gz[k] - b[k]) + gram[k, k]
            prior += step * log_odds[k]
            z[k] += step
            for j in range(K):
                Pz[j] += step * gram_inv[k, j]
                Gz[j] += step * gram[k, j]
            score[code] = prior + log_row(q, max(s, 0.0), used, noise_var, feature_var, new_rate)
        top = score.max()
        total = 0.0
        for code in range(2**K):
            weight = math.exp(score[code] - top)
            total += weight
            pattern = code ^ (code >> 1)
            for k in range(K):
                if (pattern >> k) & 1:
                    presence[n, k] += weight
        for k in range(K):
            presence[n, k] /= total
        log_density[n] = top + math.log(total)
    return presence, log_density


row_forms = jit(_row_forms)
log_row = jit(_log_row)
encode_rows = jit(_encode_rows)
