"""Sweeps of models with weights against their twins; laws of a weight against quadrature."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from problems import bits, few, many, mutant, seeds
from reference.bits import conditional_rows as forms_twin
from reference.weights import encode_scaled as encode_twin
from reference.weights import scaled_rows as rows_twin
from reference.weights import scaled_slices as slices_twin
from reference.weights import slabs as slabs_twin
from reference.weights import swaps as swaps_twin

from thali.core.binary import non_empty
from thali.kernels.bits import conditional_rows
from thali.kernels.weights import encode_scaled, scaled_rows, scaled_slices, slabs, swaps
from thali.priors import IBP, BetaBernoulli
from thali.testing import z_limit
from thali.testing.zscores import z_scores

NORMAL = (0.0, 1.0 / 1.3, 0.5 * np.log(2 * np.pi * 1.3))
LAPLACE = (1.4, 0.0, np.log(2 / 1.4))
LAWS = {"normal": NORMAL, "laplace": LAPLACE, "both": (0.7, 0.4, 0.3)}
PRIORS = {
    "IBP": IBP(mass=1.3),
    "discount": IBP(mass=1.0, concentration=2.0, discount=0.4),
    "finite": BetaBernoulli(mass=2.0),
}
NOISE, FEATURE = 0.3, 1.1


# ---- the law of a weight


@many
@given(
    st.floats(-1e4, 1e4), st.floats(0, 1e4), st.sampled_from(sorted(LAWS)),
)  # fmt: skip
@example(0.0, 0.0, "laplace")
@example(-3.0, 1e-12, "laplace")
@example(0.5, 1e-9, "laplace")
def test_slab_equals_its_twin(b, c, law):
    b = b if c > 1e-3 else np.clip(b, -0.5, 0.5)  # a likelihood without curvature has no pull
    got, wanted = slabs.log_slab(b, c, *LAWS[law]), slabs_twin.log_slab(b, c, *LAWS[law])
    assert got == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("x", [-20.0, -1.0, 0.0, 2.9, 3.0, 3.1, 10.0, 1e3, 1e100])
def test_log_erfcx(x):
    assert slabs.log_erfcx(x) == pytest.approx(slabs_twin.log_erfcx(x), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(("b", "c"), [(0.8, 2.0), (3.0, 1.5), (-2.0, 0.7), (-12.0, 0.4)])
def test_golden_integrals(b, c):
    """Golden G22: log I, E s and E s^2 under exp(-|s| - c s^2 / 2 + b s)."""
    golden = {
        (0.8, 2.0): (0.181533708926, 0.237424602664, 0.362944616172),
        (3.0, 1.5): (2.02784935064, 1.37390899714, 2.48975307144),
        (-2.0, 0.7): (1.74431299401, -1.58430411764, 3.64596225451),
        (-12.0, 0.4): (152.627083899, -27.5, 758.75),
    }
    log_i, first, second = golden[b, c]
    assert slabs.log_slab(b, c, 1.0, 0.0, 0.0) == pytest.approx(log_i, rel=1e-9)
    assert slabs.slab_moments(b, c, 1.0, 0.0) == pytest.approx((first, second), rel=1e-9)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("b", "c"), [(0.0, 0.01), (0.3, 1.0), (-7.0, 2.0), (40.0, 5.0), (0.2, 300.0), (0.5, 1e-3)])
def test_moments_equal_quadrature(law, b, c):
    rate, precision, _ = LAWS[law]
    assert slabs.slab_moments(b, c, rate, precision) == pytest.approx(
        slabs_twin.slab_moments(b, c, rate, precision), rel=1e-7, abs=1e-9
    )


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("b", "c"), [(0.0, 0.0), (0.3, 1.0), (-7.0, 2.0), (40.0, 5.0)])
def test_draws_have_their_moments(law, b, c, rng):
    rate, precision, _ = LAWS[law]
    draws = np.array([slabs.draw_slab(b, c, rate, precision, rng) for _ in range(20_000)])
    wanted = slabs_twin.slab_moments(b, max(c, 1e-9), rate, precision)
    z = z_scores(np.column_stack([draws, draws**2]), np.array(wanted))
    assert np.abs(z).max() <= z_limit(2), z
    first, second = np.random.default_rng(5), np.random.default_rng(5)
    mine = [slabs.draw_slab(b, c, rate, precision, first) for _ in range(20)]
    theirs = [slabs_twin.draw_slab(b, c, rate, precision, second) for _ in range(20)]
    assert mine == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize(
    ("old", "new"),
    [("0.5 * b * b / curve - log_norm", "0.5 * b * b / curve"), ("math.exp(down - top)", "0.0")],
)
def test_a_wrong_slab_is_seen(old, new):
    wrong = mutant(slabs.log_slab, old, new)
    law = NORMAL if "norm" in old else LAPLACE
    assert wrong(0.3, 1.0, *law) != pytest.approx(slabs_twin.log_slab(0.3, 1.0, *law), rel=1e-6)


@pytest.mark.parametrize("law", ["normal", "laplace"])
@pytest.mark.parametrize("n_own", [0, 1, 3])
def test_own_features_equal_their_twin(law, n_own):
    rate, precision, _ = LAWS[law]
    for seed in range(20):
        results = []
        for module in (slabs, slabs_twin):
            rng = np.random.default_rng(seed)
            own = np.zeros((5, 2))
            own[:n_own, 0] = 0.5 + np.arange(n_own)
            ard = 2.5 * (seed % 2)
            n = module.draw_own(2.3, 3, own, n_own, NOISE, FEATURE, 0.6, rate, precision, ard, np.zeros((4, 5, 2)), rng)
            results.append([n, *own[:n].ravel(), rng.random()])
        assert results[0] == pytest.approx(results[1], rel=1e-9)


# ---- the sweeps


def problem(seed, kind, n_rows, K, n_dims, missing, prior, law):
    rng = np.random.default_rng(seed)
    Z = bits(rng, kind, n_rows, K)
    prior = PRIORS[prior]
    prior, Z = (prior.replace(n_features=K), Z) if isinstance(prior, BetaBernoulli) else (prior, non_empty(Z))
    K = Z.shape[1]
    V = Z * rng.standard_normal(Z.shape)
    X = V @ rng.standard_normal((K, n_dims)) + rng.standard_normal((n_rows, n_dims))
    holes = rng.random(X.shape) < missing
    starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
    features = forms_twin.draw_features(V.T @ V, V.T @ X, K, NOISE, FEATURE, rng)
    return rng, prior, V, X, features, starts, np.nonzero(holes)[1].astype(np.int64), LAWS[law]


def run_rows(sweep, *of, room=60):
    rng, prior, V, X, features, starts, dims, law = problem(*of)
    n_rows, K = V.shape
    most = 0 if isinstance(prior, BetaBernoulli) else 6
    row, room = 0, max(room, K) if most else max(K, 1)
    scales = rng.uniform(0.5, 2.0, K)
    while row < n_rows:
        wide, A, counts = np.zeros((n_rows, room)), np.zeros((room, X.shape[1])), np.zeros(room, np.int64)
        wide[:, :K], A[:K], counts[:K] = V, features, (V != 0).sum(axis=0)
        table, rate = prior.log_odds(n_rows), prior.new_rate(n_rows)
        scales = np.concatenate([scales[:K], np.ones(room)])[:room]
        K, row = sweep(
            X, starts, dims, wide, K, A, counts, scales, table, rate, NOISE, FEATURE, *law, 1.5, 4, most, row, rng
        )
        V, features, room = wide[:, :K], A[:K], K + most
        assert not wide[:, K:].any()
    return K, V, features, counts[:K], scales[:K], X, rng.random()


def run_slices(sweep, *of):
    rng, _, V, X, features, starts, dims, law = problem(*of)
    chances, kinds = rng.uniform(0.05, 0.95, (2, V.shape[1] + 2)), rng.integers(2, size=len(V))
    sizes, level = rng.uniform(0.05, 0.95, V.shape[1] + 2), 0.3 * (of[0] % 2)
    V = np.hstack([V, np.zeros((len(V), 2))])
    A = np.vstack([features, rng.standard_normal((2, X.shape[1]))])
    scales = rng.uniform(0.5, 2.0, V.shape[1])
    sweep(X, starts, dims, V, A, chances, kinds, sizes, level, scales, NOISE, *law, rng)
    return 0, V, X, rng.random()


def same(mine, theirs):
    if mine[0] != theirs[0] or any(np.shape(a) != np.shape(b) for a, b in zip(mine, theirs, strict=True)):
        return False
    return all(np.allclose(a, b, rtol=1e-7, atol=1e-8) for a, b in zip(mine[1:], theirs[1:], strict=True))


PROBLEMS = st.tuples(
    seeds, st.sampled_from(["random", "zero", "own", "twins"]), st.integers(1, 10), st.integers(1, 5),
    st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.sampled_from(sorted(PRIORS)),
    st.sampled_from(["normal", "laplace"]),
)  # fmt: skip


@few
@given(PROBLEMS)
@example((2, "own", 6, 5, 2, 0.3, "IBP", "normal"))
def test_sweep_equals_its_twin(of):
    mine = run_rows(scaled_rows.scaled_sweep, *of)
    assert same(mine, run_rows(rows_twin.scaled_sweep, *of))
    assert np.array_equal(mine[3], (mine[1] != 0).sum(axis=0))


def test_without_room_it_asks_for_more():
    of = (5, "random", 10, 3, 2, 0.2, "IBP", "laplace")
    assert same(run_rows(scaled_rows.scaled_sweep, *of, room=9), run_rows(rows_twin.scaled_sweep, *of, room=9))


@few
@given(PROBLEMS)
def test_slice_sweep_equals_its_twin(of):
    assert same(run_slices(scaled_slices.scaled_slice_sweep, *of), run_slices(slices_twin.scaled_slice_sweep, *of))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tau = 1.0 / (noise_var + power * feature_var)", "tau = 1.0 / noise_var"),
        ("others = counts[k] - (1 if V[n, k] != 0.0 else 0)", "others = counts[k] - 1"),
        ("e[d] / (ridge + power)", "e[d] / power"),
    ],
)
def test_a_mistake_is_seen(old, new):
    wrong = mutant(scaled_rows.scaled_sweep, old, new)
    problems = [(seed, "own" if "tau" in old else "random", 8, 4, 3, 0.2, "IBP", "normal") for seed in range(6)]
    with np.errstate(all="ignore"):
        agree = [same(run_rows(wrong, *of), run_rows(rows_twin.scaled_sweep, *of)) for of in problems]
    assert not all(agree)


def test_columns_move_as_in_the_twin(rng):
    for source, target in ((3, 1), (3, 3)):
        V, A, counts = rng.standard_normal((5, 4)), rng.standard_normal((4, 2)), np.arange(4)
        gram = np.zeros((4, 4))
        results = []
        for module in (conditional_rows, forms_twin):
            arrays = [V.copy(), A.copy(), counts.copy(), gram.copy()]
            for k in range(4):
                module.fill_gram(k, arrays[1], 4, arrays[3])
            module.move_column(source, target, *arrays)
            results.append(np.concatenate([np.ravel(a[..., :3] if a.ndim == 2 else a[:3]) for a in arrays]))
        np.testing.assert_allclose(*results)


# ---- new rows


@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_encoding_equals_its_twin(law, rng):
    A, x = rng.standard_normal((4, 5)), rng.standard_normal(5)
    seen = np.array([True, True, False, True, True])
    share, var = np.array([0.8, 0.15, 0.05]), np.array([0.0, 0.5, 2.0])
    odds = np.array([0.3, -1.0, 0.0, -2.0])
    mine, theirs = (
        f(x, seen, A, odds, NOISE, share, var, *LAWS[law], 20, 4, 2, 5, np.random.default_rng(1))
        for f in (encode_scaled.encode_scaled, encode_twin.encode_scaled)
    )
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_a_row_without_known_features():
    share, var, x = np.array([0.8, 0.2]), np.array([0.0, 2.0]), np.array([1.0, -0.5])
    law, odds = LAWS["normal"], np.zeros(0)
    found = encode_scaled.encode_scaled(
        x,
        np.array([True, False]),
        np.zeros((0, 2)),
        odds,
        NOISE,
        share,
        var,
        *law,
        5,
        2,
        1,
        2,
        np.random.default_rng(1),
    )
    variances = NOISE + var
    wanted = np.log(np.sum(share * np.exp(-0.5 / variances) / np.sqrt(2 * np.pi * variances)))
    assert found[-1] == pytest.approx(wanted, rel=1e-12)


# ---- swaps


def run_swaps(module, seed, missing, law, finite):
    rng, _, V, X, features, starts, dims, law = problem(seed, "random", 9, 5, 4, missing, "finite", law)
    features[1] = 0.9 * features[0] + 0.2 * features[1]
    prior = BetaBernoulli(mass=2.0, n_features=5) if finite else IBP(mass=1.3)
    counts = (V != 0).sum(axis=0)
    pairs = module.like_pairs(features)
    scales = rng.uniform(0.5, 2.0, 5)
    module.swap_features(X, starts, dims, V, features, counts, scales, pairs, prior.log_odds(9), NOISE, *law, rng)
    return len(pairs), pairs, V, counts, X, rng.random()


@pytest.mark.parametrize("finite", [False, True], ids=["infinite", "finite"])
@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_swaps_equal_their_twin(law, finite):
    for seed in range(12):
        mine = run_swaps(swaps, seed, 0.2, law, finite)
        assert same(mine, run_swaps(swaps_twin, seed, 0.2, law, finite))
        assert mine[0] >= 2
        assert np.array_equal(mine[3], (mine[2] != 0).sum(axis=0))
    assert swaps.like_pairs(np.zeros((0, 3))).shape == (0, 2)
