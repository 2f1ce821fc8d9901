"""Gibbs sweep over the rows of Z for X = Z A + noise with nothing integrated out: births by importance resampling.

A row's own columns keep their values while its other bits are drawn. Then they compete with sets of columns from the
prior: one of all is picked by its likelihood. It leaves the posterior invariant because the row's present columns are
among the candidates. Bits are scanned in a fresh random order for each row.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.conditional_rows import add_to_forms, fill_gram, move_column
from thali.kernels.scan import draw_missing, is_heads, next_of, seen_product, seen_square


def _importance_sweep(
    X, missing_start, missing_dim, Z, K, A, counts, log_odds, new_rate, noise_var, feature_var, n_candidates, rng
):
    """Draw z_n and the missing cells of x_n given A and all else, row by row. X changes in place.

    As `conditional_sweep`, with `n_candidates` sets of own columns, the present one among them. Returns (K, Z, A,
    counts) with K columns in use: the arrays given, or larger ones. Cost O(N (K (D + K) + n_candidates D new_rate)).
    """
    n_rows, n_dims = X.shape
    grows = log_odds[0] == -np.inf
    gram = np.zeros((Z.shape[1], Z.shape[1]))
    for k in range(K):
        fill_gram(k, A, K, gram)
    z = np.zeros(Z.shape[1])
    b = np.zeros(Z.shape[1])
    Gz = np.zeros(Z.shape[1])
    order = np.zeros(Z.shape[1], np.int64)
    is_seen = np.ones(n_dims, np.bool_)
    e = np.zeros(n_dims)
    half_precision = 0.5 / noise_var
    for n in range(n_rows):
        x = X[n]
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        for d in cells:
            is_seen[d] = False

        # --- the columns that only this row has, set aside with their values
        n_own = 0
        for k in range(K):
            if grows and counts[k] == 1 and Z[n, k] == 1:
                n_own += 1
        own = np.zeros((n_own, n_dims))
        i = 0
        k = 0
        while i < n_own:
            if counts[k] == 1 and Z[n, k] == 1:
                for d in range(n_dims):
                    own[i, d] = A[k, d]
                i += 1
                K -= 1
                move_column(K, k, Z, A, counts, gram)
            else:
                k += 1

        # --- bits that other rows have too: e is what own columns leave of the row
        for d in range(n_dims):
            e[d] = X[n, d]
            for j in range(n_own):
                e[d] -= own[j, d]
        for k in range(K):
            z[k] = Z[n, k]
            order[k] = k
            b[k] = seen_product(A, k, e, is_seen)
            Gz[k] = 0.0
        for k in range(K):
            if z[k] != 0.0:
                add_to_forms(k, 1.0, K, A, gram, cells, Gz)
        for i in range(K):
            k = next_of(order, i, K, rng.random())
            u = rng.random()
            step = 1.0 - 2.0 * z[k]
            square = seen_square(gram[k, k], A, k, cells)
            # as eq: DV09.uncollapsed-bit
            delta = step * log_odds[counts[k] - Z[n, k]] - half_precision * (2.0 * step * (Gz[k] - b[k]) + square)
            if is_heads(delta, u):
                z[k] += step
                add_to_forms(k, step, K, A, gram, cells, Gz)
        for k in range(K):
            counts[k] += int(z[k]) - int(Z[n, k])
            Z[n, k] = 1 if z[k] != 0.0 else 0

        # --- own columns: the present ones against draws from the prior
        for d in range(n_dims):
            e[d] = X[n, d]
            for k in range(K):
                e[d] -= z[k] * A[k, d]
        log_total = log_fit(e, own, is_seen, half_precision)
        for _ in range(n_candidates - 1 if grows else 0):
            other = np.empty((rng.poisson(new_rate), n_dims))
            for j in range(other.shape[0]):
                for d in range(n_dims):
                    other[j, d] = math.sqrt(feature_var) * rng.standard_normal()
            log_weight = log_fit(e, other, is_seen, half_precision)
            top = max(log_total, log_weight)
            log_total = top + math.log(math.exp(log_total - top) + math.exp(log_weight - top))
            # eq: DV09.importance-births
            if rng.random() < math.exp(log_weight - log_total):  # so each is left with its share of the total
                own = other
        n_own = own.shape[0]
        if K + n_own > Z.shape[1]:
            room = 2 * (K + n_own)
            Z, A, counts, gram = enlarged(Z, A, counts, gram, K, room)
            z = np.append(z, np.zeros(room - z.size))
            b, Gz, order = np.zeros(room), np.zeros(room), np.zeros(room, np.int64)
        for j in range(n_own):
            for d in range(n_dims):
                A[K, d] = own[j, d]
            Z[n, K] = 1
            counts[K] = 1
            z[K] = 1.0
            K += 1
            fill_gram(K - 1, A, K, gram)

        # --- missing cells given all of it
        draw_missing(x, cells, is_seen, z, A, K, noise_var, rng)
    return K, Z, A, counts


def _log_fit(e, own, is_seen, half_precision):
    """-|e - sum of own columns|^2 / (2 noise_var) over the observed cells."""
    total = 0.0
    for d in range(e.size):
        if is_seen[d]:
            rest = e[d]
            for j in range(own.shape[0]):
                rest -= own[j, d]
            total -= half_precision * rest * rest
    return total


def _enlarged(Z, A, counts, gram, K, room):
    """Copies with `room` columns, of which K are in use."""
    wide, features = np.zeros((Z.shape[0], room), np.uint8), np.zeros((room, A.shape[1]))
    ones, products = np.zeros(room, np.int64), np.zeros((room, room))
    for k in range(K):
        ones[k] = counts[k]
        for n in range(Z.shape[0]):
            wide[n, k] = Z[n, k]
        for d in range(A.shape[1]):
            features[k, d] = A[k, d]
        for j in range(K):
            products[k, j] = gram[k, j]
    return wide, features, ones, products


log_fit = jit(_log_fit)
enlarged = jit(_enlarged)
importance_sweep = jit(_importance_sweep)
