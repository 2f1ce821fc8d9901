"""The bits of a new row for one particle, from a proposal whose probability is known, so that the weight is exact.

A row's evidence needs two quadratic forms of its bits, q = z P z' and s = |x - z mu|^2, with P = (Z'Z + r I)^-1 and
G = mu mu' of the rows before. The number j of features that no row before has is summed over, not drawn:

    L(q, s) = sum_j p(j) (1 + q + j / r)^(-D/2) exp(-s / (2 noise_var (1 + q + j / r))),   p(j) / p(j - 1) = a + b / j:

Poisson(rate) for an infinite prior (a = 0, b = rate), and Binomial(n, odds) for the n columns of a finite prior that no
row has yet (a = -odds, b = (n + 1) odds), which are all alike. The constants of L are held together:
law = (D, r, 1 / noise_var, log p(0), a, b), D being the number of observed dims of the row.
"""

import math

import numpy as np

from thali.kernels._jit import jit

_EXACT = 36.0  # nats below the largest term at which a sum is cut off
_ROUGH = 12.0  # the same for a proposal, whose probability may be anything as long as it is known
_TIE = 1e-9  # what differs by less is the same: columns with the same rows, but for rounding
_MOST = 100_000  # new features of a row
_PASSES = 4  # over the bits, in search of the pattern that the proposal is built around


def _log_row(q, s, law, negligible):
    """log L(q, s); further terms are left out once they are `negligible` nats below the largest, and falling."""
    n_dims, ridge, precision, log_none, a, b = law
    v = 1.0 + q
    half = 0.5 * n_dims
    scale = 0.5 * precision * max(s, 0.0)
    peak = scale / half if half > 0.0 else 0.0  # of the likelihood as a function of v
    top = -half * math.log(v) - scale / v
    log_prior = 0.0
    total = 1.0
    for j in range(1, _MOST):
        ratio = a + b / j
        if ratio <= 0.0:
            break
        log_prior += math.log(ratio)
        v += 1.0 / ridge
        if ratio < 1.0:  # p(j) falls from here on, and no likelihood to come exceeds that at max(v, peak)
            best = max(v, peak)
            if log_prior - half * math.log(best) - scale / best < top - negligible:
                break
        # eq: WG07.new-features
        term = log_prior - half * math.log(v) - scale / v
        if term > top:
            total = total * math.exp(top - term) + 1.0
            top = term
        else:
            total += math.exp(term - top)
    return top + math.log(total) + log_none


def _draw_count(q, s, law, log_total, u):
    """The number of new features given the other bits: j in proportion to its term of L = exp(log_total), by one u."""
    n_dims, ridge, precision, log_none, a, b = law
    v = 1.0 + q
    half = 0.5 * n_dims
    scale = 0.5 * precision * max(s, 0.0)
    log_prior = log_none - log_total
    likely = 0  # the largest number that is not out of the question
    for j in range(_MOST):
        if j > 0:
            ratio = a + b / j
            if ratio <= 0.0:
                break
            log_prior += math.log(ratio)
            v += 1.0 / ridge
        share = math.exp(log_prior - half * math.log(v) - scale / v)
        if share > 1e-16:
            likely = j
        u -= share
        if u < 0.0 or (share < 1e-30 and half * v > scale and j > b):
            break
    return likely


def _draw_from_prior(z, K, odds, P, G, b, xx, rng):
    """Each bit by its prior log-odds. Returns (q, s) of the row."""
    q = 0.0
    s = xx
    for k in range(K):
        z[k] = 1.0 if rng.random() * (1.0 + math.exp(-odds[k])) < 1.0 else 0.0
    for k in range(K):
        if z[k] != 0.0:
            s -= 2.0 * b[k]
            for j in range(K):
                q += z[j] * P[k, j]
                s += z[j] * G[k, j]
    return q, s


def _flip(k, z, K, P, G, Pz, Gz):
    """Flip bit k, with Pz = P z and Gz = G z kept in step."""
    step = 1.0 - 2.0 * z[k]
    z[k] += step
    for j in range(K):
        Pz[j] += step * P[k, j]
        Gz[j] += step * G[k, j]


def _upper(q, s, law):
    """An upper bound of log L: the best variance for this residual that is not below 1 + q."""
    half = 0.5 * law[0]
    scale = 0.5 * law[2] * max(s, 0.0)
    best = 1.0 + q
    if half > 0.0:
        best = max(best, scale / half)
    return -half * math.log(best) - scale / best


def _climb(z, K, odds, P, G, b, xx, Pz, Gz, loss, law):
    """A pattern that no single flip improves, or nearly: always the same for the same row and particle.

    Pz, Gz and `loss`, what a flip of each bit would cost in nats, are made on the way. Returns (q, s) of the pattern.
    """
    q = 0.0
    s = xx
    for k in range(K):
        z[k] = Pz[k] = Gz[k] = 0.0
    here = log_row(q, s, law, _ROUGH)
    for _ in range(_PASSES):
        improved = False
        for k in range(K):
            step = 1.0 - 2.0 * z[k]
            q_new = q + 2.0 * step * Pz[k] + P[k, k]
            s_new = s + 2.0 * step * (Gz[k] - b[k]) + G[k, k]
            loss[k] = here - step * odds[k] - upper(q_new, s_new, law)
            if loss[k] > 0.0:
                continue
            there = log_row(q_new, s_new, law, _ROUGH)
            loss[k] = here - step * odds[k] - there
            if loss[k] < -_TIE:
                flip(k, z, K, P, G, Pz, Gz)
                q = q_new
                s = s_new
                here = there
                loss[k] = -loss[k]
                improved = True
        if not improved:
            break
    return q, s


