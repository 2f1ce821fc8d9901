"""Slice-sampling sweep over the rows of V = Z * W for X = V A + noise: features and their probabilities drawn beside V.

As `weighted_rows`, with a weight for each bit that is on: the bit is drawn with its weight integrated out, then the
weight. "chances" are the probabilities of having each feature.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.conditional_rows import add_to_forms
from thali.kernels.weights.slabs import draw_slab, log_slab


def _scaled_slice_sweep(
    X, missing_start, missing_dim, V, A, chances, level, scales, noise_var, rate, precision, log_norm, rng
):
    """Draw v_n and the missing cells of x_n given features, chances and all else, row by row; both change in place.

    V (N, K), A (K, D), chances (K) in (0, 1), of which those below `level` keep their codes, scales (K) of the weights;
    missing cells of row n are
    missing_dim[missing_start[n]:missing_start[n+1]]. Cost O(N K (D + K)).
    """
    n_rows, n_dims = X.shape
    K = chances.size
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
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        for d in cells:
            is_seen[d] = False
        for k in range(K):
            b_k = 0.0
            for d in range(n_dims):
                if is_seen[d]:
                    b_k += A[k, d] * X[n, d]
            b[k] = b_k
            Gv[k] = 0.0
            order[k] = k
        for k in range(K):
            if V[n, k] != 0.0:
                add_to_forms(k, V[n, k], K, A, gram, cells, Gv)
        for i in range(K):
            j = i + int(rng.random() * (K - i))
            k = order[j]
            order[j] = order[i]
            order[i] = k
            if chances[k] < level:
                continue
            old = V[n, k]
            square = gram[k, k]
            for d in cells:
                square -= A[k, d] * A[k, d]
            square = max(square, 0.0)
            pull = scales[k] * tau * (b[k] - Gv[k] + old * square)
            curve = scales[k] ** 2 * tau * square
            delta = math.log(chances[k]) - math.log1p(-chances[k])
            counts[k] -= 1 if old != 0.0 else 0
            if counts[k] == 0:  # no other row has it: the bit decides whether it is in use
                smallest = 1.0
                for j in range(K):
                    if counts[j] > 0 and chances[j] < smallest:
                        smallest = chances[j]
                delta += math.log(smallest) - math.log(min(smallest, chances[k]))
            delta += log_slab(pull, curve, rate, precision, log_norm)
            u = rng.random()
            new = 0.0
            if delta > 40.0 or (delta > -40.0 and u * (1.0 + math.exp(-delta)) < 1.0):
                new = scales[k] * draw_slab(pull, curve, rate, precision, rng)
            counts[k] += 1 if new != 0.0 else 0
            if new != old:
                add_to_forms(k, new - old, K, A, gram, cells, Gv)
                V[n, k] = new
        for d in cells:
            mean = 0.0
            for k in range(K):
                mean += V[n, k] * A[k, d]
            X[n, d] = mean + math.sqrt(noise_var) * rng.standard_normal()
            is_seen[d] = True


scaled_slice_sweep = jit(_scaled_slice_sweep)
