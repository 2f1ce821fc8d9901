"""Links by the evidence of rows: against the twin, against the exact law of one feature, and with mistakes."""

import itertools

import numpy as np
import pytest
from linked_problems import PRIORS, problem
from problems import mutant, plain
from reference.links import evident_links as twin
from reference.weights import slab_rows as slabs_twin

from thali.kernels.links import evident_links as kernel
from thali.kernels.links.layout import tree_space
from thali.kernels.weights import slab_rows
from thali.rng import make_generator
from thali.testing.zscores import z_limit, z_scores

EVIDENCE = np.array([1.5, -2.0, 0.5, 1.0, -0.5, 0.8])


def drawn(function, name, seed):
    _, graph, columns, _, _ = problem(name, seed)
    rng, bits, links = make_generator(seed), columns.Z[:, 0].copy(), columns.links[0].copy()
    function(graph, bits, links, EVIDENCE * (1 + seed % 3), tree_space(6), 3, rng)
    return bits, links, rng.random()


def same(got, wanted):
    return all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("name", PRIORS)
def test_draws_equal_their_twin(name):
    for seed in range(12):
        wanted = drawn(twin.evident_links, name, seed)
        assert same(drawn(kernel.evident_links, name, seed), wanted)
        assert same(drawn(plain(kernel.evident_links), name, seed), wanted)


def test_shifts_equal_their_twin():
    for name, seed in itertools.product(("ordered", "ordered window"), range(12)):
        _, graph, columns, _, _ = problem(name, seed)
        found = []
        for function in (kernel.evident_shift, twin.evident_shift):
            rng, tree = make_generator(seed), tree_space(6)
            tree.state[:] = columns.Z[:, 0]
            kernel.weigh_links(graph, tree)
            for _ in range(5):
                function(graph, tree, EVIDENCE, rng)
            found.append((tree.state.copy(), rng.random()))
        assert same(*found)


MISTAKES = [
    ("gain += evidence[tree.stack[t]]", "gain = evidence[i]"),  # the evidence of one row
    ("math.log(into / apart) + gain", "math.log(into) + gain"),
    ("heir = int(rng.random() * n_on)", "heir = 0"),
]


@pytest.mark.parametrize(("old", "new"), MISTAKES)
def test_a_mistake_is_seen(old, new):
    wrong, pairs = mutant(kernel.evident_links, old, new), list(itertools.product(("skewed", "ordered"), range(12)))
    assert not all(same(drawn(wrong, *pair), drawn(twin.evident_links, *pair)) for pair in pairs)


def law_scores(function, name: str, n: int) -> np.ndarray:
    """z-scores of the bits of one feature after a draw that starts from their exact law p(set) exp(evidence)."""
    prior, rng = PRIORS[name], make_generator(8)
    sets = np.array([bits for bits in itertools.product((0, 1), repeat=6) if any(bits)], dtype=np.uint8)
    log_p = np.array([prior._graph.log_history_rates(bits[:, None])[0] for bits in sets]) + sets @ EVIDENCE
    chances = np.exp(log_p - np.logaddexp.reduce(log_p))
    graph, tree = prior.kernel_graph(), tree_space(6)
    found = np.zeros((n, 6 + 15))
    pairs = np.triu_indices(6, 1)
    for i, start in enumerate(rng.choice(len(sets), size=n, p=chances)):
        bits = sets[start].copy()
        links = prior.draw_links(rng, bits[:, None])[0].copy()
        function(graph, bits, links, EVIDENCE, tree, 2, rng)
        found[i] = [*bits, *np.outer(bits, bits)[pairs]]
    dense = sets.astype(float)
    wanted = np.hstack([dense, np.einsum("si,sj->sij", dense, dense)[:, *pairs]])
    return z_scores(found, chances @ wanted)


@pytest.mark.parametrize("name", ["skewed", "ordered"])
def test_one_feature_has_its_exact_law(name):
    scores = law_scores(kernel.evident_links, name, 4_000)
    assert np.abs(scores).max() < z_limit(len(scores))


def test_the_evidence_of_one_row_is_not_enough():
    scores = law_scores(mutant(kernel.evident_links, *MISTAKES[0]), "skewed", 1_500)
    assert np.abs(scores).max() > z_limit(len(scores))


@pytest.mark.parametrize("rate", [0.0, 1.2])
def test_weights_of_a_feature_equal_their_twins(rate):
    pulls, bits, law = np.array([0.4, -2.0, 1.1]), np.array([1, 0, 1], dtype=np.uint8), (rate, 0.8)
    found = []
    for part in (slab_rows, slabs_twin):
        evidence, codes = np.zeros(3), np.ones(3)
        part.log_slabs(pulls, 0.7, *law, 0.3, evidence)
        part.draw_slabs(bits, pulls, 0.7, 1.5, *law, codes, make_generator(2))
        found.append([*evidence, *codes])
    np.testing.assert_allclose(*found)
