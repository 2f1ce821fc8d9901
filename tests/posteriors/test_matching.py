"""Features of two draws are matched by who has them; births and deaths stay unmatched."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from thali.posteriors.matching import SAME, match, similarity


def bits(rng, n_rows, n_features, share=0.5):
    return (rng.random((n_rows, n_features)) < share).astype(np.uint8)


def test_similarity_is_the_share_of_rows_in_common(rng):
    left, right = bits(rng, 30, 3), bits(rng, 30, 4)
    for i, j in itertools.product(range(3), range(4)):
        a, b = set(np.flatnonzero(left[:, i])), set(np.flatnonzero(right[:, j]))
        assert similarity(left, right)[i, j] == pytest.approx(len(a & b) / len(a | b))


def test_a_permutation_is_undone(rng):
    Z = bits(rng, 50, 6, 0.3)
    order = rng.permutation(6)
    assert np.array_equal(match(similarity(Z[:, order], Z)), order)


def test_births_and_deaths_have_no_partner(rng):
    Z = bits(rng, 50, 4, 0.3)
    Z[0] = 1
    other = np.zeros((50, 1), dtype=np.uint8)
    other[7] = 1
    assert match(similarity(Z, np.hstack([other, Z[:, [2, 0]]]))).tolist() == [2, -1, 1, -1]


def test_empty_sides():
    none, some = np.zeros((5, 0), dtype=np.uint8), np.ones((5, 2), dtype=np.uint8)
    assert match(similarity(none, some)).shape == (0,)
    assert match(similarity(some, none)).tolist() == [-1, -1]
    assert match(similarity(some, np.zeros_like(some))).tolist() == [-1, -1]


def by_hand(similar):
    """The best total of similarity - SAME over all one-to-one assignments of any size."""
    n, m = similar.shape
    best = 0.0
    for size in range(1, min(n, m) + 1):
        for left in itertools.combinations(range(n), size):
            for right in itertools.permutations(range(m), size):
                chosen = similar[list(left), list(right)]
                if (chosen > SAME).all():
                    best = max(best, float((chosen - SAME).sum()))
    return best


def total(similar, partner):
    left = np.flatnonzero(partner >= 0)
    assert len(set(partner[left])) == len(left)
    assert (similar[left, partner[left]] > SAME).all()
    return float((similar[left, partner[left]] - SAME).sum())


def without_dummies(similar):
    """Wrong: the best assignment of all, pairs below SAME thrown out afterwards."""
    left, right = linear_sum_assignment(similar, maximize=True)
    partner = np.full(len(similar), -1)
    kept = similar[left, right] > SAME
    partner[left[kept]] = right[kept]
    return partner


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 4))
def test_no_assignment_is_better(seed, n, m):
    similar = np.random.default_rng(seed).random((n, m))
    assert total(similar, match(similar)) == pytest.approx(by_hand(similar))


def test_matching_without_dummies_is_seen():
    similar = np.array([[0.6, 0.49], [0.49, 0.0]])  # the two poor pairs together outweigh the good one
    assert match(similar).tolist() == [0, -1]
    assert total(similar, without_dummies(similar)) < by_hand(similar)


def test_it_is_quick(rng):
    """200 draws of 1797 x 80 in much less than a second on an idle machine."""
    Z = bits(rng, 1797, 80, 0.2)
    draws = [(Z ^ bits(rng, 1797, 80, 0.01))[:, rng.permutation(80)] for _ in range(20)]
    best = np.inf
    with threadpool_limits(limits=1, user_api="blas"):
        for _ in range(5):
            start = time.perf_counter()
            assert all((match(similarity(Z, draw)) >= 0).all() for draw in draws)
            best = min(best, time.perf_counter() - start)
    assert best < 0.1