def _order_groups(K, group, loss, G, order):
    """Bits in groups of `group` neighbours of `order`: the most doubtful bit, and those most like it; and so on.

    Features that are alike can take each other's place, which is seen only if they are drawn together.
    """
    for k in range(K):
        order[k] = k
    for first in range(0, K, group):
        best = first
        for i in range(first, K):
            if loss[order[i]] < loss[order[best]] - _TIE:
                best = i
        seed = order[best]
        order[best] = order[first]
        order[first] = seed
        for place in range(first + 1, min(first + group, K)):
            best = place
            most = -1.0
            for i in range(place, K):
                k = order[i]
                norm = G[k, k] * G[seed, seed]
                like = G[k, seed] * G[k, seed] / norm if norm > 0.0 else 0.0
                if like > most + _TIE:
                    most = like
                    best = i
            k = order[best]
            order[best] = order[place]
            order[place] = k


def _draw_group(z, members, K, odds, P, G, b, Pz, Gz, q, s, law, weight, q_new, s_new, rng):
    """Draw the bits `members` jointly, the others as they are, by prior odds and L. Returns (q, s, log probability).

    Patterns are visited in the order of a Gray code, one flip apart; `weight`, `q_new`, `s_new` are room for them.
    """
    size = members.size
    n_patterns = 1 << size
    top = log_row(q, s, law, _ROUGH)
    weight[0] = top
    q_new[0] = q
    s_new[0] = s
    prior = 0.0
    for i in range(1, n_patterns):
        bit = 0
        while not (i >> bit) & 1:
            bit += 1
        k = members[bit]
        step = 1.0 - 2.0 * z[k]
        prior += step * odds[k]
        q += 2.0 * step * Pz[k] + P[k, k]
        s += 2.0 * step * (Gz[k] - b[k]) + G[k, k]
        z[k] += step
        for j in members:
            Pz[j] += step * P[k, j]
            Gz[j] += step * G[k, j]
        q_new[i] = q
        s_new[i] = s
        weight[i] = prior + upper(q, s, law)
        if weight[i] > top - _EXACT:
            # eq: own.particle-proposal
            weight[i] = prior + log_row(q, s, law, _ROUGH)
            top = max(top, weight[i])
        else:
            weight[i] = -np.inf
    total = 0.0
    for i in range(n_patterns):
        total += math.exp(weight[i] - top)
    u = rng.random() * total
    chosen = 0
    last = 0
    while chosen < n_patterns:
        share = math.exp(weight[chosen] - top)
        if share > 0.0:
            last = chosen
        u -= share
        if u < 0.0:
            break
        chosen += 1
    chosen = last
    # the code ended one flip (of the last member) from where it began
    k = members[size - 1]
    step = 1.0 - 2.0 * z[k]
    z[k] += step
    for j in members:
        Pz[j] += step * P[k, j]
        Gz[j] += step * G[k, j]
    code = chosen ^ (chosen >> 1)
    for bit in range(size):
        if (code >> bit) & 1:
            flip(members[bit], z, K, P, G, Pz, Gz)
    return q_new[chosen], s_new[chosen], weight[chosen] - top - math.log(total)


def _draw_row(z, K, odds, P, G, b, xx, law, group, work, order, rng):
    """Draw a row's bits. Returns (q, s, log L, log weight), the weight being prior(z) L(z) / proposal(z).

    group = 0 draws all of them from the prior. Otherwise `group` at a time are drawn given those before, with those to
    come at the pattern found by `climb`; with one group only, the weight does not depend on what is drawn.
    `work` is room for 6 rows of max(K, 2^group) numbers.
    """
    Pz, Gz, loss, weight, q_new, s_new = work[0], work[1], work[2], work[3], work[4], work[5]
    if group == 0:
        q, s = draw_from_prior(z, K, odds, P, G, b, xx, rng)
        total = log_row(q, s, law, _EXACT)
        # eq: WG07.weight
        return q, s, total, total
    q, s = climb(z, K, odds, P, G, b, xx, Pz, Gz, loss, law)
    order_groups(K, group, loss, G, order)
    log_proposal = 0.0
    n_groups = (K + group - 1) // group
    for i in range(n_groups - 1, -1, -1):
        members = order[i * group : min((i + 1) * group, K)]
        q, s, log_prob = draw_group(z, members, K, odds, P, G, b, Pz, Gz, q, s, law, weight, q_new, s_new, rng)
        log_proposal += log_prob
    log_prior = 0.0
    for k in range(K):
        log_prior -= math.log1p(math.exp(-abs(odds[k]))) + max(odds[k], 0.0)
        if z[k] != 0.0:
            log_prior += odds[k]
    total = log_row(q, s, law, _EXACT)
    # eq: own.particle-weight
    return q, s, total, log_prior + total - log_proposal


log_row = jit(_log_row)
draw_count = jit(_draw_count)
draw_from_prior = jit(_draw_from_prior)
flip = jit(_flip)
upper = jit(_upper)
climb = jit(_climb)
order_groups = jit(_order_groups)
draw_group = jit(_draw_group)
draw_row = jit(_draw_row)
