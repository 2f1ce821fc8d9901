"""Rows of X = Z A + noise that share the posterior of the features: batches of a recursive filter.

The rows are first taken in one by one (`filter_recorded`), which gives each a prior and finds new features. Then the
features go back to where they were before the batch, and the factors of all rows and those of the features are fitted
together, the priors of the rows held: coordinate ascent of one bound.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.recursive_rows import bits_bound, filter_recorded, scan_bits
from thali.kernels.bits.recursive_slots import CANDIDATES, Record, as_chance, existence, fade_out

_LOG_2PI = math.log(2.0 * math.pi)


def _columns_of(slots, K, record, bits, log_odds):
    """Probabilities of the features that are left in the rows as they were taken first, and the log-odds of their
    priors. In rows before its birth a feature is one of the new ones, in order of appearance."""
    room = record.number.shape[1]
    for i in range(bits.shape[0]):
        free = record.n_known[i]
        while free < room - 1 and record.number[i, free] >= 0:
            free += 1
        for k in range(K):
            at = -1
            for j in range(room):
                if record.number[i, j] == slots.number[k]:
                    at = j
            bits[i, k] = record.bits[i, at] if at >= 0 else 0.0
            if at < 0:  # not born yet
                at = min(free, record.n_known[i] + CANDIDATES - 1)
                free += 1
            log_odds[i, k] = record.log_odds[i, at]


def _scan_rows(backward, K, mean, seen, complete, R, bits, log_odds, square, spread, variance, noise):
    """One pass over the bits of all rows, given the features; R = x - sum_k b_k mean_k, 0 where a cell is missing, is
    kept in step. variance[k, d]: of feature k in units of the noise. Returns the largest change."""
    n_rows, n_dims = R.shape
    some, r = np.zeros((K, n_dims)), np.zeros(n_dims)
    own_square, own_spread = np.zeros(K), np.zeros(K)
    change = 0.0
    for i in range(n_rows):
        if complete[i]:
            change = max(
                change, scan_bits(backward, K, n_dims, mean, R[i], bits[i], log_odds[i], square, spread, noise)
            )
            continue
        n_seen = 0
        for k in range(K):
            own_square[k], own_spread[k] = 0.0, 0.0
        for d in range(n_dims):
            if seen[i, d]:
                r[n_seen] = R[i, d]
                for k in range(K):
                    some[k, n_seen] = mean[k, d]
                    own_square[k] += mean[k, d] * mean[k, d]
                    own_spread[k] += variance[k, d]
                n_seen += 1
        change = max(
            change, scan_bits(backward, K, n_seen, some, r, bits[i], log_odds[i], own_square, own_spread, noise)
        )
        n_seen = 0
        for d in range(n_dims):
            if seen[i, d]:
                R[i, d] = r[n_seen]
                n_seen += 1
    return change


def _scan_features(backward, K, mean, old, weight, seen, share, R, bits, square, spread, variance):
    """One pass over q(A), from what it was before the batch (`old`, with weights); what depends on it is kept in step.
    share[i]: how much row i counts. Cost O(rows K D)."""
    n_rows, n_dims = R.shape
    total, pull, step = np.zeros(n_dims), np.zeros(n_dims), np.zeros(n_dims)
    for c in range(K):
        k = K - 1 - c if backward else c
        square[k], spread[k] = 0.0, 0.0
        for d in range(n_dims):
            total[d], pull[d] = weight[k, d], weight[k, d] * old[k, d]
        for i in range(n_rows):
            b = bits[i, k]
            p = share[i] * b
            for d in range(n_dims):
                if seen[i, d]:
                    total[d] += p
                    pull[d] += p * (R[i, d] + b * mean[k, d])
        for d in range(n_dims):
            # eq: own.batch-update
            new = pull[d] / total[d]
            step[d] = new - mean[k, d]
            mean[k, d], variance[k, d] = new, 1.0 / total[d]
            square[k] += new * new
            spread[k] += variance[k, d]
        for i in range(n_rows):
            b = bits[i, k]
            for d in range(n_dims):
                if seen[i, d]:
                    R[i, d] -= b * step[d]


def _batch_bound(K, mean, old, weight, seen, share, R, bits, log_odds, variance, noise):
    """(bound of log p(rows | their priors), sums of E[squared residual] and of cells, each row by its share):
    eq: own.batch-bound."""
    n_rows, n_dims = R.shape
    square, spread = np.zeros(K), np.zeros(K)
    bound, error, n_cells = 0.0, 0.0, 0.0
    for i in range(n_rows):
        n_seen, left = 0, 0.0
        for k in range(K):
            square[k], spread[k] = 0.0, 0.0
        for d in range(n_dims):
            if seen[i, d]:
                n_seen += 1
                left += R[i, d] * R[i, d]
                for k in range(K):
                    square[k] += mean[k, d] * mean[k, d]
                    spread[k] += variance[k, d]
        for k in range(K):
            p = bits[i, k]
            left += p * noise * spread[k] + p * (1.0 - p) * square[k]
        error += share[i] * left
        n_cells += share[i] * n_seen
        bound += bits_bound(K, n_dims, R[i], bits[i], log_odds[i], square, spread, noise)
        bound -= 0.5 * n_seen * (_LOG_2PI + math.log(noise))
    for k in range(K):
        for d in range(n_dims):
            step, narrow = mean[k, d] - old[k, d], weight[k, d] * variance[k, d]
            bound -= 0.5 * (weight[k, d] * step * step / noise + narrow - 1.0 - math.log(narrow))
    return bound, error, n_cells


def _filter_batch(X, K, slots, totals, law, plan, notes):
    """Take in the rows of X together. There must be room for plan.most features, and for a batch of notes.

    Returns (number of features, number of notes), as `filter_rows` does of rows. Where older rows count for less
    (plan.keep), so do those that come first in a batch. Cost O(sweeps rows K D + rows K^2).
    """
    n_rows, n_dims = X.shape
    room, W = slots.mean.shape[0], slots.rows.shape[1]
    ridge = law.noise / law.feature
    n_before, fresh = K, int(totals.n_born[0])
    number, mean_before = slots.number[:K].copy(), slots.mean[:K].copy()
    rows_before, counts_before = slots.rows[:K].copy(), slots.counts[:K].copy()
    exists_before, together_before = slots.exists[:K].copy(), slots.together[:K, :K].copy()
    weight_before, error_before = totals.weight[0], totals.error[0]
    cells_before, bound_before = totals.n_cells[0], totals.bound[0]
    record = Record(
        np.zeros((n_rows, room)), np.zeros((n_rows, room)), np.full((n_rows, room), -1), np.zeros(n_rows, np.int64)
    )
    K, n_notes = filter_recorded(X, 0, K, slots, totals, law, plan, notes, record)[1:]
    # everything as it was before the batch, for the features that are left
    share, keep = np.ones(n_rows), 1.0
    for i in range(n_rows - 1, -1, -1):
        share[i] = keep
        keep *= plan.keep
    origin = np.full(K, -1)  # place among the features before; -1: new
    mean, old, weight = slots.mean[:K].copy(), np.zeros((K, n_dims)), np.full((K, n_dims), ridge)
    for k in range(K):
        for j in range(n_before):
            if number[j] == slots.number[k]:
                origin[k] = j
        if slots.number[k] < fresh:
            j = origin[k]
            for d in range(n_dims):
                rows = rows_before[j, d if W > 1 else 0]
                weight[k, d] = ridge + keep * rows
                old[k, d] = mean_before[j, d] * (keep * (ridge + rows)) / weight[k, d]
    bits, log_odds = np.zeros((n_rows, K)), np.zeros((n_rows, K))
    columns_of(slots, K, record, bits, log_odds)
    seen, complete = ~np.isnan(X), np.ones(n_rows, np.bool_)
    R, square, spread, variance = np.zeros((n_rows, n_dims)), np.zeros(K), np.zeros(K), np.zeros((K, n_dims))
    for i in range(n_rows):
        for d in range(n_dims):
            if seen[i, d]:
                R[i, d] = X[i, d]
                for k in range(K):
                    R[i, d] -= bits[i, k] * mean[k, d]
            else:
                complete[i] = False
    # together
    scan_features(False, K, mean, old, weight, seen, share, R, bits, square, spread, variance)
    for s in range(plan.n_inner):
        back = s % 2 == 1
        change = scan_rows(back, K, mean, seen, complete, R, bits, log_odds, square, spread, variance, law.noise)
        scan_features(back, K, mean, old, weight, seen, share, R, bits, square, spread, variance)
        if change < plan.tol:
            break
    bound, error, n_cells = batch_bound(K, mean, old, weight, seen, share, R, bits, log_odds, variance, law.noise)
    # what the batch leaves
    totals.error[0], totals.n_cells[0] = keep * error_before + error, keep * cells_before + n_cells
    totals.bound[0] = bound_before + bound
    for k in range(K):
        j = origin[k]
        count, exists, weight_now = 0.0, 0.0, weight_before
        if j >= 0:
            count, exists = counts_before[j], exists_before[j]
        for i in range(n_rows):
            p = bits[i, k]
            weight_now *= plan.keep
            before = law.concentration + weight_now
            count *= plan.keep
            exists = existence(law, plan.keep * exists, count, p, as_chance(log_odds[i, k]), before)
            count += p
            weight_now += 1.0
        slots.counts[k], slots.exists[k] = count, exists
        for d in range(n_dims):
            slots.mean[k, d] = mean[k, d]
        for d in range(W):
            slots.rows[k, d] = max(1.0 / variance[k, d] - ridge, 0.0)
        for c in range(K):
            total = keep * together_before[j, origin[c]] if j >= 0 and origin[c] >= 0 else 0.0
            for i in range(n_rows):
                total += share[i] * (bits[i, k] * bits[i, c] if c != k else bits[i, k])
            slots.together[k, c] = total
    return fade_out(K, slots, law, plan.fade, totals.n_rows[0] - 1.0, notes, n_notes)


columns_of = jit(_columns_of)
scan_rows = jit(_scan_rows)
scan_features = jit(_scan_features)
batch_bound = jit(_batch_bound)
filter_batch = jit(_filter_batch)
