"""Readable twins of thali.kernels.counts.poisson_sweeps: the same draws in the same order, all sums anew."""

import math

import numpy as np
from scipy.special import expit, gammaln
from scipy.stats import gamma

STEPS, RARE = 3, 0.02


def log_rates(values, others, own, w):
    return float(np.sum(values * np.log(others + w * own)))


def draw_code(values, others, own, exposure, log_odds, shape, rate, old, rng):
    own, n = own[: len(values)], len(values)
    others, needed = others[:n], bool((others[:n] <= 0).any())
    on = rate + exposure
    w = (shape + 0.5 * values.sum()) / on
    for _ in range(STEPS):
        c = np.sum(values * w * own / (others + w * own))
        w = (shape + c) / on

    def ratio(v):
        """Density of v > 0 over its proposal, in logs, over the density of v = 0 if that is possible."""
        base = 0.0 if needed else log_rates(values, others, own, 0.0)
        log_prior, log_exposure = gamma.logpdf(v, shape, scale=1 / rate), -v * exposure
        log_proposal = gamma.logpdf(v, shape + c, scale=1 / on)
        return log_rates(values, others, own, v) + log_prior + log_exposure - log_proposal - base

    chance = 1.0 if needed else np.clip(expit(log_odds + ratio(w)), RARE, 1 - RARE)
    new = max(rng.standard_gamma(shape + c) / on, 1e-300) if rng.random() < chance else 0.0

    def weight(v):
        if v > 0:
            return log_odds + ratio(v) - math.log(chance)
        return -math.inf if needed else -math.log(1 - chance)

    return new if math.log(1 - rng.random()) < weight(new) - weight(old) else old


def birth_ratio(values, others, own, w, n_seen, shape, rate, a_shape, a_rate):
    n = len(values)
    others, own = others[:n], own[:n]
    excess = np.maximum(values - others, 0.0)
    if (others <= 0).any():
        return math.inf
    usual = n_seen * a_shape / a_rate
    total = gamma.logpdf(w, shape, scale=1 / rate)
    total -= gamma.logpdf(w, shape + excess.sum(), scale=1 / (rate + usual))
    total += np.sum(gamma.logpdf(own, a_shape, scale=1 / a_rate))
    total -= np.sum(gamma.logpdf(own, a_shape + excess, scale=1 / (a_rate + w)))
    total += np.sum(values * np.log((others + w * own) / others)) - w * own.sum()
    # at dims without counts: exp(-w a) Gamma(a; a_shape, a_rate) / Gamma(a; a_shape, a_rate + w) does not depend on a
    return float(total + (n_seen - n) * a_shape * math.log(a_rate / (a_rate + w)))


def row_rates(cells, V, n, K, A, skipped, rates):
    kept = [k for k in range(K) if k != skipped]
    rates[: len(cells)] = V[n, kept] @ A[kept][:, cells]


def without(cells, V, n, K, A, k, rates, others):
    row_rates(cells, V, n, K, A, k, others)


def seen_total(A, totals, hidden, k):
    return max(totals[k] - A[k, hidden].sum(), 0.0)


def allocate_row(cells, values, hidden, V, n, K, A, totals, shape, rate, parts, allocated, rng):
    parts[:K] = 0
    total = 0.0
    on = np.flatnonzero(V[n, :K] > 0)
    for d, x in zip(cells, values.astype(int), strict=True):
        own = V[n, on] * A[on, d]
        for i, k in enumerate(on):
            if x > 0:
                left = own[i:].sum()
                part = x if i == len(on) - 1 else rng.binomial(x, own[i] / left)
                x -= part
                parts[k] += part
                allocated[k, d] += part
                total -= gammaln(part + 1.0)
    for k in on:
        V[n, k] = max(rng.standard_gamma(shape + parts[k]) / (rate + seen_total(A, totals, hidden, k)), 1e-300)
        total += parts[k] * math.log(V[n, k])
    return total


def _shuffled(K, rng):
    order = np.arange(K)
    for i in range(K):
        j = i + int(rng.random() * (K - i))
        order[i], order[j] = order[j], order[i]
        yield order[i]


def _row(n, start, dims, counts, missing_start, missing_dim):
    some = slice(start[n], start[n + 1])
    return dims[some], counts[some], missing_dim[missing_start[n] : missing_start[n + 1]]


