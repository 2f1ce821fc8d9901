"""Rows that change from one feature to a like one: what single bits cannot do, since a row without both fits badly.

Given the features, a row that has exactly one of a pair chooses anew which. So two features that are one in truth grow
together: the more frequent takes the rows of the other, which dies.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.scan import is_heads
from thali.kernels.weights.slabs import draw_slab, log_slab

_ALIKE = 0.3  # |cosine| above which features make a pair


def _like_pairs(A):
    """Pairs of features (n_pairs, 2): each with the one most like it, if they are alike at all. Cost O(K^2 D)."""
    K, n_dims = A.shape
    size = np.zeros(K)
    for k in range(K):
        for d in range(n_dims):
            size[k] += A[k, d] * A[k, d]
    pairs = np.zeros((K, 2), np.int64)
    n_pairs = 0
    for k in range(K):
        best = -1
        largest = _ALIKE
        for j in range(K):
            if j != k and size[j] > 0.0 and size[k] > 0.0:
                product = 0.0
                for d in range(n_dims):
                    product += A[k, d] * A[j, d]
                likeness = abs(product) / math.sqrt(size[k] * size[j])
                if likeness > largest:
                    best, largest = j, likeness
        if best >= 0:
            pairs[n_pairs, 0], pairs[n_pairs, 1] = k, best
            n_pairs += 1
    return pairs[:n_pairs]


def _swap_features(
    X, missing_start, missing_dim, V, A, counts, scales, pairs, log_odds, noise_var, rate, precision, log_norm, rng
):
    """For each row and pair of which it has exactly one: draw which, and its weight. X, V and counts change in place.

    Which pairs there are depends on the features alone, and both choices lie in the same set, so that this is a Gibbs
    step. A row's missing cells are integrated out, so that they are drawn anew if there was a choice. The only row
    with a feature keeps it, unless the prior allows empty columns. Cost O(N D (K + pairs)).
    """
    n_rows, n_dims = X.shape
    K = V.shape[1]
    products = np.zeros((len(pairs), 3))  # |a_k|^2, |a_l|^2, a_k.a_l
    for i in range(len(pairs)):
        _add_products_(A, pairs[i, 0], pairs[i, 1], products[i])
    e = np.zeros(n_dims)
    seen = np.zeros(3)
    pull, curve, odds = np.zeros(2), np.zeros(2), np.zeros(2)
    for n in range(n_rows if len(pairs) > 0 else 0):
        chosen = False
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        for d in range(n_dims):
            e[d] = X[n, d]
        for k in range(K):
            if V[n, k] != 0.0:
                for d in range(n_dims):
                    e[d] -= V[n, k] * A[k, d]
        for d in cells:
            e[d] = 0.0
        for i in range(len(pairs)):
            first, second = pairs[i, 0], pairs[i, 1]
            if (V[n, first] != 0.0) == (V[n, second] != 0.0):
                continue
            has = 0 if V[n, first] != 0.0 else 1
            old = V[n, pairs[i, has]]
            for j in range(3):
                seen[j] = products[i, j]
            for d in cells:
                seen[0] -= A[first, d] * A[first, d]
                seen[1] -= A[second, d] * A[second, d]
                seen[2] -= A[first, d] * A[second, d]
            for j in range(2):
                k = pairs[i, j]
                along = old * (seen[j] if j == has else seen[2])
                for d in range(n_dims):
                    along += A[k, d] * e[d]
                pull[j], curve[j] = scales[k] * along / noise_var, scales[k] ** 2 * max(seen[j], 0.0) / noise_var
                others = counts[k] - (1 if j == has else 0)
                odds[j] = log_odds[others] + log_slab(pull[j], curve[j], rate, precision, log_norm)
            u = rng.random()
            if odds[has] == -np.inf:  # no other row has it
                continue
            chosen = True
            # eq: own.swap
            delta = odds[1] - odds[0]
            new = 1 if is_heads(delta, u) else 0
            weight = scales[pairs[i, new]] * draw_slab(pull[new], curve[new], rate, precision, rng)
            for d in range(n_dims):
                e[d] += old * A[pairs[i, has], d] - weight * A[pairs[i, new], d]
            for d in cells:
                e[d] = 0.0
            V[n, pairs[i, has]] = 0.0
            V[n, pairs[i, new]] = weight
            counts[pairs[i, has]] -= 1
            counts[pairs[i, new]] += 1
        if chosen:  # else they still go with the row's codes
            for d in cells:
                mean = 0.0
                for k in range(K):
                    mean += V[n, k] * A[k, d]
                X[n, d] = mean + math.sqrt(noise_var) * rng.standard_normal()


def _add_products(A, k, other, products):
    for d in range(A.shape[1]):
        products[0] += A[k, d] * A[k, d]
        products[1] += A[other, d] * A[other, d]
        products[2] += A[k, d] * A[other, d]


_add_products_ = jit(_add_products)
like_pairs = jit(_like_pairs)
swap_features = jit(_swap_features)
