"""`encode_rows` against enumeration of all bit patterns, and against the same beam in NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import few, mutant, plain, seeds
from reference.encode_rows import encode_rows as twin
from scipy.special import expit

from thali.kernels.encode_rows import encode_rows


def arguments(seed, n_rows, K, n_dims, missing, new_rate, width):
    rng = np.random.default_rng(seed)
    Z = rng.integers(2, size=(9, K)).astype(float)
    noise_var, feature_var = 0.6, 1.7
    gram_inv = np.linalg.inv(Z.T @ Z + noise_var / feature_var * np.eye(K))
    features = np.sqrt(feature_var) * rng.standard_normal((K, n_dims))
    X = rng.integers(2, size=(n_rows, K)) @ features + np.sqrt(noise_var) * rng.standard_normal((n_rows, n_dims))
    observed = rng.random(X.shape) >= missing
    if missing < 1:
        observed[:, 0] = True
    X = np.where(observed, X, 0.0)
    return (X, observed, features, gram_inv, 1.5 * rng.standard_normal(K), new_rate, noise_var, feature_var, width)


def compare(function, *shape):
    a = arguments(*shape)
    presence, log_density = function(*a)
    expected_presence, expected_density = twin(*a)
    np.testing.assert_allclose(presence, expected_presence, atol=1e-10)
    np.testing.assert_allclose(log_density, expected_density, rtol=1e-10, atol=1e-10)


@few
@given(
    seeds, st.integers(0, 3), st.integers(0, 5), st.integers(1, 4), st.sampled_from([0.0, 0.4, 1.0]),
    st.sampled_from([0.0, 0.01, 0.7]), st.sampled_from([1, 3, 8, 32]),
)  # fmt: skip
def test_encode_equals_its_twin(seed, n_rows, K, n_dims, missing, new_rate, width):
    if missing == 1.0:
        width = 32  # without data all patterns may tie, and which of them a beam keeps is not determined
    for function in (encode_rows, plain(encode_rows)):
        compare(function, seed, n_rows, K, n_dims, missing, new_rate, width)


def test_density_integrates_to_one():
    """Over the only dim of a row: new features of the row alone included."""
    _, _, *rest = arguments(5, 1, 3, 1, 0.0, 0.7, 8)
    x = np.linspace(-60, 60, 20001)[:, None]
    _, log_density = encode_rows(x, np.ones(x.shape, bool), *rest)
    assert abs(np.trapezoid(np.exp(log_density), x[:, 0]) - 1) < 1e-6


@pytest.mark.parametrize("K", [1, 5, 12])
def test_row_without_observed_cell_gets_the_prior(K):
    """With more features than the beam can enumerate as well."""
    a = arguments(4, 1, K, 3, 1.0, 0.2, 256)
    presence, log_density = encode_rows(*a)
    np.testing.assert_allclose(presence[0], expit(a[4]), atol=1e-10)
    assert abs(log_density[0]) < 1e-6


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("half = 0.5 * used", "half = 0.5 * n_dims"),
        ("2.0 * Pz + gram_inv[k, k]", "Pz + gram_inv[k, k]"),
        ("+ j * feature_var", ""),
        ("prior[child] = prior[i] + log_odds[k]", "prior[child] = prior[i]"),
        ("size[k] = -full_gram[k, k]", "size[k] = full_gram[k, k]"),
    ],
)
def test_a_wrong_encoding_is_seen(old, new):
    wrong = mutant(encode_rows, old, new)
    with pytest.raises(AssertionError):  # noqa: PT012
        for width in (32, 3):
            compare(wrong, 2, 3, 5, 3, 0.3, 0.7, width)
