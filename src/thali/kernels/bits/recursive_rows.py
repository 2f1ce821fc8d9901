"""Rows of X = Z A + noise, one after the other: the posterior of the features after a row is the prior of the next.

q(z_k = 1) = b_k; q(A_k) = N(mean_k, noise / weight_k) in each dim, weight_k = noise / feature_var + expected rows with
feature k. While a row is fitted, the features' posterior after the row before it stays as it was: it is the prior.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.recursive_slots import (
    CANDIDATES,
    NONE,
    Record,
    as_chance,
    keep_record,
    lose_weight,
    open_slots,
    row_odds,
    settle_row,
)

_LOG_2PI = math.log(2.0 * math.pi)
_PAIRED = 16  # flips


def _scan_bits(backward, K, n_dims, mean, r, b, log_odds, square, spread, noise):
    """One pass over q(z); r = x - sum_k b_k mean_k is kept in step. Returns the largest change."""
    change = 0.0
    for i in range(K):
        k = K - 1 - i if backward else i
        dot = 0.0
        for d in range(n_dims):
            dot += mean[k, d] * r[d]
        # eq: S22.bit-update
        odds = log_odds[k] + (dot + b[k] * square[k] - 0.5 * square[k]) / noise - 0.5 * spread[k]
        step = as_chance(odds) - b[k]
        if step != 0.0:
            for d in range(n_dims):
                r[d] -= step * mean[k, d]
            b[k] += step
            change = max(change, abs(step))
    return change


def _scan_means(backward, K, n_dims, mean, old, weight, share, r, b, square, spread):
    """One pass over q(A), from what it was before the row (`old`, with weights); r, |mean|^2 and the sum of 1 / weight
    over dims are kept in step. share: how much of the way is gone."""
    for i in range(K):
        k = K - 1 - i if backward else i
        p = b[k]
        total = 0.0
        if weight.shape[1] == 1:
            # eq: S22.feature-update
            gain = share[k] * p / (weight[k, 0] + p)
            for d in range(n_dims):
                own = r[d] + p * mean[k, d]
                new = old[k, d] + gain * (own - old[k, d])
                r[d] = own - p * new
                mean[k, d] = new
                total += new * new
            spread[k] = n_dims * (share[k] / (weight[k, 0] + p) + (1.0 - share[k]) / weight[k, 0])
        else:
            wide = 0.0
            for d in range(n_dims):
                own = r[d] + p * mean[k, d]
                new = old[k, d] + share[k] * p / (weight[k, d] + p) * (own - old[k, d])
                r[d] = own - p * new
                mean[k, d] = new
                total += new * new
                wide += share[k] / (weight[k, d] + p) + (1.0 - share[k]) / weight[k, d]
            spread[k] = wide
        square[k] = total


def _bits_bound(K, n_dims, r, b, log_odds, square, spread, noise):
    """The part of the row's bound that depends on q(z), up to a constant of the row."""
    error = 0.0
    for d in range(n_dims):
        error += r[d] * r[d]
    value = 0.0
    for k in range(K):
        p = b[k]
        error += p * noise * spread[k] + p * (1.0 - p) * square[k]
        # -KL of bits: p log(q/p) + (1-p) log((1-q)/(1-p)), by the prior's odds
        t = log_odds[k]
        value += p * t - max(t, 0.0) - math.log1p(math.exp(-abs(t)))
        if p > 0.0:
            value -= p * math.log(p)
        if p < 1.0:
            value -= (1.0 - p) * math.log1p(-p)
    return value - 0.5 * error / noise


def _start_bits(x, K, n_dims, mean, r, b, q, log_odds, square, spread, noise, n_passes, tol, first, second):
    """q(z) of the features so far, given these as they are: the better of two climbs, from the prior and from nothing.

    `first` and `second` are room for as many bits and cells.
    """
    best = -np.inf
    for start in range(2):
        for d in range(n_dims):
            r[d] = x[d]
        for k in range(K):
            b[k] = q[k] if start == 0 else 0.0
            if start == 0:
                for d in range(n_dims):
                    r[d] -= b[k] * mean[k, d]
        for s in range(n_passes):
            if scan_bits(s % 2 == 1, K, n_dims, mean, r, b, log_odds, square, spread, noise) < tol:
                break
        value = bits_bound(K, n_dims, r, b, log_odds, square, spread, noise)
        if start == 0:
            best = value
            for k in range(K):
                first[k] = b[k]
            for d in range(n_dims):
                second[d] = r[d]
        elif value <= best:
            for k in range(K):
                b[k] = first[k]
            for d in range(n_dims):
                r[d] = second[d]


