"""The draws of a row: its bits one by one or in groups, and the number of features that it alone has."""

import math

import numpy as np

from thali.kernels._jit import inlined, jit
from thali.kernels.scan import is_heads, next_of

_NEGLIGIBLE = 36.0  # nats below the largest term at which the tail of a sum is dropped (2e-16)
_MOST = 100_000  # new columns of a row


def _flip_bit(k, z, K, P, G, mu, n_cells, g, h, shrink, ee, Pz, Gz):
    """Flip bit k and keep Pz = P_out z, Gz = G_out z in step; mu (n_cells, K) of missing cells is taken out of G."""
    step = 1.0 - 2.0 * z[k]
    z[k] += step
    gk = step * g[k]
    t = step * (ee * g[k] - h[k])
    t_P = shrink * gk
    for j in range(K):
        Pz[j] += step * P[k, j] + t_P * g[j]
    for j in range(K):
        Gz[j] += step * G[k, j] - gk * h[j] + t * g[j]
    for c in range(n_cells):
        t = step * mu[c, k]
        for j in range(K):
            Gz[j] -= t * mu[c, j]


def _scan_bits(
    z, order, K, others, log_odds, P, G, mu, n_cells, g, h, shrink, ee, b, Pz, Gz, q, s, n_dims, precision, rng, work
):
    """One Gibbs scan of a row's bits in random order. Returns the new quadratic forms q and s.

    ell(q, s) = -n_dims/2 log(1 + q) - precision/2 s / (1 + q), with q = z P z' (+ own columns), s = |x - z mu|^2.
    Most bits stay, and that is decided for all of them at once without a transcendental function: log t <= t - 1 bounds
    the change of ell from above, exp(-d) >= (1 - d/16)^16 the chance to stay from below. Only the rest is evaluated,
    one by one; after a flip all are bounded anew. Of the row's `n_cells` missing cells, mu (n_cells, K) is taken out of
    G. `work` is room for 6 rows of 2 K numbers.
    """
    half = 0.5 * n_dims
    scale = 0.5 * precision
    u, u_bit, dP, dG, odds, sure = work[0], work[1], work[2], work[3], work[4], work[5]
    for i in range(2 * K):
        u[i] = rng.random()
    for k in range(K):
        order[k] = k
        dP[k] = P[k, k] + shrink * g[k] * g[k]
        dG[k] = G[k, k] - 2.0 * g[k] * h[k] + ee * g[k] * g[k]
        odds[k] = log_odds[others[k]]
    for i in range(n_cells):
        for k in range(K):
            dG[k] -= mu[i, k] * mu[i, k]
    for i in range(K):
        k = next_of(order, i, K, u[2 * i])
        u_bit[k] = u[2 * i + 1]
    i = 0
    while i < K:  # once, and again after each flip
        var = 1.0 + q
        w = 1.0 / var
        for k in range(K):
            step = 1.0 - 2.0 * z[k]
            v = 1.0 / (var + 2.0 * step * Pz[k] + dP[k])
            s_new = s + 2.0 * step * (Gz[k] - b[k]) + dG[k]
            # eq: own.bit-bound
            upper = half * (var * v - 1.0) + scale * (s * w - s_new * v) + step * odds[k]
            a = max(1.0 - 0.0625 * upper, 0.0)
            a *= a
            a *= a
            a *= a
            a *= a
            sure[k] = u_bit[k] * (1.0 + a)  # above 1: the bit stays
        while i < K:
            k = order[i]
            i += 1
            if sure[k] > 1.0:
                continue
            step = 1.0 - 2.0 * z[k]
            q_new = q + 2.0 * step * Pz[k] + dP[k]
            s_new = s + 2.0 * step * (Gz[k] - b[k]) + dG[k]
            v = 1.0 / (1.0 + q_new)
            # eq: DV09.bit-conditional
            delta = half * math.log(var * v) + scale * (s * w - s_new * v) + step * odds[k]
            if is_heads(delta, u_bit[k]):
                q = q_new
                s = s_new
                flip_bit(k, z, K, P, G, mu, n_cells, g, h, shrink, ee, Pz, Gz)
                break
    return q, s


