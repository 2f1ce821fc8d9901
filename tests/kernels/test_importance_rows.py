"""The sweep with importance births against its twin, and on one row whose posterior is known."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from problems import bits, few, mutant, plain, seeds
from reference.bits import importance_rows as twin

from thali.core.binary import non_empty
from thali.kernels.bits import importance_rows as kernel
from thali.priors import IBP, BetaBernoulli
from thali.testing import z_limit

PRIORS = {
    "IBP": IBP(mass=1.3),
    "discount": IBP(mass=1.0, concentration=2.0, discount=0.4),
    "finite": BetaBernoulli(mass=2.0),
}
NOISE, FEATURE = 0.3, 1.1


def run(sweep, seed, kind, n_rows, K, n_dims, missing, prior, room=0):
    """(K, Z, A, counts, X, a random number at the end) after a sweep with four candidates."""
    rng = np.random.default_rng(seed)
    Z = bits(rng, kind, n_rows, K)
    prior = PRIORS[prior]
    if isinstance(prior, BetaBernoulli):
        prior = prior.replace(n_features=K)
    else:
        Z = non_empty(Z)
    K = Z.shape[1]
    A = rng.standard_normal((K, n_dims))
    X = Z @ A + rng.standard_normal((n_rows, n_dims))
    holes = rng.random(X.shape) < missing
    starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
    dims = np.nonzero(holes)[1].astype(np.int64)
    Z, A = np.pad(Z, ((0, 0), (0, room))), np.pad(A, ((0, room), (0, 0)))
    counts = Z.sum(axis=0, dtype=np.int64)
    table, rate = prior.log_odds(n_rows), 5.0 * prior.new_rate(n_rows)
    K, Z, A, counts = sweep(X, starts, dims, Z, K, A, counts, table, rate, NOISE, FEATURE, 4, rng)
    assert not Z[:, K:].any()
    return K, Z[:, :K], A[:K], counts[:K], X, rng.random()


def same(mine, theirs):
    return mine[0] == theirs[0] and all(np.allclose(a, b, atol=1e-9) for a, b in zip(mine[1:], theirs[1:], strict=True))


@few
@given(
    seeds, st.sampled_from(["random", "zero", "own", "twins"]), st.integers(1, 12), st.integers(1, 5),
    st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.sampled_from(sorted(PRIORS)), st.sampled_from([0, 3, 40]),
)  # fmt: skip
@example(2, "own", 6, 5, 2, 0.0, "IBP", 0)
@example(3, "own", 6, 5, 2, 0.3, "IBP", 3)
def test_sweep_equals_its_twin(seed, kind, n_rows, K, n_dims, missing, prior, room):
    problem = (seed, kind, n_rows, K, n_dims, missing, prior, room)
    mine = run(kernel.importance_sweep, *problem)
    assert same(mine, run(twin.importance_sweep, *problem))
    assert np.array_equal(mine[3], mine[1].sum(axis=0))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("log_odds[counts[k] - Z[n, k]]", "log_odds[counts[k] - 1]"),
        ("e[d] -= own[j, d]", "e[d] -= 0.0"),
        ("math.exp(log_weight - log_total)", "math.exp(log_weight - top)"),
    ],
)
def test_a_mistake_is_seen(old, new):
    problems = [(seed, "random", 8, 4, 3, 0.2, "IBP") for seed in range(5)]
    right = [run(twin.importance_sweep, *problem) for problem in problems]
    for sweep, is_right in ((plain(kernel.importance_sweep), True), (mutant(kernel.importance_sweep, old, new), False)):
        found = [run(sweep, *problem) for problem in problems]
        assert all(map(same, found, right)) is is_right


def test_parts_equal_their_twins(rng):
    e, own, seen = rng.standard_normal(4), rng.standard_normal((3, 4)), np.array([True, False, True, True])
    assert np.isclose(kernel.log_fit(e, own, seen, 0.7), twin.log_fit(e, own, seen, 0.7))
    Z, A = np.ones((5, 3), np.uint8), rng.standard_normal((3, 2))
    arrays = (Z, A, Z.sum(axis=0, dtype=np.int64), A @ A.T, 2, 7)
    for mine, theirs in zip(kernel.enlarged(*arrays), twin.enlarged(*arrays), strict=True):
        assert np.array_equal(mine, theirs)


# --- one row, one dim: x = 2, mass 0.7, noise_var 0.25, feature_var 2.25 ---------------------------

EXACT = 0.0023  # P(the row has no feature)
PRINTED = {2: 0.505, 5: 0.275, 20: 0.018}  # by as many draws from the prior alone


def number_of_features(rng, sweep, n_candidates, n_replicates):
    """After one sweep from a draw of the posterior, which is p(k) ~ Poisson(k; 0.7) N(2; 0, 0.25 + 2.25 k)."""
    k = np.arange(30)
    log_factorial = np.cumsum(np.log(np.maximum(k, 1)))
    var = 0.25 + 2.25 * k
    p = np.exp(k * np.log(0.7) - log_factorial - 0.5 * np.log(var) - 2.0 / var)
    p /= p.sum()
    none = np.zeros(2, np.int64)
    table = IBP(mass=0.7).log_odds(1)
    after = np.zeros(n_replicates, int)
    for i, K in enumerate(rng.choice(30, size=n_replicates, p=p)):
        spread = 2.25 * (np.eye(K) - 1 / (K + 1 / 9))
        A = (np.linalg.cholesky(spread) @ rng.standard_normal(K) + 2 / (K + 1 / 9))[:, None]
        Z = np.ones((1, K), np.uint8)
        counts = np.ones(K, np.int64)
        after[i], *_ = sweep(np.full((1, 1), 2.0), none, none[:0], Z, K, A, counts, table, 0.7, 0.25, 2.25,
                             n_candidates, rng)  # fmt: skip
    return after, p


@pytest.mark.parametrize("n_candidates", PRINTED)
def test_one_row_has_its_posterior(n_candidates, rng):
    n = 20_000
    after, p = number_of_features(rng, kernel.importance_sweep, n_candidates, n)
    assert abs(p[0] - EXACT) < 5e-5
    common = p * n > 20
    z = (np.bincount(after, minlength=30) / n - p)[common] / np.sqrt(p * (1 - p) / n)[common]
    assert np.abs(z).max() <= z_limit(len(z)), z


@pytest.mark.parametrize("n_candidates", PRINTED)
def test_the_printed_version_has_another(n_candidates, rng):
    printed = mutant(
        kernel.importance_sweep, "log_total = log_fit(e, own, is_seen, half_precision)", "log_total = -np.inf"
    )
    n = 3_000
    with np.errstate(divide="ignore"):
        after, _ = number_of_features(rng, plain(printed), n_candidates + 1, n)
    share = np.mean(after == 0)
    known = PRINTED[n_candidates]
    error = np.sqrt(known * (1 - known) * (1 / n + 1 / 40_000))  # known from 40 000 draws
    assert abs(share - known) <= z_limit(1) * error, share
    assert share > 5 * EXACT
