"""Sweeps over links and moves of ownership against their twins, golden values, and what a mistake would give."""

import numpy as np
import pytest
from linked_problems import NOISE, PRIORS, RIDGE, problem, room_for
from problems import mutant, plain
from reference.links import column_part as part_twin
from reference.links import link_sweep as sweep_twin
from reference.links import ownership as ownership_twin

from thali import DistanceDependentIBP, ExponentialDecay
from thali.kernels.links import column_part, link_sweep, owner_shift, ownership, trees
from thali.kernels.links.layout import work_space
from thali.rng import make_generator


def swept(function, name, seed):
    """Z, links, inverse, features and the next uniform after a sweep over the links."""
    _, graph, columns, K, _ = problem(name, seed)
    rng = make_generator(seed)
    found = function(graph, columns, *work_space(columns), K, 3, NOISE, RIDGE, rng)
    used = columns.P[:K, :K], columns.mu[:K], columns.gram[:K, :K], columns.cross[:K]
    return columns.Z, columns.links[:K], np.array(found), *used, rng.random()


def exchanged(function, name, seed, jointly=False):
    """The same after proposals of numbers of owned features."""
    prior, graph, columns, K, _ = problem(name, seed)
    spare = room_for(columns.X, columns.Z[:, :0], np.zeros((0, 6), dtype=np.int64), 12)
    owners = np.zeros(12, dtype=np.int64)
    owners[:K] = (columns.links[:K] == np.arange(6)).argmax(axis=1)
    rng = make_generator(seed)
    wanted = rng.poisson(prior.owner_rates())
    arguments = graph, columns, spare, *work_space(columns), K, owners, wanted, jointly, 0, NOISE, RIDGE, rng
    K, *found = function(*arguments)
    used = columns.P[:K, :K], columns.mu[:K], columns.gram[:K, :K], columns.cross[:K]
    return columns.Z, columns.links[:K], owners[:K], np.array(found), *used, rng.random()


def same(got, wanted):
    return all(np.shape(a) == np.shape(b) and np.allclose(a, b, atol=1e-8) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("name", PRIORS)
def test_sweeps_equal_their_twins(name):
    for seed in range(8):
        for function in (link_sweep.link_sweep, plain(link_sweep.link_sweep)):
            assert same(swept(function, name, seed), swept(sweep_twin.link_sweep, name, seed))
        for jointly in (False, True):
            for function in (ownership.ownership_sweep, plain(ownership.ownership_sweep)):
                wanted = exchanged(ownership_twin.ownership_sweep, name, seed, jointly)
                assert same(exchanged(function, name, seed, jointly), wanted)


def with_mutant(monkeypatch, module, name, old, new):
    """A kernel with a mistake in the place of the right one, in all modules of the sweeps."""
    wrong = mutant(getattr(module, name), old, new)
    monkeypatch.setattr(link_sweep, "shift_owner", plain(owner_shift.shift_owner))  # which calls others by name
    for other in (link_sweep, ownership, owner_shift, trees, column_part):
        if hasattr(other, name):
            monkeypatch.setattr(other, name, wrong)


MISTAKES = {
    "the likelihood of one row": (
        link_sweep, "sweep_column", "part, K, tree.stack, n_moved, sign, visit", "part, K, tree.stack, 1, sign, visit",
    ),
    "the owner's link": (trees, "turn_path", "if u >= ratio", "if u >= 1e9"),
    "odds of one link": (link_sweep, "sweep_column", "math.log(into / apart)", "math.log(into)"),
    "a shift without the heirs": (owner_shift, "shift_owner", " * others)", ")"),
    "a shift without the other rows": (owner_shift, "log_shift", "sign * p / tree.mass[i]", "0.0"),
    "the old inverse": (column_part, "take_column", "share = P[i, k] / P[k, k]", "share = P[i, k]"),
    "the features as they were": (column_part, "put_column", "mu[i, d] -= share", "mu[i, d] -= 0.0 * share"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_link_is_seen(mistake, monkeypatch):
    module, name, old, new = MISTAKES[mistake]
    with_mutant(monkeypatch, module, name, old, new)
    found = [
        same(swept(plain(link_sweep.link_sweep), prior, seed), swept(sweep_twin.link_sweep, prior, seed))
        for prior in ("skewed", "ordered")
        for seed in range(8)
    ]
    assert not all(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("< gain:", "< gain + math.log(n_born + 1.0):"),  # a binomial factor
        ("< gain:", "< -gain:"),
        ("place = t + int(rng.random() * (n_mine - t))", "place = n_mine - 1 - t"),  # the last one goes
    ],
)
def test_a_mistake_in_ownership_is_seen(old, new):
    wrong = mutant(ownership.ownership_sweep, old, new)
    names = ("symmetric", "ordered")
    pairs = [(name, seed) for name in names for seed in range(12)]
    assert not all(same(exchanged(wrong, *p), exchanged(ownership_twin.ownership_sweep, *p)) for p in pairs)


def test_likelihood_changes_equal_dense_ones():
    """A thousand changes of parts of a column, each from the state that the one before left."""
    rng = np.random.default_rng(3)
    Z = (rng.random((14, 5)) < 0.4).astype(np.uint8)
    X = rng.standard_normal((14, 3)) * 1.5
    columns = room_for(X, Z, np.full((5, 14), -1), 5)
    part, _ = work_space(columns)
    worst = 0.0
    before = part_twin.log_likelihood(X, Z, NOISE, RIDGE)
    for _ in range(1000):
        k, rows = int(rng.integers(5)), rng.permutation(14)[: rng.integers(1, 9)]
        part.known[:] = -1
        change = column_part.column_change(columns, part, 5, k, rows, NOISE, RIDGE)
        columns.Z[rows, k] ^= 1
        after = part_twin.log_likelihood(X, columns.Z, NOISE, RIDGE)
        worst = max(worst, abs(change - (after - before)) / max(1.0, abs(after)))
        dense = columns.Z.astype(float)
        columns.gram[:], columns.cross[:] = dense.T @ dense, dense.T @ X
        before = after
    assert worst < 1e-9


# ---- golden values

GOLDEN_X = np.array([[0.9, -0.3], [0.4, 1.1], [-0.7, 0.2], [0.5, 0.5]])
DISHES = ((0, (0, 0, 1, 2)), (2, (1, 2, 3, 3)), (3, (0, 0, 2, 2)))


def golden():
    """The state of G20."""
    distances = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    prior = DistanceDependentIBP(2.5, distances=distances, decay=ExponentialDecay(0.5))
    Z = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 0, 1]], dtype=np.uint8)
    links = np.array([np.where(Z[:, k] == 1, dish[1], -1) for k, dish in enumerate(DISHES)])
    links[np.arange(3), [dish[0] for dish in DISHES]] = [dish[0] for dish in DISHES]
    noise, feature = 0.36, 1.21
    return prior, room_for(GOLDEN_X, Z, links, 6), noise, noise / feature


