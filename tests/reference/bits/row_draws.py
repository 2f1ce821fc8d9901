"""Twin of `thali.kernels.bits.row_draws`: both values of a bit compared by their whole densities."""

import math

import numpy as np
from scipy.special import expit, gammaln, softmax


def _log_density(q, s, n_dims, precision):
    """log N of a residual with squared length s over n_dims cells of variance (1 + q) / precision, up to a constant."""
    return -0.5 * n_dims * np.log(1 + q) - 0.5 * precision * s / (1 + q)


def flip_bit(k, z, K, P, G, mu, n_cells, g, h, shrink, ee, Pz, Gz):
    z[k] = 1.0 - z[k]
    Pz[:K] = (P[:K, :K] + shrink * np.outer(g[:K], g[:K])) @ z[:K]
    G_out = G[:K, :K] - np.outer(g[:K], h[:K]) - np.outer(h[:K], g[:K]) + ee * np.outer(g[:K], g[:K])
    Gz[:K] = (G_out - mu[:n_cells, :K].T @ mu[:n_cells, :K]) @ z[:K]


def scan_bits(
    z, order, K, others, log_odds, P, G, mu, n_cells, g, h, shrink, ee, b, Pz, Gz, q, s, n_dims, precision, rng, work
):
    g, h = g[:K], h[:K]
    P_out = P[:K, :K] + shrink * np.outer(g, g)
    G_out = G[:K, :K] - np.outer(g, h) - np.outer(h, g) + ee * np.outer(g, g)
    G_out -= mu[:n_cells, :K].T @ mu[:n_cells, :K]

    def forms(z):
        return z @ P_out @ z, z @ G_out @ z - 2 * b[:K] @ z

    own_var = q - forms(z[:K])[0]
    xx = s - forms(z[:K])[1]

    def log_density(z):
        q, s = forms(z)
        return _log_density(own_var + q, xx + s, n_dims, precision)

    order[:K] = np.arange(K)
    for i in range(K):
        j = i + int(rng.random() * (K - i))
        order[i], order[j] = order[j], order[i]
        k = order[i]
        on, off = z[:K].copy(), z[:K].copy()
        on[k], off[k] = 1.0, 0.0
        logit = log_density(on) - log_density(off) + log_odds[others[k]]
        flip = expit(-logit) if z[k] else expit(logit)
        if rng.random() < flip:
            z[k] = 1.0 - z[k]
    Pz[:K] = P_out @ z[:K]
    Gz[:K] = G_out @ z[:K]
    q, s = forms(z[:K])
    return own_var + q, xx + s


def scan_groups(
    z, order, group, K, others, log_odds, P, G, mu, n_cells, g, h, shrink, ee, b, Pz, Gz, q, s, n_dims, precision, rng
):
    g, h = g[:K], h[:K]
    P_out = P[:K, :K] + shrink * np.outer(g, g)
    G_out = G[:K, :K] - np.outer(g, h) - np.outer(h, g) + ee * np.outer(g, g)
    G_out -= mu[:n_cells, :K].T @ mu[:n_cells, :K]
    own_var = q - z[:K] @ P_out @ z[:K]
    xx = s - z[:K] @ G_out @ z[:K] + 2 * b[:K] @ z[:K]
    for first in range(0, K, group):
        columns = order[first : min(first + group, K)]
        u = rng.random()
        log_p, candidates = [], []
        for flips in range(2 ** len(columns)):
            other = z[:K].copy()
            for i, k in enumerate(columns):
                if flips >> i & 1:
                    other[k] = 1 - z[k]
            q, s = own_var + other @ P_out @ other, xx + other @ G_out @ other - 2 * b[:K] @ other
            log_p.append(other @ log_odds[others[:K]] + _log_density(q, s, n_dims, precision))
            candidates.append((other, q, s))
        z[:K], q, s = candidates[int(np.searchsorted(np.cumsum(softmax(log_p)), u, side="right"))]
    Pz[:K] = P_out @ z[:K]
    Gz[:K] = G_out @ z[:K]
    return q, s


def draw_new(q, s, n_dims, ridge, precision, rate, terms, u):
    if rate <= 0:
        return 0
    j = np.arange(5000)
    log_poisson = j * math.log(rate) - gammaln(j + 1)
    log_likelihood = _log_density(q + j / ridge, s, n_dims, precision)
    return int(np.searchsorted(np.cumsum(softmax(log_poisson + log_likelihood)), u, side="right"))
