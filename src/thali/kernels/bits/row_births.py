"""P(feature k first appears in the next row) from what is known of those so far: `priors/recursion.py`, compiled."""

import math

from thali.kernels._jit import jit

POISSON, INDEPENDENT, COMONOTONE, ANCHORED = 0, 1, 2, 3

_NEGLIGIBLE = 1e-30


def _upper_tails(rate, tails):
    """tails[j] = P(Poisson(rate) > j), as far as it matters. Returns how many there are."""
    p = math.exp(-rate)
    n = 0
    while n < tails.size and (n < rate or p > _NEGLIGIBLE):
        n += 1
        p *= rate / n
        tails[n - 1] = p  # P(Poisson = n)
    rest = 0.0
    if n == tails.size:  # what lies beyond the room
        i = n
        while i < rate or p > _NEGLIGIBLE:
            i += 1
            p *= rate / i
            rest += p
    for j in range(n - 1, -1, -1):
        rest += tails[j]
        tails[j] = rest
    return n


def _row_births(kind, exists, K, n_more, rate, births, below, order, tails):
    """births[k] = G(k-1) - (G * Poisson(rate))(k-1) for the K known features and `n_more` others, G the distribution
    function of the number of features so far: eq: own.births. The other arrays are room for as many numbers.

    Cost O(K) and a few terms each; O(K^2) for INDEPENDENT and for the sorting of COMONOTONE.
    """
    n = K + n_more
    n_tails = upper_tails(rate, tails)
    if kind == ANCHORED:
        for k in range(K):
            births[k] = 0.0
        for k in range(K, n):
            births[k] = tails[k - K] if k - K < n_tails else 0.0
        return
    for k in range(n):
        order[k] = k
        below[k] = 0.0  # P(so many features so far)
    if kind == POISSON:
        expected = 0.0
        for k in range(K):
            expected += exists[k]
        below[0] = math.exp(-expected)
        for k in range(1, n):
            below[k] = below[k - 1] * expected / k
    elif kind == COMONOTONE:
        for k in range(1, K):  # by decreasing chance to exist
            i = k
            while i > 0 and exists[order[i - 1]] < exists[k]:
                order[i] = order[i - 1]
                i -= 1
            order[i] = k
        last = 1.0
        for k in range(K):
            below[k] = last - exists[order[k]]
            last = exists[order[k]]
        if n > K:
            below[K] = last
    else:
        below[0] = 1.0
        for j in range(K):
            p = exists[j]
            for k in range(min(j + 1, n - 1), 0, -1):
                below[k] = (1.0 - p) * below[k] + p * below[k - 1]
            below[0] *= 1.0 - p
    for k in range(n):
        total = 0.0
        for i in range(max(0, k - n_tails + 1), k + 1):
            total += below[i] * tails[k - i]
        births[order[k]] = total


upper_tails = jit(_upper_tails)
row_births = jit(_row_births)
