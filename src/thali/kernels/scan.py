"""What every scan over the bits of a row does: a fresh random order, a coin for each bit, the cells that are missing.

Missing cells of row n are `cells`, and is_seen[d] is false for them while the row is drawn.
"""

import math

from thali.kernels._jit import inlined


def _next_of(order, i, n, u):
    """The i-th of n in random order: one of order[i:n] by the uniform number u, which changes places with order[i]."""
    j = i + int(u * (n - i))
    k = order[j]
    order[j] = order[i]
    order[i] = k
    return k


def _is_heads(log_odds, u):
    """Whether a coin with these log-odds shows heads, by the uniform number u; beyond 40 they are certain."""
    return log_odds > 40.0 or (log_odds > -40.0 and u * (1.0 + math.exp(-log_odds)) < 1.0)


def _seen_product(A, k, row, is_seen):
    """Inner product of feature k with the cells of the row that are seen. (A slice of A would cost as much again.)"""
    total = 0.0
    for d in range(row.size):
        if is_seen[d]:
            total += A[k, d] * row[d]
    return total


def _seen_square(square, A, k, cells):
    """|feature k|^2 over the cells that are seen, given what it is over all."""
    for d in cells:
        square -= A[k, d] * A[k, d]
    return square


def _seen_forms(gram, A, K, cells, forms):
    """A A' of the first K features over the cells that are seen, given what it is over all."""
    for k in range(K):
        for j in range(K):
            total = gram[k, j]
            for d in cells:
                total -= A[k, d] * A[j, d]
            forms[k, j] = total


def _draw_missing(row, cells, is_seen, codes, A, K, noise_var, rng):
    """The missing cells of a row given its codes and the features; from now on they count as seen."""
    for d in cells:
        mean = 0.0
        for k in range(K):
            mean += codes[k] * A[k, d]
        row[d] = mean + math.sqrt(noise_var) * rng.standard_normal()
        is_seen[d] = True


def _slice_odds(chance, sizes, k, others, counts):
    """Log-odds of a bit of this chance whose feature `others` other rows have, under a slice below the smallest size
    in use.

    If no other row has it, the bit decides whether it is in use. eq: T07.slice-odds
    """
    log_odds = math.log(chance) - math.log1p(-chance)
    if others == 0:
        smallest = 1.0
        for j in range(sizes.size):
            if counts[j] > 0 and j != k and sizes[j] < smallest:
                smallest = sizes[j]
        log_odds += math.log(smallest) - math.log(min(smallest, sizes[k]))
    return log_odds


next_of = inlined(_next_of)
is_heads = inlined(_is_heads)
seen_product = inlined(_seen_product)
seen_square = inlined(_seen_square)
seen_forms = inlined(_seen_forms)
draw_missing = inlined(_draw_missing)
slice_odds = inlined(_slice_odds)
