"""`collapsed_entropy` against its twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import bits, many, mutant, plain, seeds
from reference.bits import collapsed_entropy as twin

from thali.kernels.bits.collapsed_entropy import BLOCK, collapsed_entropy

kinds = st.sampled_from(["random", "zero", "own", "twins"])
noises = st.sampled_from([1e-3, 0.1, 1.0, 30.0])


def problem(seed, kind, n_rows, K, n_dims, noise_var):
    """Arguments of the kernel; odds are infinite where a column has no other owner."""
    rng = np.random.default_rng(seed)
    Z = bits(rng, kind, n_rows, K)
    X = Z @ rng.standard_normal((K, n_dims)) + np.sqrt(noise_var) * rng.standard_normal((n_rows, n_dims))
    counts = Z.sum(axis=0, dtype=np.int64)
    P = np.linalg.inv(Z.T.astype(float) @ Z + (noise_var + 0.1) * np.eye(K))
    with np.errstate(divide="ignore"):
        log_odds = np.log(np.arange(n_rows + 1)) - np.log(np.arange(n_rows + 1, 0, -1))
    odds = log_odds[np.maximum(counts - 1, 0)], log_odds[counts]
    return X, np.sum(X**2, axis=1), Z, P, P @ Z.T @ X, *odds, noise_var


def tolerance(arguments):
    """Log-odds are differences of squares in units of the noise, and rounded as these are; leverage is at most 0.91."""
    X, square, Z, _, _, _, _, noise_var = arguments
    return 1e-13 * (1 + Z.size) * (1 + square.max() / noise_var + X.shape[1])


@many
@given(seeds, kinds, st.integers(1, 9), st.integers(1, 6), st.integers(1, 5), noises)
def test_few_rows(seed, kind, n_rows, K, n_dims, noise_var):
    arguments = problem(seed, kind, n_rows, K, n_dims, noise_var)
    wanted = twin.collapsed_entropy(*arguments)
    for function in (collapsed_entropy, plain(collapsed_entropy)):
        assert function(*arguments) == pytest.approx(wanted, rel=1e-9, abs=tolerance(arguments))


@pytest.mark.parametrize("n_rows", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
@pytest.mark.parametrize("noise_var", [0.01, 3.0])
def test_many_rows(n_rows, noise_var):
    arguments = problem(n_rows, "random", n_rows, 5, 4, noise_var)
    assert collapsed_entropy(*arguments) == pytest.approx(
        twin.collapsed_entropy(*arguments), rel=1e-9, abs=tolerance(arguments)
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BLOCK, n_rows - first)", "BLOCK, n_rows - first - 1)"),
        ("2.0 * g * Gz[k, r]", "g * Gz[k, r]"),
        ("P[k, k] + left[r] * g * g", "P[k, k]"),
        ("odds_on[k] if", "odds_off[k] if"),
        ("half_dims, half_precision = 0.5", "half_dims, half_precision = 0.6"),
        ("- h * q_out[r]", ""),
        ("+= z[k, r] * (Gz_out", "+= (Gz_out"),
        ("size * t / (1.0 + t)", "size * t"),
        ("> -_SURE", "> -0.1"),
        ("< _SURE", "< 0.1"),
    ],
)
def test_a_mistake_is_seen(old, new):
    arguments = problem(1, "random", 40, 5, 4, 1.0)
    wrong = mutant(collapsed_entropy, old, new)(*arguments)
    assert wrong != pytest.approx(twin.collapsed_entropy(*arguments), rel=1e-9, abs=tolerance(arguments))
