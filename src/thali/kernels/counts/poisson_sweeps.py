"""Gibbs sweeps over the rows of V = Z * W for counts X ~ Poisson(V A), with the features A drawn beside V.

A bit is drawn with its weight, and with the allocation of the row's counts to features summed out, by an independence
Metropolis step from a proposal that is near the conditional. Then the counts are allocated, and the weights drawn given
that. Non-zero counts and missing cells of a row are given as in `poisson_rows`.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.scan import next_of, slice_odds

_STEPS = 3  # towards the mode of a weight
_RARE = 0.02  # least probability with which either value of a bit is proposed
_LOST = 1e-6  # share of a sum below which what is left after a subtraction is summed anew


def _log_rates(values, others, own, w):
    """Sum of count log(others + w own)."""
    total = 0.0
    for i in range(values.size):
        total += values[i] * math.log(others[i] + w * own[i])
    return total


def _draw_code(values, others, own, exposure, log_odds, shape, rate, old, rng):
    """v, 0 or a weight, of one row and feature, by a step from `old` that keeps its conditional.

    others: rates of the row's non-zero counts without the feature; own: the feature there; exposure: its sum over the
    row's observed dims; log_odds: of the bit; weights are Gamma(shape, rate) a priori.
    """
    size, needed = 0.0, False
    for i in range(values.size):
        size += values[i]
        needed |= others[i] <= 0.0
    on = rate + exposure
    c, w = 0.0, (shape + 0.5 * size) / on
    for _ in range(_STEPS):
        c = 0.0
        for i in range(values.size):
            c += values[i] * w * own[i] / (others[i] + w * own[i])
        w = (shape + c) / on
    # the proposal is Gamma(shape + c, on) where the bit is on; ratio(w) = density / proposal, over the value at v = 0
    base = 0.0 if needed else log_rates(values, others, own, 0.0)
    scale = shape * math.log(rate) - math.lgamma(shape) - (shape + c) * math.log(on) + math.lgamma(shape + c) - base
    # eq: own.counts-code
    delta = log_odds + log_rates(values, others, own, w) - c * math.log(w) + scale
    chance = 1.0 if needed else min(max(1.0 / (1.0 + math.exp(-min(max(delta, -40.0), 40.0))), _RARE), 1.0 - _RARE)
    new = max(rng.standard_gamma(shape + c) / on, 1e-300) if rng.random() < chance else 0.0
    after, before = 0.0, 0.0
    if new > 0.0:
        after = log_odds + log_rates(values, others, own, new) - c * math.log(new) + scale - math.log(chance)
    else:
        after = -math.log(1.0 - chance)
    if old > 0.0:
        before = log_odds + log_rates(values, others, own, old) - c * math.log(old) + scale - math.log(chance)
    elif not needed:
        before = -math.log(1.0 - chance)
    else:
        before = -math.inf
    return new if math.log(1.0 - rng.random()) < after - before else old


def _birth_ratio(values, others, own, w, n_seen, shape, rate, a_shape, a_rate):
    """Log of p(w, a) p(x_n | with it) / p(x_n | without it) over the density of its proposal, n_seen observed dims.

    The proposal: w ~ Gamma(shape + sum e, rate + n_seen a_shape / a_rate), then a_d ~ Gamma(a_shape + e_d, a_rate + w)
    at observed dims, e_d = max(x_d - others_d, 0).
    """
    excess, total = 0.0, 0.0
    for i in range(values.size):
        e = max(values[i] - others[i], 0.0)
        excess += e
        total += math.lgamma(a_shape + e) - math.lgamma(a_shape) - e * math.log(a_rate + w) - e * math.log(own[i])
        total += values[i] * math.log1p(w * own[i] / others[i]) if others[i] > 0.0 else math.inf
    usual = n_seen * a_shape / a_rate
    total += n_seen * a_shape * math.log(a_rate / (a_rate + w))
    total += shape * math.log(rate) - math.lgamma(shape) + math.lgamma(shape + excess)
    # eq: own.counts-birth
    return total - (shape + excess) * math.log(rate + usual) - excess * math.log(w) + usual * w


def _row_rates(cells, V, n, K, A, skipped, rates):
    """Rates of the row's non-zero counts, one feature left out."""
    for i in range(cells.size):
        rates[i] = 0.0
    for k in range(K):
        if V[n, k] > 0.0 and k != skipped:
            for i in range(cells.size):
                rates[i] += V[n, k] * A[k, cells[i]]


