"""The steps that scans of rows share, against what they are by definition."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import many, mutant, seeds
from reference import scan as twin

from thali.kernels import scan
from thali.rng import make_generator


def orders(next_of):
    """The order for each combination of midpoints of 1/4, 1/3, 1/2: every one of 24 is equally likely."""
    found = []
    for places in itertools.product(range(4), range(3), range(2)):
        order = np.arange(4)
        for i, place in enumerate(places):
            assert next_of(order, i, 4, (place + 0.5) / (4 - i)) == order[i]
        found.append(tuple(order))
    return found


def test_every_order_is_equally_likely():
    assert sorted(orders(scan.next_of)) == sorted(itertools.permutations(range(4)))


@pytest.mark.parametrize("change", [("order[j] = order[i]", "pass"), ("(n - i)", "(n - i - 1)")])
def test_a_wrong_order_is_seen(change):
    with pytest.raises(AssertionError):
        assert sorted(orders(mutant(scan.next_of, *change))) == sorted(itertools.permutations(range(4)))


@pytest.mark.parametrize("log_odds", [-50.0, -3.0, 0.0, 0.7, 39.0, 41.0, math.inf, -math.inf])
def test_heads_come_with_their_probability(log_odds):
    chance = 1 / (1 + math.exp(-log_odds)) if log_odds > -700 else 0.0
    for u in (0.0, 0.1, 0.5, 0.66, 0.99, 1 - 1e-16):
        near = abs(log_odds) > 40 and u in (0.0, 1 - 1e-16)  # one in 10^17
        assert near or scan.is_heads(log_odds, u) == (u < chance)


@many
@given(seeds, st.integers(1, 6), st.integers(0, 4))
def test_a_row_equals_its_twin(seed, n_dims, K):
    rng = make_generator(seed)
    A, codes, row = rng.standard_normal((K + 1, n_dims)), rng.standard_normal(K + 1), rng.standard_normal(n_dims)
    is_seen = rng.random(n_dims) < 0.6
    cells, order, u = np.flatnonzero(~is_seen), rng.permutation(K + 2), rng.random(3)
    mine, other = ([row.copy(), is_seen.copy(), order.copy()] for _ in range(2))
    ways = []
    for part, (x, seen, places) in ((scan, mine), (twin, other)):
        numbers = [part.seen_product(A, 0, x, seen), part.seen_square(A[0] @ A[0], A, 0, cells)]
        numbers += [part.next_of(places, i, K + 2, u[i]) for i in range(2)] + [part.is_heads(codes[0], u[2])]
        part.draw_missing(x, cells, seen, codes, A, K, 4.0, make_generator(seed))
        forms = np.zeros((K, K))
        part.seen_forms(A @ A.T, A, K, cells, forms)
        ways.append([*numbers, *x, *seen, *places, *forms.ravel()])
    np.testing.assert_allclose(*ways, atol=1e-12)


@many
@given(seeds, st.integers(1, 5))
def test_slice_odds_equal_their_twin(seed, K):
    rng = make_generator(seed)
    sizes, counts, k = rng.uniform(0.01, 0.9, K), rng.integers(0, 3, K), int(rng.integers(K))
    others = max(int(counts[k]) - 1, 0)
    chance = rng.uniform(0.01, 0.9)
    ways = [part.slice_odds(chance, sizes, k, others, counts) for part in (scan, twin)]
    assert ways[0] == pytest.approx(ways[1])


def ratio(slice_odds, k, others, in_use):
    sizes = np.array([0.5, 0.02, 0.1])
    return slice_odds(sizes[k], sizes, k, others, np.array(in_use))


def test_a_bit_that_decides_what_is_in_use_moves_the_slice():
    """p(slice) = 1 / smallest chance in use, which the bit changes if it is on alone."""
    assert ratio(scan.slice_odds, 1, 3, [4, 3, 2]) == pytest.approx(math.log(0.02 / 0.98))
    assert ratio(scan.slice_odds, 1, 0, [4, 0, 2]) == pytest.approx(math.log(0.02 / 0.98) + math.log(0.1 / 0.02))
    assert ratio(scan.slice_odds, 1, 0, [0, 1, 0]) == pytest.approx(math.log(0.02 / 0.98) + math.log(1 / 0.02))
    assert ratio(scan.slice_odds, 2, 0, [4, 3, 0]) == pytest.approx(math.log(0.1 / 0.9))  # not the smallest


@pytest.mark.parametrize("change", [("and j != k", ""), ("others == 0", "others < 0"), ("counts[j] > 0 and ", "")])
def test_a_wrong_slice_is_seen(change):
    right = (scan.slice_odds, mutant(scan.slice_odds, *change))
    cases = [(1, 0, [0, 1, 0]), (1, 0, [4, 0, 2]), (2, 0, [4, 3, 0]), (0, 0, [1, 0, 0])]
    assert any(ratio(right[0], *case) != pytest.approx(ratio(right[1], *case)) for case in cases)
