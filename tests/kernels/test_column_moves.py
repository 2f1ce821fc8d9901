"""Moves of whole columns against their twins, and their target against the model's own probabilities."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import bits, few, many, mutant, plain, seeds
from reference.bits import column_moves as twin
from reference.bits import move_replicates as twin_replicates

from thali import IBP, BetaBernoulli, LinearGaussian
from thali.core.binary import history_counts
from thali.core.protocols.engines.chains import MarginalRows
from thali.inference.samplers.column_moves import column_weight
from thali.kernels.bits import column_moves as kernel
from thali.kernels.bits import move_replicates as replicates
from thali.testing.geweke import simulate_replicates

TABLES = {"xor": (0, 1, 1, 0), "or": (0, 1, 1, 1), "and not": (0, 0, 1, 0), "complement": (1, 1, 0, 0)}


def problem(seed, n_rows, K, n_dims, kind="random", room=3):
    """(X, Z, K, gram, cross) of data that resemble Z A + noise."""
    rng = np.random.default_rng(seed)
    Z = np.zeros((n_rows, K + room), np.uint8)
    Z[:, :K] = bits(rng, kind, n_rows, K)
    X = Z @ rng.standard_normal((K + room, n_dims)) + 0.6 * rng.standard_normal((n_rows, n_dims))
    gram, cross = np.zeros((K + room, K + room)), np.zeros((K + room, n_dims))
    twin.refresh_columns(X, Z, 0, K, gram, cross)
    return X, Z, K, gram, cross


def weights(n_rows, empty=-np.inf):
    weight = column_weight(IBP(mass=1.3).log_odds(n_rows), IBP(mass=1.3).new_rate(n_rows))
    weight[0] = empty
    return weight


def compare(mine, theirs, arguments, seed, **options):
    """The same result and the same changes in place."""
    results = []
    for function in (mine, theirs):
        X, Z, K, gram, cross = arguments()
        rng = {"rng": np.random.default_rng(seed)} if options.get("random", True) else {}
        rest = [weights(len(X), empty=-7.0), 0.4, 1.1, *options["rest"]]
        results.append((function(X, Z, K, gram, cross, *rest, **rng), Z, gram, cross))
    (first, *arrays), (second, *expected) = results
    assert np.allclose(first, second, rtol=1e-7, atol=1e-7), (first, second)
    K = first[0] if isinstance(first, tuple) else arguments()[2]
    assert np.array_equal(arrays[0], expected[0])
    assert np.array_equal(arrays[1][:K, :K], expected[1][:K, :K])
    assert np.allclose(arrays[2][:K], expected[2][:K], rtol=1e-8, atol=1e-8)


def check_rebirth(function, seed, n_rows, K, n_dims, n_old, n_new, kind="random"):
    columns = np.random.default_rng(seed).permutation(K)[:n_old]
    rest = [columns, n_new]
    compare(function, twin.propose_rebirth, lambda: problem(seed, n_rows, K, n_dims, kind), seed, rest=rest)


shapes = (seeds, st.integers(2, 12), st.integers(2, 5), st.integers(1, 4))
kinds = st.sampled_from(["random", "zero", "own", "twins"])


@few
@given(*shapes, st.integers(0, 2), st.integers(0, 3), kinds)
def test_rebirth_equals_its_twin(seed, n_rows, K, n_dims, n_old, n_new, kind):
    for function in (kernel.propose_rebirth, plain(kernel.propose_rebirth)):
        check_rebirth(function, seed, n_rows, K, n_dims, n_old, n_new, kind)


def check_recoding(function, seed, n_rows, K, n_dims, table, kind="random"):
    pair = np.random.default_rng(seed).permutation(K)[:2]
    rest = [pair, np.array(TABLES[table], np.uint8).reshape(2, 2)]
    compare(function, twin.propose_recoding, lambda: problem(seed, n_rows, K, n_dims, kind), seed, rest=rest)


@few
@given(*shapes, st.sampled_from(sorted(TABLES)), kinds)
def test_recoding_equals_its_twin(seed, n_rows, K, n_dims, table, kind):
    for function in (kernel.propose_recoding, plain(kernel.propose_recoding)):
        check_recoding(function, seed, n_rows, K, n_dims, table, kind)


@few
@given(*shapes, kinds)
def test_exclusive_or_equals_its_twin(seed, n_rows, K, n_dims, kind):
    pair = np.random.default_rng(seed).permutation(K)[:2]
    arguments = {"rest": [pair], "random": False}
    for function in (kernel.propose_exclusive_or, plain(kernel.propose_exclusive_or)):
        compare(function, twin.propose_exclusive_or, lambda: problem(seed, n_rows, K, n_dims, kind), seed, **arguments)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("log_backward - log_forward", "log_forward - log_backward"),
        ("if n_old > 0 and n_old != n_new:", "if n_old > 0 and n_old < n_new:"),
        ("R = residual(X, Z, first,", "R = residual(X, Z, K,"),
    ],
)
def test_a_wrong_rebirth_is_seen(old, new):
    wrong = mutant(kernel.propose_rebirth, old, new)
    with pytest.raises(AssertionError):  # noqa: PT012
        for seed in range(10):
            check_rebirth(wrong, seed, 8, 4, 3, 2, 1)


def test_a_wrong_recoding_is_seen():
    wrong = mutant(kernel.propose_recoding, "log_backward = score_patterns(log_q, old)", "log_backward = 0.0")
    with pytest.raises(AssertionError):  # noqa: PT012
        for seed in range(10):
            check_recoding(wrong, seed, 8, 4, 3, "xor")


@few
@given(seeds, st.integers(2, 30), st.integers(1, 4))
def test_new_column_equals_its_twin(seed, n_rows, n_dims):
    R = 2 * np.random.default_rng(seed).standard_normal((n_rows, n_dims))
    results = []
    for function in (kernel.new_column, plain(kernel.new_column), twin.new_column):
        rest, z = R.copy(), np.zeros(n_rows, np.uint8)
        function(rest, 0.4, 0.3, np.random.default_rng(seed), z)
        results.append((z, rest))
    for z, rest in results[:2]:
        assert np.array_equal(z, results[2][0])
        assert np.allclose(rest, results[2][1])


@many
@given(seeds, st.integers(1, 9), st.integers(0, 3))
def test_columns_are_picked_and_moved_as_in_the_twin(seed, K, n_columns):
    n_columns = min(n_columns, K)
    X, Z, K, gram, cross = problem(seed, 6, K, 2)
    columns = kernel.pick_columns(K, n_columns, np.random.default_rng(seed))
    assert np.array_equal(columns, twin.pick_columns(K, n_columns, np.random.default_rng(seed)))
    for move in (kernel.move_to_end, plain(kernel.move_to_end), twin.move_to_end):
        a, b, c = Z.copy(), gram.copy(), cross.copy()
        move(columns, K, a, b, c)
        assert np.array_equal(a[:, K - n_columns : K], Z[:, columns[::-1]])
        assert np.array_equal(b[:K, :K], a[:, :K].astype(float).T @ a[:, :K])
        assert np.allclose(c[:K], a[:, :K].T @ X)


def test_columns_are_picked_uniformly(rng):
    """Ordered pairs of four columns: 12 outcomes."""
    n = 12_000
    codes = [int(a) * 4 + int(b) for a, b in (kernel.pick_columns(4, 2, rng) for _ in range(n))]
    counts = np.bincount(codes, minlength=16)[[i for i in range(16) if i // 4 != i % 4]]
    assert ((counts - n / 12) ** 2 / (n / 12)).sum() < 40.0  # chi-square with 11 degrees of freedom, 4e-5


@pytest.mark.parametrize("n_rows", [1, 2, 7])
def test_target_is_that_of_the_model(n_rows, rng):
    """log_target = class probability x prod K_h! / K! x evidence, up to a constant."""
    prior, observation = IBP(mass=1.3, concentration=0.7, discount=0.2), LinearGaussian(noise_var=0.4, feature_var=1.1)
    weight = column_weight(prior.log_odds(n_rows), prior.new_rate(n_rows))
    X = rng.standard_normal((n_rows, 3))
    constants = []
    for K in (0, 1, 2, 3, 3, 4):
        Z = (rng.random((n_rows, K)) < 0.6).astype(np.uint8)
        Z[0, ~Z.any(axis=0)] = 1
        gram, cross = np.zeros((K, K)), np.zeros((K, 3))
        twin.refresh_columns(X, Z, 0, K, gram, cross)
        orders = sum(math.lgamma(k + 1) for k in history_counts(Z)) - math.lgamma(K + 1)
        wanted = prior.log_prob(Z) + orders + observation.engine(MarginalRows).log_marginal(X, Z)
        constants.append(kernel.log_target(gram, cross, K, weight, 0.4, 1.1) - wanted)
        assert kernel.log_target(gram, cross, K, weight, 0.4, 1.1) == pytest.approx(
            twin.log_target(gram, cross, K, weight, 0.4, 1.1), abs=1e-9
        )
    assert np.ptp(constants) < 1e-8


def test_weights_of_a_finite_prior(rng):
    prior = BetaBernoulli(mass=1.5, n_features=3)
    weight = column_weight(prior.log_odds(6), 0.0)
    constants = []
    for _ in range(20):
        Z = (rng.random((6, 3)) < 0.4).astype(np.uint8)
        constants.append(prior.log_prob(Z) - weight[Z.sum(axis=0)].sum())
    assert np.ptp(constants) < 1e-9


REPLICATES = {
    "rebirth 1-2": ("rebirth_replicates", (1, 2)),
    "rebirth 0-1": ("rebirth_replicates", (0, 1)),
    "recoding": ("recoding_replicates", (np.array([[0, 1], [1, 0]], np.uint8),)),
    "exclusive or": ("exclusive_or_replicates", ()),
}


@pytest.mark.parametrize("name", REPLICATES)
def test_replicates_equal_their_twin(name, rng):
    function, rest = REPLICATES[name]
    Z = simulate_replicates(IBP(mass=1.5), 5, 60, 24, rng)
    X = rng.standard_normal((60, 5, 3))
    results = []
    for module in (replicates, twin_replicates):
        mine, K = Z.copy(), Z.any(axis=1).sum(axis=1).astype(np.int64)
        stream = np.random.default_rng(3)
        n_accepted = getattr(module, function)(X, mine, K, weights(5), 0.4, 1.1, *rest, stream)
        assert 0 < n_accepted < 60
        results.append((mine, K))
    assert np.array_equal(results[0][0], results[1][0])
    assert np.array_equal(results[0][1], results[1][1])
