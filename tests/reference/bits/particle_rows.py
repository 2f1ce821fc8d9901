"""Twin of thali.kernels.bits.particle_rows: quadratic forms from scratch, patterns as vectors, sums as sums."""

import itertools

import numpy as np

EXACT, ROUGH = 36.0, 12.0


def terms(q, s, law, negligible):
    """log of each term of L(q, s), without log p(0)."""
    n_dims, ridge, precision, _, a, b = law
    s = max(s, 0.0)

    def log_density(v):
        return -0.5 * n_dims * np.log(v) - 0.5 * precision * s / v

    found, log_prior = [log_density(1 + q)], 0.0
    for j in itertools.count(1):
        ratio = a + b / j
        if ratio <= 0:
            break
        log_prior += np.log(ratio)
        v = 1 + q + j / ridge
        best = max(v, precision * s / n_dims) if n_dims else v
        if ratio < 1 and log_prior + log_density(best) < max(found) - negligible:
            break
        found.append(log_prior + log_density(v))
    return np.array(found)


def log_row(q, s, law, negligible):
    return np.logaddexp.reduce(terms(q, s, law, negligible)) + law[3]


def draw_count(q, s, law, log_total, u):
    found = terms(q, s, law, EXACT)
    shares = np.exp(found - np.logaddexp.reduce(found))
    return int(min(np.searchsorted(np.cumsum(shares), u, side="right"), np.flatnonzero(shares > 1e-16).max()))


def draw_from_prior(z, K, odds, P, G, b, xx, rng):
    for k in range(K):
        z[k] = rng.random() < 1 / (1 + np.exp(-odds[k]))
    return forms(z[:K], K, P, G, b, xx)


def forms(z, K, P, G, b, xx):
    return z @ P[:K, :K] @ z, xx - 2 * z @ b[:K] + z @ G[:K, :K] @ z


def flip(k, z, K, P, G, Pz, Gz):
    z[k] = 1 - z[k]
    Pz[:K], Gz[:K] = P[:K, :K] @ z[:K], G[:K, :K] @ z[:K]


def upper(q, s, law):
    n_dims, _, precision, _, _, _ = law
    best = max(1 + q, precision * s / n_dims) if n_dims else 1 + q
    return -0.5 * n_dims * np.log(best) - 0.5 * precision * max(s, 0.0) / best


def climb(z, K, odds, P, G, b, xx, Pz, Gz, loss, law):
    z[:K] = 0
    for _ in range(4):
        improved = False
        for k in range(K):
            other = z[:K].copy()
            other[k] = 1 - other[k]
            here = log_row(*forms(z[:K], K, P, G, b, xx), law, ROUGH)
            gain = (1 - 2 * z[k]) * odds[k]
            loss[k] = here - gain - upper(*forms(other, K, P, G, b, xx), law)
            if loss[k] > 0:
                continue
            loss[k] = here - gain - log_row(*forms(other, K, P, G, b, xx), law, ROUGH)
            if loss[k] < -1e-9:
                z[:K], loss[k], improved = other, -loss[k], True
        if not improved:
            break
    Pz[:K], Gz[:K] = P[:K, :K] @ z[:K], G[:K, :K] @ z[:K]
    return forms(z[:K], K, P, G, b, xx)


def order_groups(K, group, loss, G, order):
    order[:K] = np.arange(K)
    for first in range(0, K, group):
        best = first + _first_best(-loss[order[first:K]])
        order[[first, best]] = order[[best, first]]
        seed = order[first]
        for place in range(first + 1, min(first + group, K)):
            rest = order[place:K]
            norm = np.diag(G)[rest] * G[seed, seed]
            like = np.where(norm > 0, G[rest, seed] ** 2 / np.where(norm > 0, norm, 1), 0.0)
            best = place + _first_best(like)
            order[[place, best]] = order[[best, place]]


def _first_best(values):
    """The largest, of equal ones the first."""
    best = 0
    for i, value in enumerate(values):
        if value > values[best] + 1e-9:
            best = i
    return best


def draw_group(z, members, K, odds, P, G, b, Pz, Gz, q, s, law, weight, q_new, s_new, rng):
    """With b.z taken out of s beforehand, |x|^2 = s + 2 b.z - z G z is what the rest of the row leaves."""
    xx = s + 2 * z[:K] @ b[:K] - z[:K] @ G[:K, :K] @ z[:K]
    patterns, scores, top = [], [], -np.inf
    for i in range(1 << len(members)):
        code = i ^ (i >> 1)
        other = z[:K].copy()
        for bit, k in enumerate(members):
            if (code >> bit) & 1:
                other[k] = 1 - other[k]
        q_i, s_i = forms(other, K, P, G, b, xx)
        prior = odds[:K] @ (other - z[:K])
        score = prior + upper(q_i, s_i, law)
        score = prior + log_row(q_i, s_i, law, ROUGH) if i == 0 or score > top - EXACT else -np.inf
        top = max(top, score)
        patterns.append(other)
        scores.append(score)
        weight[i], q_new[i], s_new[i] = score, q_i, s_i
    log_total = np.logaddexp.reduce(scores)
    shares = np.exp(np.array(scores) - log_total)
    chosen = int(min(np.searchsorted(np.cumsum(shares), rng.random(), side="right"), np.flatnonzero(shares).max()))
    z[:K] = patterns[chosen]
    Pz[:K], Gz[:K] = P[:K, :K] @ z[:K], G[:K, :K] @ z[:K]
    return q_new[chosen], s_new[chosen], scores[chosen] - log_total


def draw_row(z, K, odds, P, G, b, xx, law, group, work, order, rng):
    Pz, Gz, loss, weight, q_new, s_new = work
    if group == 0:
        q, s = draw_from_prior(z, K, odds, P, G, b, xx, rng)
        return q, s, log_row(q, s, law, EXACT), log_row(q, s, law, EXACT)
    q, s = climb(z, K, odds, P, G, b, xx, Pz, Gz, loss, law)
    order_groups(K, group, loss, G, order)
    log_proposal = 0.0
    for first in reversed(range(0, K, group)):
        members = order[first : min(first + group, K)]
        q, s, log_prob = draw_group(z, members, K, odds, P, G, b, Pz, Gz, q, s, law, weight, q_new, s_new, rng)
        log_proposal += log_prob
    log_prior = odds[:K] @ z[:K] - np.logaddexp(0, odds[:K]).sum()
    return q, s, log_row(q, s, law, EXACT), log_prior + log_row(q, s, law, EXACT) - log_proposal