def _search_bits(x, K, n_dims, mean, r, b, log_odds, square, spread, noise, n_passes, tol, first, second):
    """q(z) of the features so far from the best of whole bits in reach of single and double flips, if that is better.

    Features that point against each other hide from one flip at a time: what they leave together looks new. `first`
    and `second` are room for as many bits and cells. Pairs are looked for among the `_PAIRED` best single flips.
    """
    before = bits_bound(K, n_dims, r, b, log_odds, square, spread, noise)
    for d in range(n_dims):
        second[d] = r[d]
        r[d] = x[d]
    for k in range(K):
        first[k] = b[k]
        b[k] = 1.0 if b[k] > 0.5 else 0.0
        if b[k] == 1.0:
            for d in range(n_dims):
                r[d] -= mean[k, d]
    gain, best = np.empty(K), np.empty(min(K, _PAIRED), np.int64)
    for _ in range(2 * K):
        n_best = 0
        for k in range(K):
            dot = 0.0
            for d in range(n_dims):
                dot += mean[k, d] * r[d]
            sign = 1.0 - 2.0 * b[k]
            gain[k] = sign * (log_odds[k] + dot / noise - 0.5 * spread[k]) - 0.5 * square[k] / noise
            i = n_best  # in order
            while i > 0 and gain[best[i - 1]] < gain[k]:
                if i < best.size:
                    best[i] = best[i - 1]
                i -= 1
            if i < best.size:
                best[i] = k
                n_best = min(n_best + 1, best.size)
        most, one, other = gain[best[0]], best[0], -1
        for i in range(n_best):
            for j in range(i):
                dot = 0.0
                for d in range(n_dims):
                    dot += mean[best[i], d] * mean[best[j], d]
                same = (1.0 - 2.0 * b[best[i]]) * (1.0 - 2.0 * b[best[j]])
                # eq: own.double-flip
                both = gain[best[i]] + gain[best[j]] - same * dot / noise
                if both > most:
                    most, one, other = both, best[i], best[j]
        if most <= tol:
            break
        for k in (one, other):
            if k >= 0:
                sign = 1.0 - 2.0 * b[k]
                for d in range(n_dims):
                    r[d] -= sign * mean[k, d]
                b[k] += sign
    for s in range(n_passes):
        if scan_bits(s % 2 == 1, K, n_dims, mean, r, b, log_odds, square, spread, noise) < tol:
            break
    if bits_bound(K, n_dims, r, b, log_odds, square, spread, noise) <= before:
        for k in range(K):
            b[k] = first[k]
        for d in range(n_dims):
            r[d] = second[d]


def _row_bound(K, n_dims, mean, old, weight, share, used, r, b, log_odds, square, spread, noise):
    """(bound of log p(row | its prior), E[squared residual]): eq: S22.row-bound.

    used: the probabilities with which q(A) was updated.
    """
    far = -bits_bound(K, n_dims, r, b, log_odds, square, spread, noise)
    error = 0.0
    for d in range(n_dims):
        error += r[d] * r[d]
    for k in range(K):
        p = b[k]
        error += p * noise * spread[k] + p * (1.0 - p) * square[k]
        # KL of features
        moved = 0.0
        W = weight.shape[1]
        for d in range(n_dims):
            step = mean[k, d] - old[k, d]
            moved += weight[k, d if W > 1 else 0] * step * step
        wide = 0.0
        for d in range(W):
            narrow = share[k] * weight[k, d] / (weight[k, d] + used[k]) + 1.0 - share[k]  # new variance over old
            wide += narrow - 1.0 - math.log(narrow)
        far += 0.5 * (moved / noise + (n_dims if W == 1 else 1) * wide)
    return -0.5 * n_dims * (_LOG_2PI + math.log(noise)) - far, error


def _filter_rows(X, at, K, slots, totals, law, plan, notes):
    """`filter_recorded` without a record of the rows."""
    nothing = Record(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0), np.int64), np.zeros(0, np.int64))
    return filter_recorded(X, at, K, slots, totals, law, plan, notes, nothing)