def _without(cells, V, n, K, A, k, rates, others):
    """Rates without feature k, from the rates with it."""
    lost = False
    for i in range(cells.size):
        others[i] = rates[i] - V[n, k] * A[k, cells[i]]
        lost |= others[i] < _LOST * rates[i]
    if lost and V[n, k] > 0.0:
        row_rates(cells, V, n, K, A, k, others)


def _seen_total(A, totals, hidden, k):
    """Sum of a feature over the observed dims of a row."""
    total = totals[k]
    for d in hidden:
        total -= A[k, d]
    return max(total, 0.0)


def _allocate_row(cells, values, hidden, V, n, K, A, totals, shape, rate, parts, allocated, rng):
    """Share the row's counts among its features, then draw its weights.

    Returns the sum of part log v - log part! over cells and features.
    """
    log_parts = 0.0
    last = -1
    for k in range(K):
        parts[k] = 0.0
        last = k if V[n, k] > 0.0 else last
    for i in range(cells.size):
        total = 0.0
        for k in range(K):
            total += V[n, k] * A[k, cells[i]]
        left = int(values[i])
        for k in range(K):
            if left > 0 and V[n, k] > 0.0:
                own = V[n, k] * A[k, cells[i]]
                part = left if k == last else rng.binomial(left, min(own / total, 1.0))
                total -= own
                left -= part
                parts[k] += part
                allocated[k, cells[i]] += part
                log_parts -= math.lgamma(part + 1.0)
    for k in range(K):
        if V[n, k] > 0.0:
            on = rate + seen_total(A, totals, hidden, k)
            # eq: own.counts-weight
            V[n, k] = max(rng.standard_gamma(shape + parts[k]) / on, 1e-300)
            log_parts += parts[k] * math.log(V[n, k])
    return log_parts


def _poisson_sweep(
    start, dims, counts, missing_start, missing_dim, V, K, A, members, allocated, log_odds, new_rate, shape, rate,
    a_shape, a_rate, row, rng,
):  # fmt: skip
    """Draw v_n given A and all else, for n = row, ..., N-1. V, A, members, allocated change in place.

    V (N, capacity) and A (capacity, n_dims) have K columns and rows in use, members (capacity) are numbers of non-zeros
    of V; allocated (capacity, n_dims) is increased by the counts that each feature made. Returns (K, next row, the
    sum of `allocate_row`): next row < N means that there is no room for another column.
    Cost O(non-zeros K + N D / 2), the latter for births.
    """
    N, capacity = V.shape
    n_dims = A.shape[1]
    most = np.max(start[1:] - start[:-1])
    rates, others, own = np.empty(most), np.empty(most), np.empty(most)
    totals, parts, order = np.zeros(capacity), np.empty(capacity), np.zeros(capacity, np.int64)
    excess, is_seen = np.zeros(n_dims), np.ones(n_dims, np.bool_)
    for k in range(K):
        for d in range(n_dims):
            totals[k] += A[k, d]
    grows = log_odds[0] == -np.inf
    log_parts = 0.0
    for n in range(row, N):
        if grows and capacity == K:
            return K, n, log_parts
        cells, values = dims[start[n] : start[n + 1]], counts[start[n] : start[n + 1]]
        hidden = missing_dim[missing_start[n] : missing_start[n + 1]]
        row_rates(cells, V, n, K, A, -1, rates)

        # --- bits that other rows have too, in a random order
        for k in range(K):
            order[k] = k
        for i in range(K):
            k = next_of(order, i, K, rng.random())
            old = V[n, k]
            m = members[k] - (1 if old > 0.0 else 0)
            if grows and m == 0:
                continue
            without(cells, V, n, K, A, k, rates, others)
            for j in range(cells.size):
                own[j] = A[k, cells[j]]
            seen = seen_total(A, totals, hidden, k)
            new = draw_code(values, others[: cells.size], own, seen, log_odds[m], shape, rate, old, rng)
            V[n, k] = new
            members[k] = m + (1 if new > 0.0 else 0)
            for j in range(cells.size):
                rates[j] = others[j] + new * own[j]

        # --- a feature of this row alone is born, or one dies
        if grows and new_rate > 0.0:
            n_own, chosen = 0, -1
            for k in range(K):
                if members[k] == 1 and V[n, k] > 0.0:
                    n_own += 1
                    if rng.random() * n_own < 1.0:
                        chosen = k
            n_seen = n_dims - hidden.size
            if rng.random() < 0.5:
                for d in hidden:
                    is_seen[d] = False
                total = 0.0
                for i in range(cells.size):
                    excess[cells[i]] = max(values[i] - rates[i], 0.0)
                    total += excess[cells[i]]
                w = max(rng.standard_gamma(shape + total) / (rate + n_seen * a_shape / a_rate), 1e-300)
                totals[K] = 0.0
                for d in range(n_dims):
                    value = rng.standard_gamma(a_shape + excess[d]) / (a_rate + (w if is_seen[d] else 0.0))
                    A[K, d] = max(value, 1e-300)
                    totals[K] += A[K, d]
                    excess[d] = 0.0
                    is_seen[d] = True
                for i in range(cells.size):
                    own[i] = A[K, cells[i]]
                ratio = birth_ratio(values, rates, own, w, n_seen, shape, rate, a_shape, a_rate)
                if math.log(1.0 - rng.random()) < ratio + math.log(new_rate / (n_own + 1.0)):
                    V[n, K] = w
                    members[K] = 1
                    for d in range(n_dims):
                        allocated[K, d] = 0.0
                    K += 1
            elif chosen >= 0:
                without(cells, V, n, K, A, chosen, rates, others)
                for i in range(cells.size):
                    own[i] = A[chosen, cells[i]]
                ratio = birth_ratio(values, others, own, V[n, chosen], n_seen, shape, rate, a_shape, a_rate)
                if math.log(1.0 - rng.random()) < -ratio - math.log(new_rate / n_own):
                    K -= 1
                    members[chosen] = members[K]
                    totals[chosen] = totals[K]
                    V[n, chosen] = 0.0
                    for j in range(N):
                        V[j, chosen] = V[j, K]
                        V[j, K] = 0.0
                    for d in range(n_dims):
                        A[chosen, d] = A[K, d]
                        allocated[chosen, d] = allocated[K, d]

        # --- counts to features, and the weights given them
        log_parts += allocate_row(cells, values, hidden, V, n, K, A, totals, shape, rate, parts, allocated, rng)
    return K, N, log_parts