def _scan_groups(
    z, order, group, K, others, log_odds, P, G, mu, n_cells, g, h, shrink, ee, b, Pz, Gz, q, s, n_dims, precision, rng
):
    """One Gibbs scan of a row's bits, `group` neighbours of `order` jointly. Returns the new quadratic forms q and s.

    Groups let overlapping features change places, which single bits cannot. With t_i = +-1 the flips of a subset F,

        q_F = q + 2 sum t_i Pz_i + sum t_i t_j P_ij,   s_F = s + 2 sum t_i (Gz_i - b_i) + sum t_i t_j G_ij,

    and P(F) ~ exp(ell(q_F, s_F) + sum t_i odds_i), over all 2^group subsets. As in `scan_bits` a bound decides that
    nothing flips without a transcendental function, where it can.
    """
    half = 0.5 * n_dims
    scale = 0.5 * precision
    n_subsets = 1 << group
    weight = np.empty(n_subsets)
    q_new = np.empty(n_subsets)
    s_new = np.empty(n_subsets)
    first = 0
    while first < K:
        size = min(group, K - first)
        n_subsets = 1 << size
        u = rng.random()
        var = 1.0 + q
        w = 1.0 / var
        total = 1.0
        for F in range(1, n_subsets):
            qF = q
            sF = s
            odds = 0.0
            for i in range(size):
                if (F >> i) & 1:
                    k = order[first + i]
                    step = 1.0 - 2.0 * z[k]
                    odds += step * log_odds[others[k]]
                    qF += 2.0 * step * Pz[k]
                    sF += 2.0 * step * (Gz[k] - b[k])
                    for o in range(i + 1):
                        if (F >> o) & 1:
                            j = order[first + o]
                            sign = step * (1.0 - 2.0 * z[j]) * (1.0 if o == i else 2.0)
                            qF += sign * (P[k, j] + shrink * g[k] * g[j])
                            G_kj = G[k, j] - g[k] * h[j] - h[k] * g[j] + ee * g[k] * g[j]
                            for c in range(n_cells):
                                G_kj -= mu[c, k] * mu[c, j]
                            sF += sign * G_kj
            v = 1.0 / (1.0 + qF)
            q_new[F] = qF
            s_new[F] = sF
            weight[F] = scale * (s * w - sF * v) + odds
            upper = half * (var * v - 1.0) + weight[F]
            a = max(1.0 - 0.0625 * upper, 1e-6)
            a *= a
            a *= a
            a *= a
            a *= a
            total += 1.0 / a if upper < 0.0 else np.inf
        chosen = 0
        if u * total >= 1.0:  # not decided by the bound
            top = 0.0
            for F in range(1, n_subsets):
                # eq: own.group-conditional
                weight[F] += half * math.log(var / (1.0 + q_new[F]))
                top = max(top, weight[F])
            weight[0] = 0.0
            total = 0.0
            for F in range(n_subsets):
                weight[F] = math.exp(weight[F] - top)
                total += weight[F]
            u *= total
            while chosen < n_subsets - 1 and u >= weight[chosen]:
                u -= weight[chosen]
                chosen += 1
        if chosen > 0:
            q = q_new[chosen]
            s = s_new[chosen]
            for i in range(size):
                if (chosen >> i) & 1:
                    flip_bit(order[first + i], z, K, P, G, mu, n_cells, g, h, shrink, ee, Pz, Gz)
        first += size
    return q, s


def _draw_new(q, s, n_dims, ridge, precision, rate, terms, u):
    """Number of columns that the row alone owns: p(j) ~ Poisson(j; rate) N(x; z mu, noise_var (1 + q + j/ridge)).

    Terms are summed until all further ones are negligible, so nothing is cut off. `terms` is room for them. A model
    that asks for _MOST is refused elsewhere; here it must come to an end.
    """
    if rate <= 0.0:
        return 0
    peak = precision * s / n_dims if n_dims > 0 else 0.0  # the likelihood falls once 1 + q + j/ridge is beyond this
    # eq: own.new-bound
    # no likelihood exceeds the one at v = peak, so exp(gain) expm1(rate) bounds sum_(j > 0) p(j) / p(0) from above
    gain = max(peak / (1.0 + q) - 1.0, 0.0)
    gain *= 0.25 * n_dims * gain
    # in turn exp(gain) <= 1 / (1 - gain) and expm1(rate) <= rate (1 + rate), which spares both in most rows
    if gain < 0.9 and rate < 1.0 and u * (1.0 - gain + rate * (1.0 + rate)) < 1.0 - gain:
        return 0
    if gain < 30.0 and u * (1.0 + math.expm1(rate) * math.exp(gain)) < 1.0:
        return 0
    log_rate = math.log(rate)
    log_factorial = 0.0
    top = -np.inf
    n_terms = 0
    while True:
        if n_terms == terms.size:
            longer = np.empty(2 * terms.size)
            for j in range(n_terms):
                longer[j] = terms[j]
            terms = longer
        if n_terms > 0:
            log_factorial += math.log(n_terms)
        v = 1.0 + q + n_terms / ridge
        # eq: DV09.new-features
        term = -0.5 * n_dims * math.log(v) - 0.5 * precision * s / v + n_terms * log_rate - log_factorial
        terms[n_terms] = term
        top = max(top, term)
        n_terms += 1
        best = max(v, peak)  # of the variances to come
        rest = -0.5 * n_dims * math.log(best) - 0.5 * precision * s / best + n_terms * log_rate - log_factorial
        if (n_terms > rate and rest < top - _NEGLIGIBLE) or n_terms == _MOST:
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
    return n_terms - 1


flip_bit = inlined(_flip_bit)
scan_bits = inlined(_scan_bits)
scan_groups = jit(_scan_groups)
draw_new = inlined(_draw_new)
