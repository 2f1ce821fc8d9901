"""Which features of two draws are the same. Features have no labels: they are told by their codes, row by row."""

import numpy as np
from scipy.optimize import linear_sum_assignment

Array = np.ndarray

SAME = 0.5  # a pair can be the same feature only if its similarity is above this


def similarity(left: Array, right: Array) -> Array:
    """Jaccard index of each pair of columns: the rows that have both over the rows that have either."""
    left, right = left.astype(np.float32), right.astype(np.float32)  # whole numbers up to 2^24 are exact
    both = left.T @ right
    either = left.sum(axis=0)[:, None] + right.sum(axis=0) - both
    return both / np.maximum(either, 1.0)


def cosine(left: Array, right: Array) -> Array:
    """Of each pair of columns with weights."""
    left, right = left.astype(np.float32), right.astype(np.float32)
    size = np.linalg.norm(left, axis=0)[:, None] * np.linalg.norm(right, axis=0)
    return (left.T @ right) / np.maximum(size, 1e-30)


def match(similar: Array) -> Array:
    """The partner of each feature on the left among those on the right, -1 where it has none.

    Of all one-to-one assignments this has the largest sum of (similarity - SAME). A pair at or below SAME gains nothing
    and is dropped, which is exactly what dummies for births and deaths would do.
    """
    # eq: own.matching
    gain = np.maximum(similar - SAME, 0.0)
    left, right = linear_sum_assignment(gain, maximize=True)
    kept = gain[left, right] > 0.0
    partner = np.full(len(gain), -1)
    partner[left[kept]] = right[kept]
    return partner
