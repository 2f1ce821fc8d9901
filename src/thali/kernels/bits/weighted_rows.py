"""Slice-sampling sweep over the rows of Z for X = Z A + noise: features and their weights drawn beside Z.

All features with a weight above the slice are there, used or not, so no column is born or dies on the way. The slice
was drawn uniformly below the smallest weight of a feature in use, which a bit changes if it decides whether its feature
is in use. Rows of different kinds may have a feature with different chances; where there is one kind, the chance is the
weight. Bits are scanned in a fresh random order for each row.
"""

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.conditional_rows import add_to_forms
from thali.kernels.scan import draw_missing, is_heads, next_of, seen_product, seen_square, slice_odds


def _weighted_sweep(X, missing_start, missing_dim, Z, A, chances, kinds, sizes, level, noise_var, rng):
    """Draw z_n and the missing cells of x_n given features, chances and all else, row by row; both change in place.

    Z (N, K) uint8, A (K, D); chances (n_kinds, K) in (0, 1), of which row n has those of kinds[n]; sizes (K) are the
    weights of the slice, features with one below `level` keep their bits; missing cells of row n are
    missing_dim[missing_start[n]:missing_start[n+1]]. Cost O(N K (D + K)).
    """
    n_rows, n_dims = X.shape
    K = sizes.size
    gram = np.zeros((K, K))
    if K > 0:
        gram = np.dot(A, A.T)
    counts = np.zeros(K, np.int64)
    for n in range(n_rows):
        for k in range(K):
            counts[k] += Z[n, k]
    b = np.zeros(K)
    Gz = np.zeros(K)
    square = np.zeros(K)
    order = np.zeros(K, np.int64)
    is_seen = np.ones(n_dims, np.bool_)
    half_precision = 0.5 / noise_var
    for n in range(n_rows):
        x = X[n]
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        for d in cells:
            is_seen[d] = False
        for k in range(K):
            b[k] = seen_product(A, k, x, is_seen)
            Gz[k] = 0.0
            square[k] = seen_square(gram[k, k], A, k, cells)
            order[k] = k
        for k in range(K):
            if Z[n, k] == 1:
                add_to_forms(k, 1.0, K, A, gram, cells, Gz)
        for i in range(K):
            k = next_of(order, i, K, rng.random())
            if sizes[k] < level:
                continue
            u = rng.random()
            step = 1.0 - 2.0 * Z[n, k]
            odds = slice_odds(chances[kinds[n], k], sizes, k, counts[k] - Z[n, k], counts)
            delta = step * odds - half_precision * (2.0 * step * (Gz[k] - b[k]) + square[k])
            if is_heads(delta, u):
                if step > 0.0:
                    Z[n, k] = 1
                    counts[k] += 1
                else:
                    Z[n, k] = 0
                    counts[k] -= 1
                add_to_forms(k, step, K, A, gram, cells, Gz)
        draw_missing(x, cells, is_seen, Z[n], A, K, noise_var, rng)


weighted_sweep = jit(_weighted_sweep)
