"""The filter over rows against its twin, its re-entry when it runs out of room, and resampling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import few, mutant, seeds
from reference.bits import particles as twin

from thali.inference.streams.particle_filter import prior_tables
from thali.kernels.bits import particles as kernel
from thali.priors import IBP, BetaBernoulli

PRIORS = {
    "IBP": IBP(mass=1.3),
    "discount": IBP(mass=1.0, concentration=2.0, discount=0.4),
    "finite": BetaBernoulli(mass=2.0, n_features=4),
}


def run(filter_rows, seed, n_rows, n_dims, missing, prior, group, *, room=40, n_particles=6, pauses=100):
    """All arrays after a filter over random rows; the arrays are enlarged when it asks for it."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, 2)) @ rng.standard_normal((2, n_dims)) + 0.5 * rng.standard_normal(
        (n_rows, n_dims)
    )
    holes = rng.random(X.shape) < missing
    starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
    dims = np.nonzero(holes)[1].astype(np.int64)
    X[holes] = 0.0
    tables = prior_tables([PRIORS[prior]], 0, n_rows)
    n_features = PRIORS[prior].n_features
    n_features = -1 if n_features is None else n_features
    noise, feature = rng.uniform(0.2, 0.6, n_particles), rng.uniform(0.5, 2.0, n_particles)
    K, roots = np.zeros(n_particles, np.int64), np.arange(n_particles)
    filled, log_weight = np.zeros((n_particles, len(dims))), np.full(n_particles, -np.log(n_particles))
    n_new, source = np.zeros(n_particles, np.int64), np.zeros(n_particles, np.int64)
    shapes = {"Z": (n_rows, 0), "gram": (0, 0), "cross": (0, n_dims), "P": (0, 0), "G": (0, 0)}
    arrays = {
        name: np.zeros((n_particles, *shape), np.uint8 if name == "Z" else float) for name, shape in shapes.items()
    }
    trace = np.zeros((n_rows, 3))
    row, drawn, resampled = 0, False, 0
    while row < n_rows:
        for name, array in arrays.items():
            wide = {"Z": (n_rows, room), "cross": (room, n_dims)}.get(name, (room, room))
            larger = np.zeros((n_particles, *wide), array.dtype)
            larger[tuple(slice(size) for size in array.shape)] = array
            arrays[name] = larger
        row, drawn, n = filter_rows(
            X, starts, dims, arrays["Z"], K, arrays["gram"], arrays["cross"], arrays["P"], arrays["G"], filled,
            log_weight, roots, n_new, source, noise, feature, np.zeros(n_particles, np.int64), *tables, n_features,
            0, 0, row, drawn, group, 0.5 * n_particles, pauses, trace, rng,
        )  # fmt: skip
        resampled += n
        room += 3 if drawn else 0
    used = {
        name: [array[p, : K[p], : K[p]] for p in range(n_particles)] for name, array in arrays.items() if name in "PG"
    }
    flat = [np.concatenate([block.ravel() for block in blocks] or [np.zeros(0)]) for blocks in used.values()]
    bits = [arrays["Z"][p, :, : K[p]].ravel() for p in range(n_particles)]
    cross = [arrays["cross"][p, : K[p]].ravel() for p in range(n_particles)]
    return [K, roots, log_weight, trace, filled, *bits, *cross, *flat, np.array([resampled, rng.random()])]


def same(mine, theirs):
    return all(a.shape == b.shape and np.allclose(a, b, atol=1e-7) for a, b in zip(mine, theirs, strict=True))


@few
@given(
    seeds, st.integers(1, 9), st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.sampled_from(sorted(PRIORS)),
    st.sampled_from([0, 1, 3]),
)  # fmt: skip
def test_filter_equals_its_twin(seed, n_rows, n_dims, missing, prior, group):
    problem = (seed, n_rows, n_dims, missing, prior, group)
    assert same(run(kernel.filter_rows, *problem), run(twin.filter_rows, *problem))