def test_golden_subtree():
    _, _columns, _, _ = golden()
    _, tree = work_space(room_for(np.zeros((8, 1)), np.zeros((8, 1), np.uint8), np.full((1, 8), -1), 1))
    tree.link[:] = [1, 2, 2, 1, 3, 5, 4, 0]
    tree.head[:] = -1
    for i in range(8):
        if i != 2:  # the owner
            trees.link_back(tree, i)
    tree.state[:] = [1, 1, 1, 1, 1, 0, 1, 1]
    assert sorted(tree.stack[: trees.subtree(tree, 1)]) == [0, 1, 3, 4, 6, 7]
    assert np.flatnonzero(tree.state == 1).tolist() == [2]


def test_golden_links():
    """G20 and G27: the probabilities of a link, and a change of likelihood."""
    for dish, customer, wanted in (
        (0, 1, [0.11248342018, 0.44950974442, 0.27264144183, 0.16536539358]),
        (1, 3, [0.11484861283, 0.18935335088, 0.31219089728, 0.38360713901]),
    ):
        prior, columns, noise, ridge = golden()
        part, tree = work_space(columns)
        owner = link_sweep.load_column(columns, tree, dish)
        tree.link[:] = DISHES[dish][1]
        for i in range(4):
            if i != owner:
                trees.link_back(tree, i)
        was_on = tree.state[customer] == 1
        moved = tree.stack[: trees.subtree(tree, customer)].copy()
        change = column_part.column_change(columns, part, 3, dish, moved, noise, ridge)
        if dish == 0:
            assert abs(change - 0.88535169742) < 1e-9
        ratio = np.exp(-change if was_on else change)
        a = prior.link_probs().toarray()[customer]
        weight = np.where(tree.state == 1, a * ratio, a)
        assert np.allclose(weight / weight.sum(), wanted, atol=1e-10)


def test_golden_birth():
    """G21: a feature of row 1 with links 0, 0, 1, 1."""
    _, columns, noise, ridge = golden()
    part, _ = work_space(columns)
    column_part.invert(columns, 3, -1, ridge)
    gain = ownership.add_column(columns, part, 3, np.zeros(6, bool), np.array([1, 2, 3]), 3, noise, ridge)
    assert abs(gain + 0.17942568352) < 1e-9


# ---- trees


def test_trees_are_drawn_in_proportion_to_their_links():
    """Wilson's algorithm on rows 0 to 2 of four, all three trees into row 0."""
    graph = PRIORS["skewed"].kernel_graph()
    a = PRIORS["skewed"].link_probs().toarray()
    _, tree = work_space(room_for(np.zeros((6, 1)), np.zeros((6, 1), np.uint8), np.full((1, 6), -1), 1))
    rng, counts, n = make_generator(0), {}, 4000
    for _ in range(n):
        tree.state[:] = [1, 1, 1, 0, 0, 0]
        assert trees.draw_wilson(graph, 0, tree, 10_000, rng)
        key = int(tree.link[1]), int(tree.link[2])
        counts[key] = counts.get(key, 0) + 1
    weight = {(0, 0): a[1, 0] * a[2, 0], (0, 1): a[1, 0] * a[2, 1], (2, 0): a[1, 2] * a[2, 0]}
    total = sum(weight.values())
    assert counts.keys() == weight.keys()
    for key, count in counts.items():
        p = weight[key] / total
        assert abs(count - n * p) < 5 * np.sqrt(n * p * (1 - p))
