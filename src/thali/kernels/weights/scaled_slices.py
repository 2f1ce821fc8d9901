"""Slice-sampling sweep over the rows of V = Z * W for X = V A + noise: features and their probabilities drawn beside V.

As `weighted_rows`, with a weight for each bit that is on: the bit is drawn with its weight integrated out, then the
weight. "chances" are the probabilities of having each feature, "sizes" those of the slice.
"""

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.conditional_rows import add_to_forms
from thali.kernels.scan import draw_missing, is_heads, next_of, seen_product, seen_square, slice_odds
from thali.kernels.weights.slabs import draw_slab, log_slab


def _scaled_slice_sweep(
    X, missing_start, missing_dim, V, A, chances, kinds, sizes, level, scales, noise_var, rate, precision, log_norm, rng
):
    """Draw v_n and the missing cells of x_n given features, chances and all else, row by row; both change in place.

    V (N, K), A (K, D), chances (n_kinds, K), kinds (N), sizes (K) and `level` as in `weighted_rows`, scales (K) of the
    weights; missing cells of row n are missing_dim[missing_start[n]:missing_start[n+1]]. Cost O(N K (D + K)).
    """
    n_rows, n_dims = X.shape
    K = sizes.size
    gram = np.zeros((K, K))
    if K > 0:
        gram = np.dot(A, A.T)
    counts = np.zeros(K, np.int64)
    for n in range(n_rows):
        for k in range(K):
            counts[k] += 1 if V[n, k] != 0.0 else 0
    b = np.zeros(K)
    Gv = np.zeros(K)
    order = np.zeros(K, np.int64)
    is_seen = np.ones(n_dims, np.bool_)
    tau = 1.0 / noise_var
    for n in range(n_rows):
        x = X[n]
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        for d in cells:
            is_seen[d] = False
        for k in range(K):
            b[k] = seen_product(A, k, x, is_seen)
            Gv[k] = 0.0
            order[k] = k
        for k in range(K):
            if V[n, k] != 0.0:
                add_to_forms(k, V[n, k], K, A, gram, cells, Gv)
        for i in range(K):
            k = next_of(order, i, K, rng.random())
            if sizes[k] < level:
                continue
            old = V[n, k]
            square = max(seen_square(gram[k, k], A, k, cells), 0.0)
            pull = scales[k] * tau * (b[k] - Gv[k] + old * square)
            curve = scales[k] ** 2 * tau * square
            counts[k] -= 1 if old != 0.0 else 0
            delta = slice_odds(chances[kinds[n], k], sizes, k, counts[k], counts)
            delta += log_slab(pull, curve, rate, precision, log_norm)
            u = rng.random()
            new = 0.0
            if is_heads(delta, u):
                new = scales[k] * draw_slab(pull, curve, rate, precision, rng)
            counts[k] += 1 if new != 0.0 else 0
            if new != old:
                add_to_forms(k, new - old, K, A, gram, cells, Gv)
                V[n, k] = new
        draw_missing(x, cells, is_seen, V[n], A, K, noise_var, rng)


scaled_slice_sweep = jit(_scaled_slice_sweep)
