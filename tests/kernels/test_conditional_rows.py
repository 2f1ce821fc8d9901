"""The uncollapsed sweep against its twin, and its re-entry when it runs out of room."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from problems import bits, few, mutant, plain, seeds
from reference.bits import conditional_rows as twin

from thali.core.binary import non_empty
from thali.kernels.bits import conditional_rows as kernel
from thali.priors import IBP, BetaBernoulli
from thali.testing import z_limit
from thali.testing.zscores import z_scores

PRIORS = {
    "IBP": IBP(mass=1.3),
    "discount": IBP(mass=1.0, concentration=2.0, discount=0.4),
    "finite": BetaBernoulli(mass=2.0),
}
NOISE, FEATURE = 0.3, 1.1


def run(module, seed, kind, n_rows, K, n_dims, missing, prior, room=40):
    """A sweep, enlarging the arrays when asked; (K, Z, A, counts, X, a random number at the end)."""
    rng = np.random.default_rng(seed)
    Z = bits(rng, kind, n_rows, K)
    prior = PRIORS[prior]
    if isinstance(prior, BetaBernoulli):
        prior, room = prior.replace(n_features=K), K
    else:
        Z = non_empty(Z)
    K = Z.shape[1]
    X = Z @ rng.standard_normal((K, n_dims)) + rng.standard_normal((n_rows, n_dims))
    holes = rng.random(X.shape) < missing
    starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
    dims = np.nonzero(holes)[1].astype(np.int64)
    dense = Z.astype(float)
    features = twin.draw_features(dense.T @ dense, dense.T @ X, K, NOISE, FEATURE, rng)
    row, pending = 0, -1
    room = max(room, K)
    while row < n_rows:
        wide, A, counts = np.zeros((n_rows, room), np.uint8), np.zeros((room, n_dims)), np.zeros(room, np.int64)
        wide[:, :K], A[:K], counts[:K] = Z, features, Z.sum(axis=0)
        table, rate = prior.log_odds(n_rows), prior.new_rate(n_rows)
        K, row, pending = module(X, starts, dims, wide, K, A, counts, table, rate, NOISE, FEATURE, row, pending, rng)
        Z, features, room = wide[:, :K], A[:K], K + max(pending, 0)
        assert not wide[:, K:].any()
    return K, Z, features, counts[:K], X, rng.random()


def same(mine, theirs):
    return mine[0] == theirs[0] and all(np.allclose(a, b, atol=1e-9) for a, b in zip(mine[1:], theirs[1:], strict=True))


@few
@given(
    seeds, st.sampled_from(["random", "zero", "own", "twins"]), st.integers(1, 12), st.integers(1, 5),
    st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.sampled_from(sorted(PRIORS)),
)  # fmt: skip
@example(2, "own", 6, 5, 2, 0.0, "IBP")
@example(3, "own", 6, 5, 2, 0.3, "IBP")
def test_sweep_equals_its_twin(seed, kind, n_rows, K, n_dims, missing, prior):
    problem = (seed, kind, n_rows, K, n_dims, missing, prior)
    mine = run(kernel.conditional_sweep, *problem)
    assert same(mine, run(twin.conditional_sweep, *problem))
    assert np.array_equal(mine[3], mine[1].sum(axis=0))


def test_without_room_it_asks_for_more():
    """The same law with the arrays enlarged on the way: the same bits of the twin with the same room."""
    problem = (5, "random", 10, 3, 2, 0.2, "IBP")
    mine = run(kernel.conditional_sweep, *problem, room=3)
    assert same(mine, run(twin.conditional_sweep, *problem, room=3))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m = counts[k] - Z[n, k]", "m = counts[k]"),
        (" + seen_square(gram[k, k], A, k, cells)", ""),
        ("e[d] / (n_new + ridge)", "e[d] / n_new"),
    ],
)
def test_a_mistake_is_seen(old, new):
    problems = [(seed, "random", 8, 4, 3, 0.2, "IBP") for seed in range(5)]
    right = [run(twin.conditional_sweep, *problem) for problem in problems]
    for sweep, is_right in (
        (plain(kernel.conditional_sweep), True),
        (mutant(kernel.conditional_sweep, old, new), False),
    ):
        with np.errstate(all="ignore"):
            found = [run(sweep, *problem) for problem in problems]
        assert all(map(same, found, right)) is is_right


def test_forms_equal_their_twin(rng):
    A, cells = rng.standard_normal((4, 5)), np.array([1, 3])
    mine, theirs = np.ones(4), np.ones(4)
    kernel.add_to_forms(2, -1.0, 3, A, A @ A.T, cells, mine)
    twin.add_to_forms(2, -1.0, 3, A, A @ A.T, cells, theirs)
    np.testing.assert_allclose(mine, theirs)


def test_features_have_their_posterior(rng):
    Z = np.array([[1, 0], [1, 1], [0, 1], [1, 0]], dtype=float)
    X = rng.standard_normal((4, 2))
    P = np.linalg.inv(Z.T @ Z + NOISE / FEATURE * np.eye(2))
    draws = np.array([kernel.draw_features(Z.T @ Z, Z.T @ X, 2, NOISE, FEATURE, rng) for _ in range(20_000)])
    centred = draws - P @ Z.T @ X
    products = np.einsum("rkd,rjd->rkj", centred, centred) / 2
    values = np.hstack([centred.reshape(-1, 4), products.reshape(-1, 4)])
    z = z_scores(values, np.concatenate([np.zeros(4), NOISE * P.ravel()]))
    assert np.abs(z).max() <= z_limit(8), z
    assert kernel.draw_features(np.zeros((0, 0)), np.zeros((0, 3)), 0, NOISE, FEATURE, rng).shape == (0, 3)


def test_columns_move_as_their_twin_says(rng):
    Z, A = (rng.random((6, 4)) < 0.5).astype(np.uint8), rng.standard_normal((4, 3))
    for target in (1, 3):
        results = []
        for module in (kernel, twin):
            arrays = [Z.copy(), A.copy(), Z.sum(axis=0, dtype=np.int64), np.zeros((4, 4))]
            for k in range(4):
                module.fill_gram(k, arrays[1], k + 1, arrays[3])
            np.testing.assert_allclose(arrays[3], A @ A.T)
            module.move_column(3, target, *arrays)
            results.append([arrays[0], arrays[1][:3], arrays[2][:3], arrays[3][:3, :3]])
        assert all(np.allclose(a, b) for a, b in zip(*results, strict=True))
        assert not results[0][0][:, 3].any()
