"""Sweeps of sparse factor analysis against their twins, and against numbers from the reference."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from problems import bits, few, mutant, seeds
from reference.weights import own_factors as own_twin
from reference.weights import sparse_replicates as replicates_twin
from reference.weights import sparse_rows as rows_twin
from scipy import stats

from thali.core.binary import non_empty
from thali.kernels.weights import own_factors, sparse_replicates, sparse_rows
from thali.priors import IBP, BetaBernoulli
from thali.testing import z_limit
from thali.testing.zscores import z_scores

PRIORS = {
    "IBP": IBP(mass=1.3),
    "discount": IBP(mass=1.0, concentration=2.0, discount=0.4),
    "finite": BetaBernoulli(mass=2.0),
}
LOADINGS = {"learned": (2.0, 1.5), "fixed": (0.0, 0.8)}
NOISES = {"learned": (3.0, 2.0, 0.0), "floor": (3.0, 2.0, 0.3), "fixed": (0.0, 0.0, 0.0)}


def run(sweep, seed, kind, n_rows, K, n_cells, missing, prior, loadings, noise, n_moves, room=60):
    rng = np.random.default_rng(seed)
    Z = bits(rng, kind, n_rows, K)
    prior = PRIORS[prior]
    prior, Z = (prior.replace(n_features=K), Z) if isinstance(prior, BetaBernoulli) else (prior, non_empty(Z))
    K = Z.shape[1]
    G, F = Z * rng.standard_normal(Z.shape), rng.standard_normal((K, n_cells))
    noise_vars, precisions = rng.uniform(0.4, 1.5, n_rows), rng.uniform(0.5, 2.0, K)
    Y = G @ F + rng.standard_normal((n_rows, n_cells))
    holes = rng.random(Y.shape) < missing
    Y[holes] = 0.0
    starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
    cells = np.nonzero(holes)[1].astype(np.int64)
    tables = prior.log_odds(n_rows), max(prior.new_rate(n_rows), 1e-300)
    most = 0 if isinstance(prior, BetaBernoulli) else max(n_moves, int(16 + 8 * 2.0 * tables[1]))
    row, room = 0, max(room, K) if most else max(K, 1)
    while row < n_rows:
        wide, values, lambdas = np.zeros((n_rows, room)), np.zeros((room, n_cells)), np.ones(room)
        wide[:, :K], values[:K], lambdas[:K] = G, F, precisions
        counts = np.count_nonzero(wide, axis=0)
        K, row = sweep(
            Y, starts, cells, wide, K, values, lambdas, counts, Y @ values.T, *tables, noise_vars,
            LOADINGS[loadings], NOISES[noise], n_moves, (2.0, 0.3), row, rng,
        )  # fmt: skip
        G, F, precisions, room = wide[:, :K], values[:K], lambdas[:K], K + most
        assert not wide[:, K:].any()
        assert np.array_equal(counts[:K], np.count_nonzero(G, axis=0))
    return [K, G, F, precisions, noise_vars, rng.random()]


def same(mine, theirs):
    if mine[0] != theirs[0]:
        return False
    return all(np.allclose(a, b, rtol=1e-6, atol=1e-7) for a, b in zip(mine[1:], theirs[1:], strict=True))


PROBLEMS = st.tuples(
    seeds, st.sampled_from(["random", "zero", "own", "twins"]), st.integers(1, 8), st.integers(1, 5),
    st.integers(1, 5), st.sampled_from([0.0, 0.3]), st.sampled_from(sorted(PRIORS)), st.sampled_from(sorted(LOADINGS)),
    st.sampled_from(sorted(NOISES)), st.sampled_from([0, 3]),
)  # fmt: skip


@few
@given(PROBLEMS)
@example((2, "own", 6, 5, 4, 0.3, "IBP", "learned", "learned", 3))
@example((3, "own", 6, 5, 4, 0.3, "IBP", "learned", "floor", 0))
def test_sweep_equals_its_twin(of):
    assert same(run(sparse_rows.sparse_sweep, *of), run(rows_twin.sparse_sweep, *of))


def test_without_room_it_asks_for_more():
    of = (5, "random", 10, 3, 4, 0.2, "IBP", "learned", "learned", 3)
    assert same(run(sparse_rows.sparse_sweep, *of, room=6), run(rows_twin.sparse_sweep, *of, room=6))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("others = counts[k] - (1 if G[n, k] != 0.0 else 0)", "others = counts[k] - 1"),
        ("cross[n, k] = np.dot(F[k], y)", "pass"),
        ("square -= g[k] * (cross[n, k] + r[k])", "square -= g[k] * cross[n, k]"),
        ("cells, seen_gram", "cells[:0], seen_gram"),
        ("noise_vars[n] = noise_var", "pass"),
    ],
)
def test_a_mistake_is_seen(old, new):
    wrong = mutant(sparse_rows.sparse_sweep, old, new)
    problems = [
        (seed, "own" if seed % 2 else "random", 8, 4, 4, 0.2, "IBP", "learned", "learned", 3) for seed in range(8)
    ]
    with np.errstate(all="ignore"):
        agree = [same(run(wrong, *of), run(rows_twin.sparse_sweep, *of)) for of in problems]
    assert not all(agree)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("missing", [False, True])
def test_replicates_equal_their_twin(noise, missing, rng):
    results = []
    Z = (rng.random((6, 4, 12)) < 0.4).astype(float)
    Z[:, :, 3:] = 0.0
    Z[:, 0, :3] = 1.0
    G = Z * rng.standard_normal(Z.shape)
    Y, noises = rng.standard_normal((6, 4, 3)), rng.uniform(0.5, 1.5, (6, 4))
    holes = np.zeros((4, 3), dtype=bool)
    holes[1, 2] = holes[3, 0] = missing
    prior = IBP(mass=0.7)
    for module in (sparse_replicates, replicates_twin):
        stream = np.random.default_rng(1)
        arrays = [Y.copy(), G.copy(), np.full(6, 3), np.ones((6, 12)), noises.copy()]
        full = module.sparse_replicates(
            arrays[0], holes, arrays[1], arrays[2], arrays[3], prior.log_odds(4), prior.new_rate(4), arrays[4],
            (2.0, 1.5), NOISES[noise], 2, (0.0, 0.0), stream,
        )  # fmt: skip
        arrays[3] = np.where(np.arange(12) < arrays[2][:, None], arrays[3], 0.0)
        results.append([full, *arrays, stream.random()])
    assert results[0][0] == results[1][0]
    for mine, theirs in zip(results[0][1:], results[1][1:], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n_own", [0, 1, 3])
def test_own_factors_equal_their_twins(n_own, rng):
    own = np.zeros((8, 2))
    own[:n_own] = rng.uniform(0.3, 1.2, (n_own, 2))
    assert own_factors.power_of(own, n_own) == pytest.approx(own_twin.power_of(own, n_own))
    e, is_seen = rng.standard_normal(5), np.array([True, True, False, True, True])
    for seed in range(20):
        results = []
        for module in (own_factors, own_twin):
            stream = np.random.default_rng(seed)
            one, two, three, F = own.copy(), own.copy(), own.copy(), np.zeros((8, 5))
            found = [module.birth_or_death(one, n_own, 3.0, 4, 0.6, 0.7, (2.0, 1.0), stream)]
            found += module.born_of_noise(two, n_own, 0.9, 0.7, (0.0, 0.5), (3.0, 1.0, 0.2), stream)
            found += [module.independent_own(three, n_own, 6, 3.0, 4, 0.6, 0.7, (2.0, 1.0), (2.0, 0.3), stream)]
            if n_own:
                module.draw_own_values(own, n_own, e, is_seen, 0.6, F, 1, stream)
            kept = [a[:n] for a, n in zip((one, two, three), (found[0], found[1], found[3]), strict=True)]
            results.append(np.concatenate([found, *map(np.ravel, kept), F.ravel(), [stream.random()]]))
        np.testing.assert_allclose(*results, rtol=1e-9, atol=1e-12)
    for n, share in itertools.product((0, 1, 4), (0.0, 0.3)):
        assert own_factors.log_proposed(n, 1.7, share) == pytest.approx(own_twin.log_proposed(n, 1.7, share))
        assert own_factors.log_number(n, 1.7) == pytest.approx(own_twin.log_number(n, 1.7))
    above, law = own_factors.log_noise(0.9, (3.0, 1.0, 0.2)), (3.0, 1.0, 0.2)
    differ = above - own_factors.log_noise(0.4, law)
    assert differ == pytest.approx(own_twin.log_noise(0.9, law) - own_twin.log_noise(0.4, law))
    assert own_factors.log_noise(0.1, law) == own_twin.log_noise(0.1, law) == -np.inf


# ---- numbers of the reference


def wave(c, n, m):
    return np.sin(c + 1.3 * np.arange(n)[:, None] + 0.7 * np.arange(m))


def test_golden_bit_and_loading():
    """Golden G4: how often a sweep draws one loading, all others as they are; and its mean and variance."""
    F, Y = wave(0.5, 3, 6), 2 * wave(0.1, 4, 6)
    G = np.array([[0.5, 0, -1], [0, 1.2, 0.3], [0.7, 0.4, 0], [0, 0, 0.9]])
    d, k, noise, precision = 1, 2, 0.5, 2.1
    y = (Y[d] - G[d] @ F + G[d, k] * F[k])[None]
    for concentration, chance in ((1.0, 0.521161281799), (2.5, 0.383452392656)):
        table, drawn = IBP(1.0, concentration).log_odds(4), []
        for seed in range(4000):
            loading = np.zeros((1, 4))
            loading[0, 0] = G[d, k]
            sparse_rows.sparse_sweep(
                y, np.zeros(2, np.int64), np.zeros(0, np.int64), loading, 1, np.vstack([F[k], np.zeros((3, 6))]),
                np.full(4, precision), np.array([3, 0, 0, 0]), np.array([[y[0] @ F[k], 0.0, 0.0, 0.0]]), table,
                1e-300, np.full(1, noise), (0.0, 1.0), (0.0, 0.0, 0.0), 1, (0.0, 0.0), 0, np.random.default_rng(seed),
            )  # fmt: skip
            drawn.append(loading[0, 0])
        drawn = np.array(drawn)
        on = drawn[drawn != 0]
        assert abs(len(on) / len(drawn) - chance) < 4 * np.sqrt(chance * (1 - chance) / len(drawn))
        z = z_scores(np.column_stack([on, (on + 0.444654224091) ** 2]), np.array([-0.444654224091, 1 / 6.79799614308]))
        assert np.abs(z).max() <= z_limit(2), z


def test_golden_acceptance():
    """Golden G5: the fit of proposed factors and the acceptance from the present ones."""
    square, n_cells, noise, rate, (boost, share) = 9.0, 6, 0.5, 0.4, (10.0, 0.1)
    new = own_factors.log_fit(0.5**2 + 1.1**2, square, n_cells, noise)
    old = own_factors.log_fit(0.8**2, square, n_cells, noise)
    assert new == pytest.approx(2.60580667125)
    ratio = new - old
    for n, sign in ((2, 1), (1, -1)):
        ratio += sign * (own_factors.log_number(n, rate) - own_factors.log_proposed(n, boost * rate, share))
    assert ratio == pytest.approx(-1.35396881647)


TRUE = np.array([0.105222657737, 0.632602620661, 0.219310664599, 0.0380326357598])  # G6: P(number of own factors)
PRINTED = np.array([0.948432531605, 0.0364579142843, 0.0126392290364, 0.00219188243812])  # G7, of Algorithm 1


def numbers_of_own(step, n_chains=400, n_steps=200):
    """Numbers of own factors after so many steps from none."""
    found = []
    for seed in range(n_chains):
        rng, own, n = np.random.default_rng(seed), np.zeros((60, 2)), 0
        for _ in range(n_steps):
            n = step(own, n, rng)
        found.append(n)
    return np.bincount(np.minimum(found, 4), minlength=5)


def births(own, n, rng):
    return own_factors.birth_or_death(own, n, 8.0, 4, 0.5, 0.5, (0.0, 1.0), rng)


def proposals(own, n, rng):
    return own_factors.independent_own(own, n, 40, 8.0, 4, 0.5, 0.5, (0.0, 1.0), (2.0, 0.2), rng)


def printed(own, n, rng):
    """Algorithm 1 as printed: own factors are dropped first, and the proposal is accepted against none."""
    return own_factors.independent_own(own, 0, 40, 8.0, 4, 0.5, 0.5, (0.0, 1.0), (10.0, 0.1), rng)


@pytest.mark.parametrize(("step", "wanted"), [(births, TRUE), (proposals, TRUE), (printed, PRINTED)])
def test_golden_numbers_of_own_factors(step, wanted):
    counts = numbers_of_own(step, n_chains=3000 if step is printed else 1500, n_steps=1 if step is printed else 80)
    expected = np.append(wanted, 1 - wanted.sum()) * counts.sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-4, (counts, expected)
    other = np.append(TRUE if step is printed else PRINTED, 0.0)
    other[-1] = 1 - other.sum()
    assert stats.chisquare(counts, other * counts.sum()).pvalue < 1e-12


def test_golden_values_of_own_factors(rng):
    """Golden G8: mean and covariance of the values of own factors."""
    g, noise = np.array([0.5, -1.2, 0.8]), 0.5
    own = np.column_stack([g, np.ones(3)])
    e = np.full(40_000, 1.7)
    F = np.zeros((3, len(e)))
    own_factors.draw_own_values(own, 3, e, np.ones(len(e), dtype=bool), noise, F, 0, rng)
    mean = np.array([0.30035335689, -0.720848056537, 0.480565371025])
    cov = np.array([[0.911660777385, 0.212014134276, -0.141342756184], [0.212014134276, 0.491166077739, 0.339222614841],
                    [-0.141342756184, 0.339222614841, 0.773851590106]])  # fmt: skip
    assert np.abs(F.mean(axis=1) - mean).max() < 5 * np.sqrt(1 / len(e))
    assert np.abs(np.cov(F) - cov).max() < 5 * np.sqrt(2 / len(e))
