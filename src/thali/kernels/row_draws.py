"""The two draws of a row: its bits, and the number of features that it alone has."""

import math

import numpy as np

from thali.kernels._jit import jit

_NEGLIGIBLE = 36.0  # nats below the largest term at which the tail of a sum is dropped (2e-16)


def _scan_bits(z, order, K, others, log_odds, P, G, p, g, h, ee, b, Pz, Gz, q, s, n_dims, precision, rng):
    """One Gibbs scan of a row's bits in random order. Returns the new quadratic forms q and s.

    ell(q, s) = -n_dims/2 log(1 + q) - precision/2 s / (1 + q), with q = z P z' (+ own columns), s = |x - z mu|^2.
    """
    for i in range(K):
        order[i] = i
    half = 0.5 * n_dims
    current = -half * math.log(1.0 + q) - 0.5 * precision * s / (1.0 + q)
    for i in range(K):
        j = i + int(rng.random() * (K - i))
        k = order[j]
        order[j] = order[i]
        u = rng.random()
        step = 1.0 - 2.0 * z[k]
        q_new = q + 2.0 * step * Pz[k] + P[k, k] + g[k] * p[k]
        s_new = s + 2.0 * step * (Gz[k] - b[k]) + G[k, k] - 2.0 * g[k] * h[k] + ee * g[k] * g[k]
        v = 1.0 / (1.0 + q_new)
        proposed = half * math.log(v) - 0.5 * precision * s_new * v
        # eq: DV09.bit-conditional
        delta = proposed - current + step * log_odds[others[k]]
        if delta > 40.0 or (delta > -40.0 and u * (1.0 + math.exp(-delta)) < 1.0):
            z[k] += step
            q = q_new
            s = s_new
            current = proposed
            gk = step * g[k]
            t = step * (ee * g[k] - h[k])
            for j in range(K):
                Pz[j] += step * P[k, j] + gk * p[j]
                Gz[j] += step * G[k, j] - gk * h[j] + t * g[j]
    return q, s


def _draw_new(q, s, n_dims, ridge, precision, rate, terms, u):
    """Number of columns that the row alone owns: p(j) ~ Poisson(j; rate) N(x; z mu, noise_var (1 + q + j/ridge)).

    Terms are summed until they are negligible and falling, so nothing is cut off. `terms` is room for them.
    """
    if rate <= 0.0:
        return 0
    peak = precision * s / n_dims if n_dims > 0 else 0.0  # the likelihood falls once 1 + q + j/ridge is beyond this
    log_rate = math.log(rate)
    log_factorial = 0.0
    top = -np.inf
    n_terms = 0
    while True:
        if n_terms == terms.size:
            longer = np.empty(2 * terms.size)
            longer[:n_terms] = terms
            terms = longer
        if n_terms > 0:
            log_factorial += math.log(n_terms)
        v = 1.0 + q + n_terms / ridge
        # eq: DV09.new-features
        term = -0.5 * n_dims * math.log(v) - 0.5 * precision * s / v + n_terms * log_rate - log_factorial
        terms[n_terms] = term
        top = max(top, term)
        n_terms += 1
        if v > peak and n_terms > rate and term < top - _NEGLIGIBLE:
            break
    total = 0.0
    for j in range(n_terms):
        terms[j] = math.exp(terms[j] - top)
        total += terms[j]
    u *= total
    for j in range(n_terms):
        u -= terms[j]
        if u < 0.0:
            return j
    return 0


scan_bits = jit(_scan_bits)
draw_new = jit(_draw_new)