def poisson_sweep(
    start, dims, counts, missing_start, missing_dim, V, K, A, members, allocated, log_odds, new_rate, shape, rate,
    a_shape, a_rate, row, rng,
):  # fmt: skip
    N, n_dims = len(V), A.shape[1]
    grows, total = log_odds[0] == -np.inf, 0.0
    for n in range(row, N):
        if grows and V.shape[1] == K:
            return K, n, total
        cells, values, hidden = _row(n, start, dims, counts, missing_start, missing_dim)
        others, parts = np.empty(len(cells)), np.empty(V.shape[1])
        for k in _shuffled(K, rng):
            m = members[k] - (V[n, k] > 0)
            if grows and m == 0:
                continue
            row_rates(cells, V, n, K, A, k, others)
            seen = seen_total(A, A.sum(axis=1), hidden, k)
            V[n, k] = draw_code(values, others, A[k, cells], seen, log_odds[m], shape, rate, V[n, k], rng)
            members[k] = m + (V[n, k] > 0)
        if grows and new_rate > 0:
            own = [k for k in range(K) if members[k] == 1 and V[n, k] > 0]
            chosen = -1
            for i, k in enumerate(own):
                if rng.random() * (i + 1) < 1:
                    chosen = k
            n_seen = n_dims - len(hidden)
            if rng.random() < 0.5:
                row_rates(cells, V, n, K, A, -1, others)
                excess, is_seen = np.zeros(n_dims), np.ones(n_dims)
                excess[cells], is_seen[hidden] = np.maximum(values - others, 0.0), 0.0
                usual = n_seen * a_shape / a_rate
                w = max(rng.standard_gamma(shape + excess.sum()) / (rate + usual), 1e-300)
                A[K] = [
                    max(rng.standard_gamma(a_shape + e) / (a_rate + w * s), 1e-300)
                    for e, s in zip(excess, is_seen, strict=True)
                ]
                ratio = birth_ratio(values, others, A[K, cells], w, n_seen, shape, rate, a_shape, a_rate)
                if math.log(1 - rng.random()) < ratio + math.log(new_rate / (len(own) + 1)):
                    V[n, K], members[K], allocated[K] = w, 1, 0.0
                    K += 1
            elif chosen >= 0:
                row_rates(cells, V, n, K, A, chosen, others)
                ratio = birth_ratio(
                    values, others, A[chosen, cells], V[n, chosen], n_seen, shape, rate, a_shape, a_rate
                )
                if math.log(1 - rng.random()) < -ratio - math.log(new_rate / len(own)):
                    K -= 1
                    V[n, chosen] = 0.0
                    for array in (members, A, allocated):
                        array[chosen] = array[K]
                    V[:, chosen] = V[:, K]
                    V[:, K] = 0.0
        total += allocate_row(cells, values, hidden, V, n, K, A, A.sum(axis=1), shape, rate, parts, allocated, rng)
    return K, N, total


def poisson_slice_sweep(
    start, dims, counts, missing_start, missing_dim, V, A, chances, kinds, sizes, level, allocated, shape, rate, rng
):
    N, K = V.shape
    total = 0.0
    for n in range(N):
        cells, values, hidden = _row(n, start, dims, counts, missing_start, missing_dim)
        others, parts = np.empty(len(cells)), np.empty(K)
        for k in _shuffled(K, rng):
            if sizes[k] < level:
                continue
            used = np.delete(V, n, axis=0).any(axis=0) | (V[n] > 0)
            used[k] = np.delete(V[:, k], n).any()
            chance = chances[kinds[n], k]
            log_odds = math.log(chance / (1 - chance))
            if not used[k]:
                smallest = sizes[used].min(initial=1.0)
                log_odds += math.log(smallest / min(smallest, sizes[k]))
            row_rates(cells, V, n, K, A, k, others)
            seen = seen_total(A, A.sum(axis=1), hidden, k)
            V[n, k] = draw_code(values, others, A[k, cells], seen, log_odds, shape, rate, V[n, k], rng)
        total += allocate_row(cells, values, hidden, V, n, K, A, A.sum(axis=1), shape, rate, parts, allocated, rng)
    return total
