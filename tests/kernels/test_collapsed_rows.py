"""The collapsed sweep against its twin, its re-entry when it runs out of room, and its accuracy in hard cases."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from problems import Sweep, assert_same, bits, few, many, mutant, plain, seeds
from reference.bits.collapsed_rows import collapsed_sweep as twin_sweep

from thali.kernels.bits.collapsed_rows import BLOCK, collapsed_sweep
from thali.observations.gaussian.data import block_products
from thali.priors import IBP, BetaBernoulli

PRIORS = {
    "IBP": IBP(mass=1.3),
    "discount": IBP(mass=1.0, concentration=2.0, discount=0.4),
    "finite": BetaBernoulli(mass=2.0),
}
kinds = st.sampled_from(["random", "zero", "own", "twins"])
priors = st.sampled_from(sorted(PRIORS))
ratios = st.sampled_from([5.0, 0.5, 0.02])


def problem(seed, kind, n_rows, K, n_dims, **options):
    rng = np.random.default_rng(seed)
    return Sweep(rng, bits(rng, kind, n_rows, K), n_dims, **options)


def compare(kernel, seed, kind, n_rows, K, n_dims, n_sweeps=1, same_room=True, group=1, **options):
    """Run a kernel and the twin on the same numbers; their remarks if the results are the same."""
    room = options.pop("room", 60)
    mine = problem(seed, kind, n_rows, K, n_dims, room=room, **options)
    theirs = problem(seed, kind, n_rows, K, n_dims, room=room if same_room else 60, **options)
    remarks = mine.run(kernel, np.random.default_rng(seed + 1), n_sweeps, group)
    expected = theirs.run(twin_sweep, np.random.default_rng(seed + 1), n_sweeps, group)
    assert_same(mine.results(), theirs.results())
    mine.assert_consistent()
    assert remarks[3] < 1e-8
    if same_room:
        assert remarks[0] == expected[0]
        if remarks[2] == 0:  # a row that was rebuilt counts as changed
            assert remarks[1] == expected[1]
    return remarks


@few
@given(
    seeds, kinds, st.integers(1, 24), st.integers(0, 5), st.integers(1, 4),
    st.sampled_from([0.0, 0.3]), priors, ratios, st.integers(1, 3),
)  # fmt: skip
@example(1, "random", 1, 0, 1, 0.0, "IBP", 0.5, 2)
@example(2, "own", 6, 6, 2, 0.0, "IBP", 0.02, 3)
@example(3, "own", 6, 6, 2, 0.3, "IBP", 0.5, 1)
@example(4, "twins", 12, 4, 2, 0.0, "finite", 0.02, 2)
@example(5, "random", 2 * BLOCK + 3, 3, 3, 0.1, "IBP", 0.5, 3)
@example(6, "zero", BLOCK, 1, 1, 0.0, "finite", 0.5, 1)
def test_sweep_equals_its_twin(seed, kind, n_rows, K, n_dims, missing, prior, ratio, group):
    if prior == "finite" and K == 0:
        K = 1
    options = {"missing": missing, "prior": PRIORS[prior], "ratio": ratio, "group": group}
    for kernel in (collapsed_sweep, plain(collapsed_sweep)):
        compare(kernel, seed, kind, n_rows, K, n_dims, n_sweeps=2, **options)


@few
@given(seeds, kinds, st.integers(1, 20), st.integers(0, 3), st.integers(1, 3))
@example(7, "own", 5, 4, 2)
def test_sweep_without_room_resumes_to_the_same_result(seed, kind, n_rows, K, n_dims):
    compare(collapsed_sweep, seed, kind, n_rows, K, n_dims, room=K, same_room=False, prior=IBP(mass=6.0))


@few
@given(seeds, kinds, st.integers(1, 20), st.integers(0, 3), st.integers(1, 3))
def test_sweep_without_room_resumes_with_missing_cells(seed, kind, n_rows, K, n_dims):
    """The cells of the row that did not fit are drawn twice, so the twin has to stop where the kernel does."""
    compare(collapsed_sweep, seed, kind, n_rows, K, n_dims, room=K, missing=0.3, prior=IBP(mass=6.0))


def test_sweep_does_run_out_of_room():
    assert compare(collapsed_sweep, 3, "random", 20, 2, 2, room=2, prior=IBP(mass=6.0))[0] > 0


def test_unstable_rows_are_rebuilt():
    """A column of one row, kept by a finite prior, has leverage 1/(1 + r): its removal loses digits for small r."""
    assert compare(collapsed_sweep, 3, "own", 12, 4, 3, n_sweeps=3, prior=PRIORS["finite"], ratio=1e-3)[2] > 0


MUTANTS = [
    ("own_var = n_own / ridge", "own_var = 0.0"),
    ("c = 1.0 / shrink", "c = shrink"),
    ("h[k] = b[k] - Gz[k]", "h[k] = b[k]"),
    ("others[k] = counts[k] - Z[n, k]", "others[k] = max(counts[k] - 1, 0)"),
    ("used_dims = n_dims - cells.size", "used_dims = n_dims"),
    ("sd = math.sqrt(noise_var * (1.0 + q + n_new / ridge))", "sd = math.sqrt(noise_var * (1.0 + q))"),
    ("y[i] -= z[i] * square[n]", "y[i] -= 0.0"),
    ("flips[k, row] = z[k] - was[k]", "flips[k, row] = z[k]"),
    ("square[n] += dx * (2.0 * x + dx)", "square[n] += dx * x"),
    ("to_g = h_in[i] + s * g_in[i]", "to_g = h_in[i]"),
    ("Y[t, k] += z[k] * block_gram[n, t] - old[k] * x_before[t]", "pass"),
]


@pytest.mark.parametrize(("old", "new"), MUTANTS)
def test_a_wrong_sweep_is_seen(old, new):
    wrong = mutant(collapsed_sweep, old, new)
    with pytest.raises((AssertionError, ValueError, IndexError, np.linalg.LinAlgError)):  # noqa: PT012
        for seed in range(10):
            compare(wrong, seed, "random", 10, 3, 3, n_sweeps=2)
            compare(wrong, seed, "own", 8, 5, 2, missing=0.3, prior=IBP(mass=5.0), room=5)


@many
@given(seeds, st.integers(1, 3 * BLOCK + 1), st.integers(1, 5))
def test_block_products_are_dot_products(seed, n_rows, n_dims):
    X = np.random.default_rng(seed).standard_normal((n_rows, n_dims))
    products, square = block_products(X)
    expected = np.zeros((n_rows, BLOCK))
    for n in range(n_rows):
        first = n - n % BLOCK
        for t in range(min(BLOCK, n_rows - first)):
            expected[n, t] = X[n] @ X[first + t]
    np.testing.assert_allclose(products, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(square, (X**2).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("n_dims", [2, 3, 4])
@pytest.mark.parametrize("ratio", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("prior", ["IBP", "finite"])
def test_small_ratios_do_not_drift(rng, ratio, n_dims, prior):
    """noise_var / feature_var down to 1e-6, columns with one or two members: the hardest case for updates of P."""
    n_rows, K = 40, 8
    Z = np.zeros((n_rows, K), np.uint8)
    for k in range(K):
        Z[rng.choice(n_rows, 1 + k % 2, replace=False), k] = 1
    sweep = Sweep(rng, Z, n_dims, ratio=ratio, prior=PRIORS[prior])
    for _ in range(150):
        _, _, _, drift = sweep.run(collapsed_sweep, rng)
        assert drift < 1e-8
        assert sweep.K < 100
        sweep.assert_consistent()
