"""`reach_owners` and `draw_holders` against their twins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import many, mutant, plain, seeds
from reference.links import reach as twin

from thali.kernels.links import reach as kernel
from thali.priors.proximity.decays import WindowDecay
from thali.priors.proximity.distances import Times, proximities
from thali.priors.proximity.link_graph import LinkGraph


def random_links(seed, n_rows, n_features, forward):
    """Links anywhere, or to oneself and earlier rows only (`forward`: no circles)."""
    rng = np.random.default_rng(seed)
    links = rng.integers(0, np.arange(1, n_rows + 1) if forward else n_rows, size=(n_features, n_rows))
    return rng.integers(n_rows, size=n_features), links


def arrays_of(graph):
    g = graph.for_kernels
    return g.starts, g.targets, g.cumulative, g.into_starts, g.into_rows


@many
@given(seeds, st.integers(1, 12), st.integers(0, 5), st.booleans())
def test_reach_equals_its_twin(seed, n_rows, n_features, forward):
    owners, links = random_links(seed, n_rows, n_features, forward)
    wanted = twin.reach_owners(owners, links)
    for function in (kernel.reach_owners, plain(kernel.reach_owners)):
        got = function(owners, links)
        assert got.dtype == np.uint8
        assert np.array_equal(got, wanted)


def test_golden_reach():
    """G19: two circles, one of them the owner's, one a row that links to itself."""
    Z = kernel.reach_owners(np.array([2]), np.array([[1, 2, 2, 1, 3, 5, 4, 0]]))
    assert Z[:, 0].tolist() == [1, 1, 1, 1, 1, 0, 1, 1]


def test_the_owners_link_does_not_matter():
    for target in range(4):
        links = np.array([[1, 2, target, 3]])
        assert kernel.reach_owners(np.array([2]), links)[:, 0].tolist() == [1, 1, 1, 0]


def test_a_path_through_all_rows():
    links = np.maximum(np.arange(100_000) - 1, 0)[None]
    assert kernel.reach_owners(np.array([0]), links).all()
    assert kernel.reach_owners(np.array([50_000]), links).sum() == 50_000


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("found = 1 if state[j] == 1 else 2", "found = 2 if state[j] == 2 else 1"),  # a circle counts as reached
        ("state[owners[k]] = 1", "state[links[k, owners[k]]] = 1"),
        ("        for i in range(n_rows):\n            state[i] = 0\n", "        state[k % n_rows] = 0\n"),
    ],
)
def test_a_wrong_reach_is_seen(old, new):
    owners, links = random_links(3, 9, 6, False)
    wrong = mutant(kernel.reach_owners, old, new)(owners, links)
    assert not np.array_equal(wrong, twin.reach_owners(owners, links))


def graph_arrays(seed, n_rows, width, sequential):
    """Owners and the arrays of `draw_holders` for rows at random times."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, 5, n_rows))
    graph = LinkGraph(proximities(Times(times), WindowDecay(width), sequential))
    return rng.integers(n_rows, size=4), arrays_of(graph)


@many
@given(seeds, st.integers(1, 12), st.sampled_from([0.2, 1.0, 9.0]), st.booleans())
def test_draw_holders_equals_its_twin(seed, n_rows, width, sequential):
    owners, arrays = graph_arrays(seed, n_rows, width, sequential)
    wanted = twin.draw_holders(owners, *arrays, np.random.default_rng(seed))
    for function in (kernel.draw_holders, plain(kernel.draw_holders)):
        assert np.array_equal(function(owners, *arrays, np.random.default_rng(seed)), wanted)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if drawn_for[i] != k:", "if True:"),  # a row that is asked again links anew
        ("if link[i] == j:", "if link[i] <= j:"),
        ("if cumulative[middle] > u:", "if cumulative[middle] > 0.9 * u:"),
    ],
)
def test_wrong_holders_are_seen(old, new):
    wrong = mutant(kernel.draw_holders, old, new)
    differ = False
    for seed in range(20):
        owners, arrays = graph_arrays(seed, 8, 9.0, False)
        first, second = (np.random.default_rng(seed) for _ in range(2))
        differ |= not np.array_equal(wrong(owners, *arrays, first), twin.draw_holders(owners, *arrays, second))
    assert differ
