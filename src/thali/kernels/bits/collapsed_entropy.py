"""Entropies of the bits of Z, each given all others, for X = Z A + noise with A integrated out.

The conditionals are those of `collapsed_rows` with no bit changed, so that all rows of a block share three products.
"""

import math

import numpy as np

from thali.kernels._jit import jit

BLOCK = 64  # rows per matrix product
_SURE = 40.0  # log-odds beyond which the entropy of a bit is less than 1e-15


def _collapsed_entropy(X, square, Z, P, mean, odds_on, odds_off, noise_var):
    """Sum over all bits of the entropy of their conditional, in nats.

    square (N) are |x_n|^2; P = (Z'Z + r I)^-1, mean = P Z'X; prior log-odds of column k are odds_on[k] to a row that
    has it and odds_off[k] to another, infinite if the bit is not free. Missing cells count as seen. Cost O(K (D + K))
    per row, with a logarithm and an exponential only for bits that are in doubt.
    """
    n_rows, K = Z.shape
    half_dims, half_precision = 0.5 * X.shape[1], 0.5 / noise_var
    G = np.dot(mean, mean.T)
    z, b, Pz, Gz = np.zeros((K, BLOCK)), np.empty((K, BLOCK)), np.empty((K, BLOCK)), np.empty((K, BLOCK))
    x = np.zeros((BLOCK, X.shape[1]))
    xx, q, zb, zGz, ee = np.zeros(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    left, q_out, s_out = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    least, most, ratio = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    total = 0.0
    for first in range(0, n_rows, BLOCK):
        width = min(BLOCK, n_rows - first)
        for r in range(width):
            xx[r] = square[first + r]
            for d in range(X.shape[1]):
                x[r, d] = X[first + r, d]
            for k in range(K):
                z[k, r] = Z[first + r, k]
        np.dot(mean, x.T, b)
        np.dot(P, z, Pz)
        np.dot(G, z, Gz)

        # --- each row taken out, as eq: own.row-removal; then g, G z - b and h are in the places of P z, b and G z
        q[:] = 0.0
        zb[:] = 0.0
        zGz[:] = 0.0
        for k in range(K):
            for r in range(BLOCK):
                q[r] += z[k, r] * Pz[k, r]
                zb[r] += z[k, r] * b[k, r]
                zGz[r] += z[k, r] * Gz[k, r]
        for r in range(BLOCK):
            left[r] = max(1.0 - q[r], 1e-12)
            ee[r] = xx[r] - 2.0 * zb[r] + zGz[r]
            q_out[r] = q[r] / left[r]
            s_out[r] = xx[r]
        for k in range(K):
            for r in range(BLOCK):
                g = Pz[k, r] / left[r]
                h = b[k, r] - Gz[k, r]
                b_out = b[k, r] - g * (xx[r] - zb[r])
                Gz_out = Gz[k, r] + g * (ee[r] * q_out[r] - zb[r] + zGz[r]) - h * q_out[r]
                s_out[r] += z[k, r] * (Gz_out - 2.0 * b_out)
                Pz[k, r] = g
                b[k, r] = Gz_out - b_out
                Gz[k, r] = h
        # --- 1 - 1 / ratio <= log ratio <= ratio - 1 tells whether a bit is in doubt
        for k in range(K):
            for r in range(BLOCK):
                g = Pz[k, r]
                step = 1.0 - 2.0 * z[k, r]
                odds = odds_on[k] if z[k, r] != 0.0 else odds_off[k]
                spread = 1.0 + max(q_out[r], 0.0)
                q_new = q_out[r] + 2.0 * step * g + P[k, k] + left[r] * g * g
                s_new = s_out[r] + 2.0 * step * b[k, r] + G[k, k] - 2.0 * g * Gz[k, r] + ee[r] * g * g
                new_spread = 1.0 + max(q_new, 0.0)
                ratio[r] = spread / new_spread
                size = half_precision * (s_out[r] - s_new * ratio[r]) / spread + step * odds
                least[r] = size + half_dims * (1.0 - new_spread / spread)
                most[r] = size + half_dims * (ratio[r] - 1.0)
            for r in range(width):
                if least[r] < _SURE and most[r] > -_SURE:
                    size = abs(most[r] + half_dims * (math.log(ratio[r]) - ratio[r] + 1.0))
                    t = math.exp(-size)
                    total += math.log1p(t) + size * t / (1.0 + t)
    return total


collapsed_entropy = jit(_collapsed_entropy)
