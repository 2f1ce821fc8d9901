"""Mean field of counts x_nd ~ Poisson(sum_k s_nk w_nk A_kd), row by row: q(z), q(w), and the allocation of the counts.

Each kernel takes the non-zero counts of row n at start[n]:start[n+1] (dims, counts), its missing cells likewise
(missing_start, missing_dim), `loadings` (n_dims, K), exp(E log A_kd) up to a factor for each dim, and `exposure` (K,),
the sum of E A_kd over dims; `mean` (n_dims, K), E A_kd, is read at missing cells only. A count is shared among the
features in proportion to exp(E log s w) loadings, always the optimum: `code` is the first factor.
"""

import math

import numpy as np

from thali.kernels._jit import inlined, jit

_EDGE = 1e-12  # of q(z)
_LOST = 1e-4  # a share of what it was, below which a running sum has lost digits and is made anew
_TRIALS = 3  # updates of a weight before its bit is judged


def _digamma(x):
    """Derivative of log gamma, to 1e-13."""
    total = 0.0
    while x < 8.0:
        total -= 1.0 / x
        x += 1.0
    t = 1.0 / (x * x)
    tail = t * (1 / 12 - t * (1 / 120 - t * (1 / 252 - t * (1 / 240 - t * (1 / 132 - t * 691 / 32760)))))
    return total + math.log(x) - 0.5 / x - tail


def _chance(log_odds):
    """The probability with these log-odds, away from 0 and 1."""
    p = 1.0 / (1.0 + math.exp(-log_odds)) if log_odds > -700.0 else 0.0
    return min(max(p, _EDGE), 1.0 - _EDGE)


def _log_code(shape, on, off, z_prob, log_leak):
    """E log s w."""
    return digamma(shape) - z_prob * math.log(on) - (1.0 - z_prob) * (math.log(off) - log_leak)


def _gather(cells, loadings, own):
    """own[k, i]: loadings of the row's i-th non-zero count."""
    for i in range(cells.size):
        for k in range(loadings.shape[1]):
            own[k, i] = loadings[cells[i], k]


def _share(values, own, code, K, total, ratio):
    """total[i] = sum_k code[k] own[k, i], ratio[i] = count / total."""
    n = values.size
    total[:n] = 0.0
    for k in range(K):
        if code[k] > 0.0:
            for i in range(n):
                total[i] += code[k] * own[k, i]
    for i in range(n):
        ratio[i] = values[i] / total[i]


def _change(values, own, code, K, k, new, total, ratio):
    """As `share` after code[k] has become `new`."""
    step, lost = new - code[k], False
    code[k] = new
    for i in range(values.size):
        before = total[i]
        total[i] += step * own[k, i]
        lost |= total[i] < _LOST * before
        ratio[i] = values[i] / total[i]
    if lost:
        share(values, own, code, K, total, ratio)


def _seen_exposure(exposure, mean, hidden, k):
    """Sum of E A_kd over the observed dims of a row."""
    total = exposure[k]
    for d in hidden:
        total -= mean[d, k]
    return max(total, 0.0)


def _joint_rows(
    start, dims, counts, missing_start, missing_dim, loadings, mean, exposure, log_odds, shape, rate, leak,
    n_passes, z_prob, w_shape, w_on, w_off,
):  # fmt: skip
    """q(z, w) of each row and feature in turn, in place: q(w | z) = Gamma(w_shape, w_on or w_off), weights a priori
    Gamma(shape, rate), s = z + (1 - z) leak.

    Cost O(non-zeros K) a pass.
    """
    N, K = z_prob.shape
    most = np.max(start[1:] - start[:-1])
    own = np.empty((K, most), loadings.dtype)
    total, ratio = np.empty(most, loadings.dtype), np.empty(most, loadings.dtype)
    code, log_leak = np.empty(K), math.log(leak)
    for n in range(N):
        cells, values = dims[start[n] : start[n + 1]], counts[start[n] : start[n + 1]]
        hidden = missing_dim[missing_start[n] : missing_start[n + 1]]
        gather(cells, loadings, own)
        for k in range(K):
            code[k] = math.exp(log_code(w_shape[n, k], w_on[n, k], w_off[n, k], z_prob[n, k], log_leak))
        for _ in range(n_passes):
            share(values, own, code, K, total, ratio)
            for k in range(K):
                c = 0.0
                for i in range(cells.size):
                    c += own[k, i] * ratio[i]
                c *= code[k]
                seen = seen_exposure(exposure, mean, hidden, k)
                on, off = rate + seen, rate + leak * seen
                # eq: own.counts-joint
                z = chance(log_odds[k] - c * log_leak - (shape + c) * math.log(on / off))
                z_prob[n, k], w_shape[n, k], w_on[n, k], w_off[n, k] = z, shape + c, on, off
                change(values, own, code, K, k, math.exp(log_code(shape + c, on, off, z, log_leak)), total, ratio)


