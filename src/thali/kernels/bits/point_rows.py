"""Hard assignment of features to rows: BP-means (Broderick, Kulis & Jordan 2013), features as they are.

Bits are chosen one by one in the order of their columns; a row that is left too far from what its features say gets
what is left as a feature of its own.
"""

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.conditional_rows import add_to_forms

_ROUNDING = 1e-12  # a bit that changes nothing is off, whatever the rounding says


def _hard_sweep(X, square, products, missing_start, missing_dim, order, start, Z, K, A, gram, penalty, limit):
    """Lower |X - Z A|^2 + penalty K over the bits of the rows order[start:], one bit after the other, in place.

    X (N, D) is zero where missing, square its squared row norms, missing cells of row n are
    missing_dim[missing_start[n]:missing_start[n+1]]. Z, A, products = X A' and gram = A A' have room for more than K
    columns. There are at most `limit` columns; penalty = inf makes no new ones. Returns (K, next, changes): the place
    in the order at which to go on with more room, and the number of bits that changed.
    Cost O(N K), and O(K + missing cells) more for each bit on; O(N D) for each new column.
    """
    n_dims = X.shape[1]
    capacity = Z.shape[1]
    Gz = np.zeros(capacity)
    changes = 0
    for i in range(start, order.size):
        if capacity <= K and limit > K and penalty < np.inf:
            return K, i, changes
        n = order[i]
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        for k in range(K):
            Gz[k] = 0.0
        for k in range(K):
            if Z[n, k] == 1:
                add_to_forms(k, 1.0, K, A, gram, cells, Gz)
        for k in range(K):
            own = gram[k, k]
            for d in cells:
                own -= A[k, d] * A[k, d]
            # eq: BKJ13.bit
            on = 2.0 * (products[n, k] - Gz[k] + Z[n, k] * own) > own + _ROUNDING * gram[k, k]
            if on and Z[n, k] == 0:
                Z[n, k] = 1
                add_to_forms(k, 1.0, K, A, gram, cells, Gz)
                changes += 1
            elif not on and Z[n, k] == 1:
                Z[n, k] = 0
                add_to_forms(k, -1.0, K, A, gram, cells, Gz)
                changes += 1
        left = square[n]
        for k in range(K):
            left += Z[n, k] * (Gz[k] - 2.0 * products[n, k])
        # eq: BKJ13.new-feature
        if left > penalty and limit > K:
            for d in range(n_dims):
                A[K, d] = X[n, d]
            for k in range(K):
                if Z[n, k] == 1:
                    for d in range(n_dims):
                        A[K, d] -= A[k, d]
            for d in cells:
                A[K, d] = 0.0
            Z[n, K] = 1
            K += 1
            changes += 1
            for k in range(K):
                total = 0.0
                for d in range(n_dims):
                    total += A[k, d] * A[K - 1, d]
                gram[k, K - 1] = gram[K - 1, k] = total
            for j in range(i + 1, order.size):
                total = 0.0
                for d in range(n_dims):
                    total += X[order[j], d] * A[K - 1, d]
                products[order[j], K - 1] = total
    return K, order.size, changes


hard_sweep = jit(_hard_sweep)
