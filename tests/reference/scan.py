"""Twin of thali.kernels.scan."""

import numpy as np
from scipy.special import expit, logit


def next_of(order, i, n, u):
    left = list(order[i:n])
    place = int(u * len(left))
    order[i], order[i + place] = left[place], left[0]
    return order[i]


def is_heads(log_odds, u):
    return u < expit(log_odds)


def seen_product(A, k, row, is_seen):
    return A[k, is_seen] @ row[is_seen]


def seen_square(square, A, k, cells):
    return square - np.sum(A[k, cells] ** 2)


def seen_forms(gram, A, K, cells, forms):
    others = np.delete(A[:K], cells, axis=1)
    forms[:K, :K] = others @ others.T


def draw_missing(row, cells, is_seen, codes, A, K, noise_var, rng):
    row[cells] = (codes[:K] @ A[:K])[cells] + np.sqrt(noise_var) * rng.standard_normal(len(cells))
    is_seen[cells] = True


def slice_odds(chance, sizes, k, others, counts):
    """p(slice) is one over the smallest size in use."""
    used = np.asarray(counts) > 0
    used[k] = False
    without = np.append(sizes[used], 1.0).min()
    used[k] = True
    return logit(chance) + (np.log(without / sizes[used].min()) if others == 0 else 0.0)