def _filter_recorded(X, at, K, slots, totals, law, plan, notes, record):
    """Take in the rows of X from number `at` on, until there is no more room for features or notes.

    notes[i] = (row of the stream, BORN or FADED, number of the feature, value). Returns (next row of X, number of
    features, number of notes). NaN cells are missing; slots.rows must then have a column for each dim. Cost per row
    O(sweeps K D + K^2).
    """
    room, n_dims = slots.mean.shape
    W = slots.rows.shape[1]
    ridge = law.noise / law.feature
    start = -0.5 * math.log1p(1.0 / ridge)  # of a new feature, for each dim
    pull = 0.5 / law.noise - 0.5 / (law.noise + law.feature)
    mean, old = np.zeros((room, n_dims)), np.zeros((room, n_dims))
    weight = np.zeros((room, W))
    r, b, q, births = np.zeros(n_dims), np.zeros(room), np.zeros(room), np.zeros(room)
    log_odds, square, spread, share = np.zeros(room), np.zeros(room), np.zeros(room), np.ones(room)
    used = np.zeros(room)
    x, first, second = np.zeros(n_dims), np.zeros(room), np.zeros(n_dims)
    below, tails = np.zeros(room), np.zeros(room + 8)
    order, seen = np.zeros(room, np.int64), np.zeros(n_dims, np.int64)
    n_notes = 0
    row = at
    while row < X.shape[0]:
        if room < K + CANDIDATES or notes.shape[0] < n_notes + room:
            break
        if plan.keep < 1.0:
            lose_weight(slots, totals, K, plan.keep, ridge)
        before = law.concentration + totals.weight[0]
        row_odds(slots, K, before, law, q, log_odds, births, below, order, tails)
        # the cells that are seen, side by side
        n_seen = 0
        for d in range(n_dims):
            if not np.isnan(X[row, d]):
                seen[n_seen] = d
                r[n_seen] = X[row, d]
                n_seen += 1
        for k in range(K):
            total, wide = 0.0, 0.0
            if W == 1:
                weight[k, 0] = ridge + slots.rows[k, 0]
                wide = n_seen / weight[k, 0]
            for i in range(n_seen):
                value = slots.mean[k, seen[i]]
                mean[k, i] = old[k, i] = value
                total += value * value
                if W > 1:
                    weight[k, i] = ridge + slots.rows[k, seen[i]]
                    wide += 1.0 / weight[k, i]
            square[k], spread[k] = total, wide
            b[k] = q[k]
            share[k] = 1.0
            for i in range(n_seen):
                r[i] -= b[k] * mean[k, i]
        n_all = K
        width = 1 if W == 1 and n_seen > 0 else n_seen  # a matrix of one dim may lack it
        if plan.seeks:
            for i in range(n_seen):
                x[i] = X[row, seen[i]]
            start_bits(
                x, K, n_seen, mean, r, b, q, log_odds, square, spread, law.noise, plan.n_inner, plan.tol, first, second
            )
            total = 0.0
            for i in range(n_seen):
                total += r[i] * r[i]
            if K > 1 and total > law.noise * n_seen:  # it could be explained better
                search_bits(
                    x, K, n_seen, mean, r, b, log_odds, square, spread, law.noise, plan.n_inner, plan.tol, first, second
                )
        while n_all < min(K + CANDIDATES, plan.most) and n_seen > 0:
            k = n_all
            total = 0.0
            for i in range(n_seen):
                total += r[i] * r[i]
            # eq: own.candidate
            p = q[k]
            if plan.seeks:
                p = as_chance(log_odds[k] + n_seen * start + pull * total)
            if p < NONE:
                break
            b[k] = p
            share[k] = 1.0
            for i in range(width):
                weight[k, i] = ridge
            gain = p / (ridge + p) if plan.seeks else 0.0
            for i in range(n_seen):
                old[k, i] = 0.0
                mean[k, i] = gain * r[i]
                r[i] -= p * mean[k, i]
            square[k] = gain * gain * total
            spread[k] = n_seen / (ridge + p) if plan.seeks else n_seen / ridge
            n_all += 1
        for s in range(plan.n_inner):
            back = s % 2 == 1
            if plan.seeks:
                change = scan_bits(back, n_all, n_seen, mean, r, b, log_odds, square, spread, law.noise)
                scan_means(back, n_all, n_seen, mean, old, weight[:, :width], share, r, b, square, spread)
            else:
                for k in range(n_all):
                    count = slots.counts[k] if k < K else 0.0
                    # eq: S22.ossify
                    share[k] = b[k] / (b[k] + plan.ossify * count) if b[k] > 0.0 else 1.0
                    used[k] = b[k]
                scan_means(back, n_all, n_seen, mean, old, weight[:, :width], share, r, b, square, spread)
                change = scan_bits(back, n_all, n_seen, mean, r, b, log_odds, square, spread, law.noise)
            if change < plan.tol:
                break
        if plan.seeks:
            for k in range(n_all):
                used[k] = b[k]
        bound, error = row_bound(
            n_all, n_seen, mean, old, weight[:, :width], share, used, r, b, log_odds, square, spread, law.noise
        )
        # what the row leaves
        open_slots(slots, K, n_all)
        for k in range(n_all):
            for i in range(n_seen):
                slots.mean[k, seen[i]] = mean[k, i]
            for i in range(width):
                # with the whole share weight + p
                w = 1.0 / (share[k] / (weight[k, i] + used[k]) + (1.0 - share[k]) / weight[k, i])
                slots.rows[k, seen[i] if W > 1 else 0] = max(w - ridge, 0.0)
        if record.n_known.size:
            keep_record(row, K, n_all, b, log_odds, slots, totals, record)
        K, n_notes = settle_row(b, q, K, n_all, before, slots, totals, law, plan.fade, notes, n_notes)
        totals.error[0] += error
        totals.n_cells[0] += n_seen
        totals.bound[0] += bound
        row += 1
    return row, K, n_notes


scan_bits = jit(_scan_bits)
scan_means = jit(_scan_means)
bits_bound = jit(_bits_bound)
start_bits = jit(_start_bits)
search_bits = jit(_search_bits)
row_bound = jit(_row_bound)
filter_recorded = jit(_filter_recorded)
filter_rows = jit(_filter_rows)
