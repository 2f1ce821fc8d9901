"""Gibbs sweep over the rows of V = Z * W for X = V A + noise, with the features A drawn beside V (uncollapsed).

A bit is drawn with its weight integrated out, then the weight. The features that a row alone has are integrated out:
they count as further variance while its other bits are drawn; then their number, weights and values are drawn anew.
Bits are scanned in a fresh random order for each row.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.scan import draw_missing, is_heads, next_of, seen_square
from thali.kernels.weights.slabs import draw_own, draw_slab, log_slab


def _scaled_sweep(
    X, missing_start, missing_dim, V, K, A, counts, scales, log_odds, new_rate, noise_var, feature_var,
    rate, precision, log_norm, ard, n_candidates, most_own, start, rng,
):  # fmt: skip
    """Draw v_n and the missing cells of x_n given A and all else, for n = start, ..., N-1. All arrays change in place.

    V (N, capacity) and A (capacity, D) have K columns and rows in use, counts (capacity) are the numbers of non-zeros
    in the columns of V; (rate, precision, log_norm) is the law of a weight (`slabs`), which column k has times
    scales[k] (capacity); missing cells of row n are missing_dim[missing_start[n]:missing_start[n+1]]. Returns
    (K, next row): next row < N means that there is no room for `most_own` more columns: enlarge the arrays, and call
    again. Cost O(N K D): two passes over a row for each bit, however many cells are missing.
    """
    n_rows, n_dims = X.shape
    capacity = V.shape[1]
    ridge = noise_var / feature_var
    grows = log_odds[0] == -np.inf
    sizes = np.zeros(capacity)  # |a_k|^2
    for k in range(K):
        for d in range(n_dims):
            sizes[k] += A[k, d] * A[k, d]
    v = np.zeros(capacity)
    order = np.zeros(capacity, np.int64)
    is_seen = np.ones(n_dims, np.bool_)
    e = np.zeros(n_dims)
    own = np.zeros((max(capacity, most_own), 2))
    normal = np.zeros(max(capacity, most_own))
    candidates = np.zeros((n_candidates, most_own, 2))
    for n in range(start, n_rows):
        if grows and K + most_own > capacity:
            return K, n
        x = X[n]
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        for d in cells:
            is_seen[d] = False

        # --- the features that only this row has: delete, remember their weights
        n_own = 0
        power = 0.0
        if grows:
            k = 0
            while k < K:
                if counts[k] == 1 and V[n, k] != 0.0:
                    own[n_own, 0], own[n_own, 1] = V[n, k], scales[k]
                    power += V[n, k] * V[n, k]
                    n_own += 1
                    K -= 1
                    _move_column_(K, k, V, A, counts)
                    scales[k], sizes[k] = scales[K], sizes[K]
                else:
                    k += 1

        # --- what the features leave of the row, zero where its cells are missing
        for d in range(n_dims):
            e[d] = X[n, d]
        for k in range(K):
            v[k] = V[n, k]
            order[k] = k
            if v[k] != 0.0:
                for d in range(n_dims):
                    e[d] -= v[k] * A[k, d]
        for d in cells:
            e[d] = 0.0

        # --- bits that other rows have too, with their weights; own features in the variance
        tau = 1.0 / (noise_var + power * feature_var)
        for i in range(K):
            k = next_of(order, i, K, rng.random())
            square = max(seen_square(sizes[k], A, k, cells), 0.0)
            along = 0.0
            for d in range(n_dims):
                along += A[k, d] * e[d]
            pull = scales[k] * tau * (along + v[k] * square)
            curve = scales[k] ** 2 * tau * square
            others = counts[k] - (1 if V[n, k] != 0.0 else 0)
            # eq: own.scaled-bit
            delta = log_odds[others] + log_slab(pull, curve, rate, precision, log_norm)
            u = rng.random()
            new = 0.0
            if is_heads(delta, u):
                new = scales[k] * draw_slab(pull, curve, rate, precision, rng)
            if new != v[k]:
                step = new - v[k]
                for d in range(n_dims):
                    e[d] -= step * A[k, d]
                for d in cells:
                    e[d] = 0.0
                v[k] = new
        for k in range(K):
            counts[k] += (1 if v[k] != 0.0 else 0) - (1 if V[n, k] != 0.0 else 0)
            V[n, k] = v[k]

        # --- own features, with their values given what the others leave
        if grows:
            residual = 0.0
            for d in range(n_dims):
                residual += e[d] * e[d]
            n_seen = n_dims - cells.size
            n_new = draw_own(
                residual, n_seen, own, n_own, noise_var, feature_var, new_rate, rate, precision, ard, candidates, rng
            )
            power = 0.0
            for j in range(n_new):
                power += own[j, 0] * own[j, 0]
            shrink = (1.0 - math.sqrt(ridge / (ridge + power))) / power if power > 0.0 else 0.0
            for d in range(n_dims):
                total = 0.0
                for j in range(n_new):
                    normal[j] = rng.standard_normal()
                    total += own[j, 0] * normal[j]
                for j in range(n_new):
                    value = math.sqrt(feature_var) * normal[j]
                    if is_seen[d]:
                        # eq: own.new-weighted-values
                        value += own[j, 0] * (e[d] / (ridge + power) - math.sqrt(feature_var) * shrink * total)
                    A[K + j, d] = value
                    sizes[K + j] = value * value + (sizes[K + j] if d > 0 else 0.0)
            for j in range(n_new):
                V[n, K] = v[K] = own[j, 0]
                scales[K] = own[j, 1]
                counts[K] = 1
                K += 1

        # --- missing cells given all of it
        draw_missing(x, cells, is_seen, v, A, K, noise_var, rng)
    return K, n_rows


def _move_column(source, target, V, A, counts):
    """Column `source`, the last one, takes the place of `target`; its own is left empty."""
    for n in range(V.shape[0]):
        V[n, target] = V[n, source]
        V[n, source] = 0.0
    for d in range(A.shape[1]):
        A[target, d] = A[source, d]
    counts[target] = counts[source]


_move_column_ = jit(_move_column)
scaled_sweep = jit(_scaled_sweep)