@pytest.mark.parametrize("pauses", [1, 100])
def test_room_and_pauses_do_not_matter(pauses):
    problem = (5, 12, 3, 0.2, "IBP", 2)
    plenty = run(kernel.filter_rows, *problem)
    assert plenty[-1][0] > 0
    assert same(run(kernel.filter_rows, *problem, room=1, pauses=pauses), plenty)


def test_statistics_stay_right_over_many_rows():
    """200 rows with a rebuild every 64 of them, and features that are large against the noise."""
    problem = (6, 200, 3, 0.1, "IBP", 3)
    found = run(kernel.filter_rows, *problem, n_particles=3)
    assert same(found, run(twin.filter_rows, *problem, n_particles=3))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("filter_rows", "int(gram[p, k, k])", "max(int(gram[p, k, k]) - 1, 1)"),
        ("filter_rows", "log_weight[p] = -math.log(n_particles)", "log_weight[p] *= 1.0"),
        ("filter_rows", "q = n_new[p] / ridge", "q = 0.0"),
        ("filter_rows", "n_seen = n_dims - cells.size", "n_seen = n_dims"),
        ("insert_row", "to_g = h[i] + s * g[i]", "to_g = h[i]"),
        ("copy_particles", "roots[p] = roots[a]", "roots[p] = p"),
    ],
)
def test_a_mistake_is_seen(name, old, new, monkeypatch):
    monkeypatch.setattr(kernel, name, mutant(getattr(kernel, name), old, new))
    wrong = getattr(kernel.filter_rows, "py_func", kernel.filter_rows)
    problems = [(seed, 8, 3, 0.3, "IBP", 0) for seed in range(5)]
    agree = []
    for problem in problems:
        try:
            agree.append(same(run(wrong, *problem), run(twin.filter_rows, *problem)))
        except (IndexError, ValueError):
            agree.append(False)
    assert not all(agree)


@few
@given(seeds, st.integers(1, 30))
def test_resampling_is_systematic(seed, n):
    """Everyone has the whole part of n times its weight, or one more; survivors stay; the twin agrees."""
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.full(n, 0.3))
    u, mine, theirs = rng.random(), np.zeros(n, np.int64), np.zeros(n, np.int64)
    with np.errstate(divide="ignore"):
        kernel.pick_ancestors(np.log(weight), u, mine)
        twin.pick_ancestors(np.log(weight), u, theirs)
    assert np.array_equal(mine, theirs)
    offspring = np.bincount(mine, minlength=n)
    assert np.all(np.abs(offspring - n * weight) < 1 + 1e-9)
    assert np.array_equal(mine[offspring > 0], np.flatnonzero(offspring))


def test_small_parts_equal_their_twins(rng):
    n, K, D = 3, 4, 2
    columns, ridge = np.array([4, 2, 0]), np.array([0.3, 0.5, 1.0])
    Z = (rng.random((n, 6, K)) < 0.5).astype(float)
    gram, cross = np.einsum("pnk,pnj->pkj", Z, Z), rng.standard_normal((n, K, D))
    found = []
    for module in (kernel, twin):
        P, G, mean = np.zeros((n, K, K)), np.zeros((n, K, K)), np.zeros(K)
        module.rebuild_particles(columns, gram, cross, ridge, P, G)
        module.cell_means(1, K, P[0], cross[0], mean)
        wide = [np.zeros((K + 2, size)) for size in (K + 2, D, K + 2, K + 2)]
        for large, small in zip(wide, (gram[0], cross[0], P[0], G[0]), strict=True):
            large[:K, : small.shape[1]] = small
        z = np.array([1.0, 0, 1, 0, 1, 1])
        assert module.insert_row(z, K, 2, np.array([0.3, -1.0]), 0.3, *wide, np.zeros((6, K + 2))) == K + 2
        found.append(np.concatenate([a.ravel() for a in (P, G, mean, *wide)]))
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)
