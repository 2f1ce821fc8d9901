"""Posterior of one new row's bits given the features' posterior, and the row's log predictive density.

The sum over bit patterns is taken over a beam: features are decided one after another, the largest first, and the best
patterns so far are kept. With 2^K <= width nothing is dropped and the result is exact.
"""

import math

import numpy as np

from thali.kernels._jit import jit

_LOG_2PI = math.log(2.0 * math.pi)


def _encode_rows(X, observed, features, gram_inv, log_odds, new_rate, noise_var, feature_var, width):
    """presence[n, k] = P(z_nk = 1 | x_n) and log p(x_n), over the observed cells of each row on its own.

    x | z ~ sum_j Poisson(j; new_rate) N(z mu, noise_var (1 + z P z') + j feature_var), z_k ~ Bernoulli by log_odds[k].
    eq: own.encode. Cost O(K^2 D + width K^2) per row.
    """
    n_rows, n_dims = X.shape
    K = features.shape[0]
    presence = np.zeros((n_rows, K))
    log_density = np.zeros(n_rows)
    full_gram = np.dot(features, features.T)
    gram = np.zeros((K, K))
    b = np.zeros(K)
    order = np.zeros(K, np.int64)
    size = np.zeros(K)
    for k in range(K):
        size[k] = -full_gram[k, k]
    order[:] = np.argsort(size)
    log_none = 0.0  # log prior probability of having no feature at all
    for k in range(K):
        log_none -= (
            math.log1p(math.exp(log_odds[k])) if log_odds[k] < 0 else log_odds[k] + math.log1p(math.exp(-log_odds[k]))
        )
    most_new = 1 + int(new_rate + 10.0 * math.sqrt(new_rate) + 10.0)

    bits = np.zeros((2 * width, K), np.uint8)
    q = np.zeros(2 * width)
    s = np.zeros(2 * width)
    prior = np.zeros(2 * width)
    score = np.zeros(2 * width)
    for n in range(n_rows):
        used = 0
        xx = 0.0
        for d in range(n_dims):
            if observed[n, d]:
                used += 1
                xx += X[n, d] * X[n, d]
        for k in range(K):
            b[k] = 0.0
            for d in range(n_dims):
                if observed[n, d]:
                    b[k] += features[k, d] * X[n, d]
            for j in range(k + 1):
                if used == n_dims:
                    gram[k, j] = full_gram[k, j]
                else:
                    a = 0.0
                    for d in range(n_dims):
                        if observed[n, d]:
                            a += features[k, d] * features[j, d]
                    gram[k, j] = a
                gram[j, k] = gram[k, j]
        half = 0.5 * used

        count = 1
        bits[0] = 0
        q[0] = 0.0
        s[0] = xx
        prior[0] = log_none
        for level in range(K):
            k = order[level]
            for i in range(count):
                child = count + i
                Pz = 0.0
                Gz = 0.0
                for j in range(K):
                    bits[child, j] = bits[i, j]
                    if bits[i, j]:
                        Pz += gram_inv[k, j]
                        Gz += gram[k, j]
                bits[child, k] = 1
                q[child] = q[i] + 2.0 * Pz + gram_inv[k, k]
                s[child] = s[i] + 2.0 * (Gz - b[k]) + gram[k, k]
                prior[child] = prior[i] + log_odds[k]
            count *= 2
            if count > width:
                for i in range(count):
                    v = 1.0 + q[i]
                    score[i] = prior[i] - half * math.log(v) - 0.5 * s[i] / (noise_var * v)
                best = np.argsort(-score[:count])[:width]
                best.sort()  # keeps parents before children, so copying upwards in place is safe
                for i in range(width):
                    bits[i] = bits[best[i]]
                    q[i] = q[best[i]]
                    s[i] = s[best[i]]
                    prior[i] = prior[best[i]]
                count = width

        top = -np.inf
        for i in range(count):  # sum over the number of features that only this row would have
            largest = -np.inf
            total = 0.0
            log_poisson = -new_rate
            for j in range(most_new):
                if j > 0:
                    if new_rate <= 0.0:
                        break
                    log_poisson += math.log(new_rate / j)
                v = noise_var * (1.0 + q[i]) + j * feature_var
                term = log_poisson - half * (_LOG_2PI + math.log(v)) - 0.5 * s[i] / v
                if term > largest:
                    total = total * math.exp(largest - term) + 1.0
                    largest = term
                else:
                    total += math.exp(term - largest)
            score[i] = prior[i] + largest + math.log(total)
            top = max(top, score[i])
        total = 0.0
        for i in range(count):
            weight = math.exp(score[i] - top)
            total += weight
            for k in range(K):
                if bits[i, k]:
                    presence[n, k] += weight
        for k in range(K):
            presence[n, k] /= total
        log_density[n] = top + math.log(total)
    return presence, log_density


encode_rows = jit(_encode_rows)