def _poisson_slice_sweep(
    start, dims, counts, missing_start, missing_dim, V, A, chances, kinds, sizes, level, allocated, shape, rate, rng
):  # fmt: skip
    """As `poisson_sweep` with the probability of each bit in `chances` (n_kinds, K), of which row n has those of
    kinds[n], and no column born or dying.

    Bits of columns whose size is below `level` stay as they are, though not their weights. The law of a slice below
    the smallest of `sizes` (K) in use is kept. Returns the sum of `allocate_row`.
    """
    N, K = V.shape
    most = np.max(start[1:] - start[:-1])
    rates, others, own = np.empty(most), np.empty(most), np.empty(most)
    totals, parts, order = np.zeros(K), np.empty(K), np.zeros(K, np.int64)
    members = np.zeros(K, np.int64)
    for k in range(K):
        for d in range(A.shape[1]):
            totals[k] += A[k, d]
        for n in range(N):
            members[k] += 1 if V[n, k] > 0.0 else 0
    log_parts = 0.0
    for n in range(N):
        cells, values = dims[start[n] : start[n + 1]], counts[start[n] : start[n + 1]]
        hidden = missing_dim[missing_start[n] : missing_start[n + 1]]
        row_rates(cells, V, n, K, A, -1, rates)
        for k in range(K):
            order[k] = k
        for i in range(K):
            k = next_of(order, i, K, rng.random())
            if sizes[k] < level:
                continue
            old = V[n, k]
            members[k] -= 1 if old > 0.0 else 0
            log_odds = slice_odds(chances[kinds[n], k], sizes, k, members[k], members)
            without(cells, V, n, K, A, k, rates, others)
            for j in range(cells.size):
                own[j] = A[k, cells[j]]
            seen = seen_total(A, totals, hidden, k)
            new = draw_code(values, others[: cells.size], own, seen, log_odds, shape, rate, old, rng)
            V[n, k] = new
            members[k] += 1 if new > 0.0 else 0
            for j in range(cells.size):
                rates[j] = others[j] + new * own[j]
        log_parts += allocate_row(cells, values, hidden, V, n, K, A, totals, shape, rate, parts, allocated, rng)
    return log_parts


log_rates = jit(_log_rates)
draw_code = jit(_draw_code)
birth_ratio = jit(_birth_ratio)
row_rates = jit(_row_rates)
without = jit(_without)
seen_total = jit(_seen_total)
allocate_row = jit(_allocate_row)
poisson_sweep = jit(_poisson_sweep)
poisson_slice_sweep = jit(_poisson_slice_sweep)
