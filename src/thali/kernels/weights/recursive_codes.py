"""Rows of X = (Z * W) A + noise with normal weights, one after the other, as in `bits/recursive_rows`.

The weights of a row are normal with a whole covariance: q(w) = N(phi, Phi), outside the product over features. So the
products that other factors see are E2 = phi phi' + Phi, where the paper has phi phi'.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.recursive_slots import (
    CANDIDATES,
    NONE,
    as_chance,
    lose_weight,
    open_slots,
    row_odds,
    settle_row,
)

_LOG_2PI = math.log(2.0 * math.pi)
# squares of the positive nodes of a Gauss-Hermite rule for a standard normal, and their logarithmic weights, both signs
_NODES = np.array([0.29060704300663415, 2.6781945762527224, 7.853927002716574, 17.17727137802407])
_LOG_WEIGHTS = np.log(
    2.0 * np.array([0.3730122576790773, 0.11723990766175904, 0.009635220120788256, 0.00011261453837536762])
)


def _fit_codes(K, b, M, p, noise, code_var, phi, E2, root):
    """q(w) at its optimum: phi and E2 = phi phi' + Phi. M[k, j] = E[A_k . A_j], p[k] = mean_k . x; root is room for a
    K x K matrix. Returns (log determinant of Phi, its trace, largest change of phi). Cost O(K^3)."""
    # the Cholesky root of the precision
    for k in range(K):
        for j in range(k + 1):
            # eq: S22.code-update
            total = (b[k] if k == j else b[k] * b[j]) * M[k, j] / noise + (1.0 / code_var if k == j else 0.0)
            for i in range(j):
                total -= root[k, i] * root[j, i]
            root[k, j] = math.sqrt(total) if k == j else total / root[j, j]
    log_det = 0.0
    for k in range(K):
        log_det -= 2.0 * math.log(root[k, k])
    # its inverse, below the diagonal; Phi = inverse' inverse
    for j in range(K):
        root[j, j] = 1.0 / root[j, j]
        for k in range(j + 1, K):
            total = 0.0
            for i in range(j, k):
                total -= root[k, i] * root[i, j]
            root[k, j] = total / root[k, k]
    trace = 0.0
    for k in range(K):
        for j in range(k + 1):
            total = 0.0
            for i in range(k, K):
                total += root[i, k] * root[i, j]
            E2[k, j] = E2[j, k] = total
        trace += E2[k, k]
    change = 0.0
    for k in range(K):
        total = 0.0
        for j in range(K):
            total += E2[k, j] * b[j] * p[j]
        change = max(change, abs(total / noise - phi[k]))
        phi[k] = total / noise
    for k in range(K):
        for j in range(K):
            E2[k, j] += phi[k] * phi[j]
    return log_det, trace, change


def _scan_code_bits(backward, K, b, log_odds, M, p, phi, E2, noise):
    """One pass over q(z). Returns the largest change."""
    change = 0.0
    for i in range(K):
        k = K - 1 - i if backward else i
        cross = 0.0
        for j in range(K):
            if j != k:
                cross += b[j] * E2[k, j] * M[k, j]
        # eq: S22.code-bit-update
        new = as_chance(log_odds[k] + (phi[k] * p[k] - 0.5 * E2[k, k] * M[k, k] - cross) / noise)
        change = max(change, abs(new - b[k]))
        b[k] = new
    return change


def _scan_code_means(backward, K, n_dims, x, mean, old, weight, b, phi, E2, M, p, noise):
    """One pass over q(A), from what it was before the row (`old`, with weights in units of 1 / noise); M and p are kept
    in step."""
    W = weight.shape[1]
    for i in range(K):
        k = K - 1 - i if backward else i
        gain = b[k] * E2[k, k]
        wide = 0.0
        for d in range(n_dims):
            rest = phi[k] * x[d]
            for j in range(K):
                if j != k:
                    rest -= b[j] * E2[k, j] * mean[j, d]
            before = weight[k, d if W > 1 else 0]
            # eq: S22.code-feature-update
            mean[k, d] = (before * old[k, d] + b[k] * rest) / (before + gain)
            wide += noise / (before + gain)
        total = 0.0
        for d in range(n_dims):
            total += mean[k, d] * x[d]
        p[k] = total
        for j in range(K):
            total = wide if j == k else 0.0
            for d in range(n_dims):
                total += mean[k, d] * mean[j, d]
            M[k, j] = M[j, k] = total


def _code_row_bound(K, n_dims, x, mean, old, weight, b, log_odds, phi, E2, M, p, noise, code_var, log_det, trace):
    """(bound of log p(row | its prior), E[squared residual]): eq: S22.code-row-bound."""
    error = 0.0
    for d in range(n_dims):
        error += x[d] * x[d]
    far = -0.5 * (K + log_det - K * math.log(code_var) - trace / code_var)
    W = weight.shape[1]
    for k in range(K):
        error -= 2.0 * b[k] * phi[k] * p[k]
        for j in range(K):
            error += (b[k] if j == k else b[k] * b[j]) * E2[k, j] * M[k, j]
        far += 0.5 * phi[k] * phi[k] / code_var
        t = log_odds[k]
        far -= b[k] * t - max(t, 0.0) - math.log1p(math.exp(-abs(t)))
        if b[k] > 0.0:
            far += b[k] * math.log(b[k])
        if b[k] < 1.0:
            far += (1.0 - b[k]) * math.log1p(-b[k])
        gain = b[k] * E2[k, k]
        for d in range(n_dims):
            before = weight[k, d if W > 1 else 0]
            step = mean[k, d] - old[k, d]
            narrow = before / (before + gain)
            far += 0.5 * (before * step * step / noise + narrow - 1.0 - math.log(narrow))
    return -0.5 * n_dims * (_LOG_2PI + math.log(noise)) - 0.5 * error / noise - far, error


def _log_new(square, n_dims, noise, feature, code_var):
    """log p(residual | one new feature) - log p(residual | none), weight and feature integrated out, the weight by a
    rule of four nodes: eq: own.weighted-candidate."""
    top = -np.inf
    for i in range(_NODES.size):
        more = code_var * _NODES[i] * feature
        value = _LOG_WEIGHTS[i] - 0.5 * n_dims * math.log1p(more / noise)
        value += 0.5 * square * (1.0 / noise - 1.0 / (noise + more))
        top = max(top, value) + math.log1p(math.exp(-abs(top - value))) if top > -np.inf else value
    return top


def _filter_codes(X, at, K, slots, totals, law, code_var, plan, notes):
    """As `filter_rows` of `bits/recursive_rows`; slots.rows are sums of E[z w^2]. Cost per row O(sweeps (K^2 D + K^3)).

    Where a new feature is tried, its weight begins at the size that the residual has in units of features.
    """
    room, n_dims = slots.mean.shape
    W = slots.rows.shape[1]
    ridge = law.noise / law.feature
    mean, old, weight = np.zeros((room, n_dims)), np.zeros((room, n_dims)), np.zeros((room, W))
    x, r, b, q, births = np.zeros(n_dims), np.zeros(n_dims), np.zeros(room), np.zeros(room), np.zeros(room)
    log_odds, phi, p = np.zeros(room), np.zeros(room), np.zeros(room)
    E2, M, root = np.zeros((room, room)), np.zeros((room, room)), np.zeros((room, room))
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
        n_seen = 0
        for d in range(n_dims):
            if not np.isnan(X[row, d]):
                seen[n_seen] = d
                x[n_seen] = X[row, d]
                n_seen += 1
        width = 1 if W == 1 and n_seen > 0 else n_seen  # a matrix of one dim may lack it
        for k in range(K):
            b[k], phi[k], p[k] = q[k], 0.0, 0.0
            if W == 1:
                weight[k, 0] = ridge + slots.rows[k, 0]
            for i in range(n_seen):
                mean[k, i] = old[k, i] = slots.mean[k, seen[i]]
                p[k] += mean[k, i] * x[i]
                if W > 1:
                    weight[k, i] = ridge + slots.rows[k, seen[i]]
        for k in range(K):
            for j in range(k + 1):
                total = 0.0
                for i in range(n_seen):
                    total += mean[k, i] * mean[j, i]
                    if k == j:
                        total += law.noise / weight[k, i if W > 1 else 0]
                M[k, j] = M[j, k] = total
        for s in range(plan.n_inner):
            moved = fit_codes(K, b, M, p, law.noise, code_var, phi, E2, root)[2]
            change = scan_code_bits(s % 2 == 1, K, b, log_odds, M, p, phi, E2, law.noise)
            if max(change, moved / math.sqrt(code_var)) < plan.tol:
                break
        for i in range(n_seen):
            r[i] = x[i]
            for k in range(K):
                r[i] -= b[k] * phi[k] * mean[k, i]
        n_all = K
        while n_all < min(K + CANDIDATES, plan.most) and n_seen > 0:
            k = n_all
            square = 0.0
            for i in range(n_seen):
                square += r[i] * r[i]
            chance = as_chance(log_odds[k] + log_new(square, n_seen, law.noise, law.feature, code_var))
            if chance < NONE:
                break
            b[k] = chance
            phi[k] = math.sqrt(square / (n_seen * law.feature))
            gain = chance * phi[k] / (ridge + chance * phi[k] * phi[k])
            for i in range(width):
                weight[k, i] = ridge
            p[k] = 0.0
            for i in range(n_seen):
                old[k, i] = 0.0
                mean[k, i] = gain * r[i]
                r[i] -= chance * phi[k] * mean[k, i]
                p[k] += mean[k, i] * x[i]
            for j in range(k + 1):
                total = n_seen * law.noise / (ridge + chance * phi[k] * phi[k]) if j == k else 0.0
                for i in range(n_seen):
                    total += mean[k, i] * mean[j, i]
                M[k, j] = M[j, k] = total
            n_all += 1
        for s in range(plan.n_inner):
            log_det, trace, moved = fit_codes(n_all, b, M, p, law.noise, code_var, phi, E2, root)
            change = scan_code_bits(s % 2 == 1, n_all, b, log_odds, M, p, phi, E2, law.noise)
            scan_code_means(s % 2 == 1, n_all, n_seen, x, mean, old, weight[:, :width], b, phi, E2, M, p, law.noise)
            if max(change, moved / math.sqrt(code_var)) < plan.tol:
                break
        bound, error = code_row_bound(
            n_all, n_seen, x, mean, old, weight[:, :width], b, log_odds, phi, E2, M, p, law.noise, code_var,
            log_det, trace,
        )  # fmt: skip
        open_slots(slots, K, n_all)
        for k in range(n_all):
            for i in range(n_seen):
                slots.mean[k, seen[i]] = mean[k, i]
            for i in range(width):
                slots.rows[k, seen[i] if W > 1 else 0] += b[k] * E2[k, k]
        K, n_notes = settle_row(b, q, K, n_all, before, slots, totals, law, plan.fade, notes, n_notes)
        totals.error[0] += error
        totals.n_cells[0] += n_seen
        totals.bound[0] += bound
        row += 1
    return row, K, n_notes


fit_codes = jit(_fit_codes)
scan_code_bits = jit(_scan_code_bits)
scan_code_means = jit(_scan_code_means)
code_row_bound = jit(_code_row_bound)
log_new = jit(_log_new)
filter_codes = jit(_filter_codes)