def _independent_rows(
    start, dims, counts, missing_start, missing_dim, loadings, mean, exposure, log_odds, shape, rate, leak,
    n_passes, z_prob, w_shape, w_on, w_off,
):  # fmt: skip
    """As `joint_rows` with q(z) q(w): all weights of a row, then its bits in turn. w_on = w_off."""
    N, K = z_prob.shape
    most = np.max(start[1:] - start[:-1])
    own = np.empty((K, most), loadings.dtype)
    total, ratio = np.empty(most, loadings.dtype), np.empty(most, loadings.dtype)
    code, log_leak = np.empty(K), math.log(leak)
    for n in range(N):
        cells, values = dims[start[n] : start[n + 1]], counts[start[n] : start[n + 1]]
        hidden = missing_dim[missing_start[n] : missing_start[n + 1]]
        gather(cells, loadings, own)
        for k in range(K):
            code[k] = math.exp(log_code(w_shape[n, k], w_on[n, k], w_off[n, k], z_prob[n, k], log_leak))
        for _ in range(n_passes):
            share(values, own, code, K, total, ratio)
            for k in range(K):
                c = 0.0
                for i in range(cells.size):
                    c += own[k, i] * ratio[i]
                z = z_prob[n, k]
                # eq: PCB11.counts-weights
                w_shape[n, k] = shape + code[k] * c
                w_on[n, k] = rate + (z + (1.0 - z) * leak) * seen_exposure(exposure, mean, hidden, k)
                w_off[n, k] = w_on[n, k]
                code[k] = math.exp(log_code(w_shape[n, k], w_on[n, k], w_on[n, k], z, log_leak))
            share(values, own, code, K, total, ratio)
            for k in range(K):
                c = 0.0
                for i in range(cells.size):
                    c += own[k, i] * ratio[i]
                c *= code[k]
                seen = seen_exposure(exposure, mean, hidden, k)
                # eq: PCB11.counts-bits
                z = chance(log_odds[k] - (1.0 - leak) * w_shape[n, k] / w_on[n, k] * seen - c * log_leak)
                z_prob[n, k] = z
                new = math.exp(log_code(w_shape[n, k], w_on[n, k], w_on[n, k], z, log_leak))
                change(values, own, code, K, k, new, total, ratio)


def _hard_rows(
    start, dims, counts, missing_start, missing_dim, loadings, mean, exposure, log_odds, shape, rate,
    n_passes, z_prob, w_shape, w_on,
):  # fmt: skip
    """z and q(w) of each row and feature in turn, in place: a feature is on if the bound is higher so, with its weight
    as it would then be; the weight of one that is off is as in its prior.

    Cost O(non-zeros K) a pass.
    """
    N, K = z_prob.shape
    most = np.max(start[1:] - start[:-1])
    own = np.empty((K, most), loadings.dtype)
    total, others = np.empty(most), np.empty(most)
    code = np.empty(K)
    for n in range(N):
        cells, values = dims[start[n] : start[n + 1]], counts[start[n] : start[n + 1]]
        hidden = missing_dim[missing_start[n] : missing_start[n + 1]]
        gather(cells, loadings, own)
        size, n_on = 0.0, 0.0
        for i in range(cells.size):
            size += values[i]
        for k in range(K):
            code[k] = math.exp(digamma(w_shape[n, k])) / w_on[n, k] if z_prob[n, k] > 0.5 else 0.0
            n_on += z_prob[n, k]
        for _ in range(n_passes):
            total[: cells.size] = 0.0
            for k in range(K):
                if code[k] > 0.0:
                    for i in range(cells.size):
                        total[i] += code[k] * own[k, i]
            for k in range(K):
                lost = False
                for i in range(cells.size):
                    others[i] = total[i] - code[k] * own[k, i]
                    lost |= others[i] < _LOST * total[i]
                if lost and code[k] > 0.0:
                    others[: cells.size] = 0.0
                    for j in range(K):
                        if j != k and code[j] > 0.0:
                            for i in range(cells.size):
                                others[i] += code[j] * own[j, i]
                on = rate + seen_exposure(exposure, mean, hidden, k)
                a = w_shape[n, k] if code[k] > 0.0 else shape + size / (n_on + 1.0)
                new = math.exp(digamma(a)) / on
                for _ in range(_TRIALS):
                    c = 0.0
                    for i in range(cells.size):
                        part = new * own[k, i]
                        if part > 0.0:
                            c += values[i] * part / (others[i] + part)
                    a = shape + c
                    new = math.exp(digamma(a)) / on
                gain = log_odds[k] + math.lgamma(a) - math.lgamma(shape) + shape * math.log(rate) - a * math.log(on)
                gain -= (a - shape) * (math.log(new))
                for i in range(cells.size):
                    part = new * own[k, i]
                    if part > 0.0:
                        # eq: PCB11.counts-hard
                        gain += values[i] * math.log1p(part / others[i]) if others[i] > 0.0 else math.inf
                n_on -= z_prob[n, k]
                z_prob[n, k] = 1.0 if gain > 0.0 else 0.0
                n_on += z_prob[n, k]
                w_shape[n, k], w_on[n, k] = (a, on) if gain > 0.0 else (shape, rate)
                code[k] = new if gain > 0.0 else 0.0
                for i in range(cells.size):
                    total[i] = others[i] + code[k] * own[k, i]


def _allocate(start, dims, counts, loadings, code, allocated):
    """Add to allocated (n_dims, K) the counts that each feature gets, over `loadings`, given code (n_rows, K).

    Returns the sum of count log(sum_k code_nk loadings_dk): -inf if a count has no feature. Cost O(non-zeros K).
    """
    N, K = code.shape
    log_rate = 0.0
    for n in range(N):
        for i in range(start[n], start[n + 1]):
            d, total = dims[i], 0.0
            for k in range(K):
                total += code[n, k] * loadings[d, k]
            if total <= 0.0:
                return -math.inf
            log_rate += counts[i] * math.log(total)
            ratio = counts[i] / total
            for k in range(K):
                allocated[d, k] += ratio * code[n, k]
    return log_rate


digamma = inlined(_digamma)
chance = inlined(_chance)
log_code = inlined(_log_code)
gather = inlined(_gather)
share = jit(_share)
change = inlined(_change)
seen_exposure = inlined(_seen_exposure)
joint_rows = jit(_joint_rows)
independent_rows = jit(_independent_rows)
hard_rows = jit(_hard_rows)
allocate = jit(_allocate)
