"""Posterior of a new row's weights, and its log density, given the features: X = V A + noise with V = Z * W.

Gibbs scans give presence, expected codes and some draws. The density is estimated by annealed importance sampling (Neal
2001) along a path from independent weights with the moments of those scans to the posterior.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.weights.slabs import draw_slab, log_slab, slab_moments

_SURE = 0.01  # the path begins with presences that are at least so far from 0 and 1
_MANY, _ANY = 64, 0.05  # nodes of which few are visited, and the share of them that is picked whatever the scans say


def _encode_scaled(
    x, seen, A, log_odds, noise_var, unknown_share, unknown_var, rate, precision, log_norm,
    n_scans, n_kept, n_paths, n_temps, rng,
):  # fmt: skip
    """One row x (D), of which the cells `seen` are known, given features A (K, D).

    log_odds (K) is the prior of each bit, (rate, precision, log_norm) the law of a weight (`slabs`). Features that A
    lacks add the variance unknown_var[j] with probability unknown_share[j]. A fifth of the scans is warm-up. Returns
    (presence, expected codes, n_kept draws of the codes and of the whole variance, log density). eq: own.encode-scaled.
    Cost O(K D + scans K^2).
    """
    K, n_dims = A.shape
    n_nodes = unknown_share.size
    presence, codes, kept, kept_var = np.zeros(K), np.zeros(K), np.zeros((n_kept, K)), np.zeros(n_kept)
    n_seen, square = 0, 0.0
    b = np.zeros(K)
    gram = np.zeros((K, K))
    for d in range(n_dims):
        if seen[d]:
            n_seen += 1
            square += x[d] * x[d]
            for k in range(K):
                b[k] += A[k, d] * x[d]
                for j in range(k + 1):
                    gram[k, j] += A[k, d] * A[j, d]
    for k in range(K):
        for j in range(k):
            gram[j, k] = gram[k, j]
    log_nodes = np.log(unknown_share)
    terms = np.zeros(n_nodes)
    if K == 0:
        for j in range(n_nodes):
            terms[j] = _log_node_(j, square, n_seen, noise_var, unknown_var, log_nodes)
        top = terms.max()
        density = top + math.log(np.exp(terms - top).sum()) - 0.5 * n_seen * math.log(2.0 * math.pi)
        for i in range(n_kept):
            kept_var[i] = noise_var + unknown_var[_pick_(terms, rng.random())]
        return presence, codes, kept, kept_var, density
    v, Gv = np.zeros(K), np.zeros(K)
    chance, centre, spread = np.full(K, 0.5), np.zeros(K), np.ones(K)  # where the path begins
    log_first = np.zeros(n_nodes)

    # --- the posterior itself
    node = 0
    warm = n_scans // 5
    first, second, visits = np.zeros(K), np.zeros(K), np.zeros(n_nodes)
    for scan in range(n_scans):
        tau = 1.0 / (noise_var + unknown_var[node])
        for k in range(K):
            pull, curve = tau * (b[k] - Gv[k] + v[k] * gram[k, k]), tau * gram[k, k]
            delta = log_odds[k] + log_slab(pull, curve, rate, precision, log_norm)
            p = 1.0 / (1.0 + math.exp(-delta)) if delta > -700.0 else 0.0
            if scan >= warm:
                mean, moment = slab_moments(pull, curve, rate, precision)
                presence[k] += p / (n_scans - warm)
                first[k] += p * mean
                second[k] += p * moment
                codes[k] += p * mean / (n_scans - warm)
            new = draw_slab(pull, curve, rate, precision, rng) if rng.random() < p else 0.0
            _change_(k, new - v[k], K, gram, Gv)
            v[k] = new
        node = _draw_node_(_residual_(v, b, Gv, square), n_seen, noise_var, unknown_var, log_nodes, terms, rng)
        if scan >= warm:
            if n_nodes > _MANY:  # by their probabilities: single visits would say too little
                top = terms.max()
                total = np.exp(terms - top).sum()
                for j in range(n_nodes):
                    visits[j] += math.exp(terms[j] - top) / total
            else:
                visits[node] += 1.0
            i = (scan - warm) * n_kept // (n_scans - warm)
            for k in range(K):
                kept[i, k] = v[k]
            kept_var[i] = noise_var + unknown_var[node]

    # --- the density, by a path from independent weights
    for k in range(K):
        total = max(presence[k] * (n_scans - warm), 1e-12)
        chance[k] = min(max(presence[k], _SURE), 1.0 - _SURE)
        centre[k] = first[k] / total
        spread[k] = max(second[k] / total - centre[k] ** 2, 1e-12)
    for j in range(n_nodes):
        if n_nodes > _MANY:
            log_first[j] = math.log((1.0 - _ANY) * visits[j] / (n_scans - warm) + _ANY / n_nodes)
        else:
            log_first[j] = math.log((visits[j] + 1.0) / (n_scans - warm + n_nodes))
    top = -np.inf
    sum_paths = 0.0
    for _ in range(n_paths):
        for k in range(K):
            v[k] = centre[k] + math.sqrt(spread[k]) * rng.standard_normal() if rng.random() < chance[k] else 0.0
        for k in range(K):
            Gv[k] = 0.0
        for k in range(K):
            if v[k] != 0.0:
                _change_(k, v[k], K, gram, Gv)
        u = rng.random()
        node = 0
        while node < n_nodes - 1 and u > math.exp(log_first[node]):
            u -= math.exp(log_first[node])
            node += 1
        log_weight = 0.0
        for t in range(1, n_temps + 1):
            gap = -log_first[node] + log_nodes[node]
            for k in range(K):
                z_odds = log_odds[k]
                gap -= max(z_odds, 0.0) + math.log1p(math.exp(-abs(z_odds)))
                if v[k] != 0.0:
                    gap += z_odds - rate * abs(v[k]) - 0.5 * precision * v[k] * v[k] - log_norm
                    gap -= math.log(chance[k]) - 0.5 * math.log(2.0 * math.pi * spread[k])
                    gap += 0.5 * (v[k] - centre[k]) ** 2 / spread[k]
                else:
                    gap -= math.log1p(-chance[k])
            residual = _residual_(v, b, Gv, square)
            var = noise_var + unknown_var[node]
            gap -= 0.5 * n_seen * math.log(2.0 * math.pi * var) + 0.5 * residual / var
            log_weight += gap / n_temps
            if t == n_temps:
                break
            heat = t / n_temps
            for k in range(K):
                curve = heat * (gram[k, k] / var + precision) + (1.0 - heat) / spread[k]
                pull = heat * (b[k] - Gv[k] + v[k] * gram[k, k]) / var + (1.0 - heat) * centre[k] / spread[k]
                start = (
                    math.log(chance[k] / (1.0 - chance[k]))
                    - 0.5 * math.log(2.0 * math.pi * spread[k])
                    - 0.5 * centre[k] ** 2 / spread[k]
                )
                delta = heat * (log_odds[k] - log_norm) + (1.0 - heat) * start
                delta += log_slab(pull, curve, heat * rate, 0.0, 0.0)
                p = 1.0 / (1.0 + math.exp(-delta)) if delta > -700.0 else 0.0
                new = draw_slab(pull, curve, heat * rate, 0.0, rng) if rng.random() < p else 0.0
                _change_(k, new - v[k], K, gram, Gv)
                v[k] = new
            residual = _residual_(v, b, Gv, square)
            for j in range(n_nodes):
                terms[j] = heat * _log_node_(j, residual, n_seen, noise_var, unknown_var, log_nodes)
                terms[j] += (1.0 - heat) * log_first[j]
            node = _pick_(terms, rng.random())
        if log_weight > top:
            sum_paths = sum_paths * math.exp(top - log_weight) + 1.0
            top = log_weight
        else:
            sum_paths += math.exp(log_weight - top)
    return presence, codes, kept, kept_var, top + math.log(sum_paths / n_paths)


def _change(k, step, K, gram, Gv):
    if step != 0.0:
        for j in range(K):
            Gv[j] += step * gram[k, j]


def _residual(v, b, Gv, square):
    """|x - v A|^2 over the known cells."""
    for k in range(v.size):
        square += v[k] * (Gv[k] - 2.0 * b[k])
    return max(square, 0.0)


def _log_node(j, residual, n_seen, noise_var, unknown_var, log_nodes):
    var = noise_var + unknown_var[j]
    return log_nodes[j] - 0.5 * n_seen * math.log(var) - 0.5 * residual / var


def _draw_node(residual, n_seen, noise_var, unknown_var, log_nodes, terms, rng):
    for j in range(terms.size):
        terms[j] = _log_node_(j, residual, n_seen, noise_var, unknown_var, log_nodes)
    return _pick_(terms, rng.random())


def _pick(terms, u):
    """An index with probability ~ exp(terms)."""
    top = terms.max()
    total = 0.0
    for j in range(terms.size):
        total += math.exp(terms[j] - top)
    u *= total
    for j in range(terms.size):
        u -= math.exp(terms[j] - top)
        if u < 0.0:
            return j
    return terms.size - 1


_change_ = jit(_change)
_residual_ = jit(_residual)
_log_node_ = jit(_log_node)
_pick_ = jit(_pick)
_draw_node_ = jit(_draw_node)
encode_scaled = jit(_encode_scaled)
