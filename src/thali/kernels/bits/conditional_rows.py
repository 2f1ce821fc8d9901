"""Gibbs sweep over the rows of Z for X = Z A + noise with the features A drawn beside Z (uncollapsed).

Given A, a row's bits need only b = A x_n and the Gram matrix A A'. The columns that a row alone has are integrated out:
they count as further variance while its other bits are drawn, then their number and their values are drawn anew. Bits
are scanned in a fresh random order for each row.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.row_draws import draw_new
from thali.kernels.scan import draw_missing, is_heads, next_of, seen_product, seen_square


def _draw_features(gram, cross, K, noise_var, feature_var, rng):
    """A ~ N(P cross, noise_var P) per dim, P = (gram + r I)^-1: the features given Z and X. Cost O(K^3 + K^2 D)."""
    n_dims = cross.shape[1]
    precision = np.zeros((K, K))
    for i in range(K):
        for j in range(K):
            precision[i, j] = gram[i, j]
        precision[i, i] += noise_var / feature_var
    A = np.zeros((K, n_dims))
    if K == 0:
        return A
    # eq: DV09.feature-draw
    root = np.linalg.cholesky(np.linalg.inv(precision))
    noise = np.empty((K, n_dims))
    for k in range(K):
        for d in range(n_dims):
            noise[k, d] = math.sqrt(noise_var) * rng.standard_normal()
    centre = np.dot(root.T, np.ascontiguousarray(cross[:K]))
    return np.dot(root, centre + noise)


def _conditional_sweep(
    X, missing_start, missing_dim, Z, K, A, counts, log_odds, new_rate, noise_var, feature_var, start, pending, rng
):
    """Draw z_n and the missing cells of x_n given A and all else, for n = start, ..., N-1. All arrays change in place.

    Z (N, capacity) uint8 and A (capacity, D) have K columns and rows in use, counts (capacity) are the column sums of
    Z; missing cells of row n are missing_dim[missing_start[n]:missing_start[n+1]]. Returns (K, next row, pending): next
    row < N means that `pending` new columns did not fit: enlarge Z, A and counts, and call again from that row.
    Cost O(N K (D + K)).
    """
    n_rows, n_dims = X.shape
    capacity = Z.shape[1]
    ridge = noise_var / feature_var
    grows = log_odds[0] == -np.inf
    gram = np.zeros((capacity, capacity))
    for k in range(K):
        fill_gram(k, A, K, gram)
    z = np.zeros(capacity)
    b = np.zeros(capacity)
    Gz = np.zeros(capacity)
    order = np.zeros(capacity, np.int64)
    is_seen = np.ones(n_dims, np.bool_)
    e = np.zeros(n_dims)
    normal = np.zeros(capacity)
    terms = np.empty(64)
    for n in range(start, n_rows):
        x = X[n]
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        used = n_dims - cells.size
        for d in cells:
            is_seen[d] = False

        # --- the columns that only this row has: delete, remember how many
        n_own = 0
        if grows:
            k = 0
            while k < K:
                if counts[k] == 1 and Z[n, k] == 1:
                    K -= 1
                    move_column(K, k, Z, A, counts, gram)
                    n_own += 1
                else:
                    k += 1

        # --- the row's forms over its observed cells: b = A x, Gz = A A' z, s = |x - z A|^2
        s = 0.0
        for d in range(n_dims):
            if is_seen[d]:
                s += X[n, d] * X[n, d]
        for k in range(K):
            z[k] = Z[n, k]
            b[k] = seen_product(A, k, x, is_seen)
            Gz[k] = 0.0
        for k in range(K):
            if z[k] != 0.0:
                add_to_forms(k, 1.0, K, A, gram, cells, Gz)
        for k in range(K):
            s += z[k] * (Gz[k] - 2.0 * b[k])

        if pending < 0:
            # --- bits that other rows have too, own columns in the variance
            half_precision = 0.5 / (noise_var + n_own * feature_var)
            for k in range(K):
                order[k] = k
            for i in range(K):
                k = next_of(order, i, K, rng.random())
                u = rng.random()
                step = 1.0 - 2.0 * z[k]
                ds = 2.0 * step * (Gz[k] - b[k]) + seen_square(gram[k, k], A, k, cells)
                m = counts[k] - Z[n, k]
                # eq: DV09.uncollapsed-bit
                delta = step * log_odds[m] - half_precision * ds
                if is_heads(delta, u):
                    z[k] += step
                    s += ds
                    add_to_forms(k, step, K, A, gram, cells, Gz)
            n_new = draw_new(0.0, max(s, 0.0), used, ridge, 1.0 / noise_var, new_rate, terms, rng.random())
        else:  # this row's bits were drawn before the arrays had to grow
            n_new = pending
            pending = -1
        for k in range(K):
            counts[k] += int(z[k]) - int(Z[n, k])
            Z[n, k] = 1 if z[k] != 0.0 else 0
        is_full = K + n_new > capacity
        if is_full:
            pending = n_new
            n_new = n_own  # leave the row with as many as it had: they are drawn anew at the next call

        # --- own columns, with their values given the residual
        for d in range(n_dims):
            e[d] = X[n, d]
        for k in range(K):
            if z[k] != 0.0:
                for d in range(n_dims):
                    e[d] -= A[k, d]
        shrink = (1.0 - math.sqrt(ridge / (n_new + ridge))) / n_new if n_new > 0 else 0.0
        for d in range(n_dims):
            total = 0.0
            for j in range(n_new):
                normal[j] = rng.standard_normal()
                total += normal[j]
            for j in range(n_new):
                # eq: DV09.new-feature-values
                value = math.sqrt(feature_var) * (normal[j] - (shrink * total if is_seen[d] else 0.0))
                A[K + j, d] = value + (e[d] / (n_new + ridge) if is_seen[d] else 0.0)
        for _ in range(n_new):
            Z[n, K] = 1
            counts[K] = 1
            z[K] = 1.0
            K += 1
            fill_gram(K - 1, A, K, gram)

        # --- missing cells given all of it
        draw_missing(x, cells, is_seen, z, A, K, noise_var, rng)
        if is_full:
            return K, n, pending
    return K, n_rows, -1


def _add_to_forms(k, step, K, A, gram, cells, Gz):
    """Gz += step * (column k of A A' over the observed cells)."""
    for j in range(K):
        Gz[j] += step * gram[k, j]
    for d in cells:
        t = step * A[k, d]
        for j in range(K):
            Gz[j] -= t * A[j, d]


def _fill_gram(k, A, K, gram):
    """Row and column k of A A'."""
    for j in range(K):
        total = 0.0
        for d in range(A.shape[1]):
            total += A[k, d] * A[j, d]
        gram[k, j] = gram[j, k] = total


def _move_column(source, target, Z, A, counts, gram):
    """Column `source`, the last one, takes the place of `target`; its own is left empty."""
    if source == target:
        for n in range(Z.shape[0]):
            Z[n, target] = 0
        return
    for n in range(Z.shape[0]):
        Z[n, target] = Z[n, source]
        Z[n, source] = 0
    for d in range(A.shape[1]):
        A[target, d] = A[source, d]
    counts[target] = counts[source]
    for j in range(source + 1):
        gram[target, j] = gram[source, j]
    for j in range(source + 1):
        gram[j, target] = gram[j, source]


add_to_forms = jit(_add_to_forms)
fill_gram = jit(_fill_gram)
move_column = jit(_move_column)
draw_features = jit(_draw_features)
conditional_sweep = jit(_conditional_sweep)
