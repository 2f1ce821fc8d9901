"""Encoding of new rows against enumeration of all bit patterns, and the sampled form against its twin and the exact."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import few, many, mutant, plain, seeds
from reference.bits import encode_rows as twin
from reference.bits.encode_sampled import encode_sampled as twin_sampled
from scipy.special import expit

from thali.kernels.bits.encode_rows import encode_rows, log_row, row_forms
from thali.kernels.bits.encode_sampled import encode_sampled


def arguments(seed, n_rows, K, n_dims, missing, new_rate, noise_var=0.6):
    rng = np.random.default_rng(seed)
    Z = rng.integers(2, size=(9, K)).astype(float)
    feature_var = 1.7
    gram_inv = np.linalg.inv(Z.T @ Z + noise_var / feature_var * np.eye(K))
    features = np.sqrt(feature_var) * rng.standard_normal((K, n_dims))
    X = rng.integers(2, size=(n_rows, K)) @ features + np.sqrt(noise_var) * rng.standard_normal((n_rows, n_dims))
    observed = rng.random(X.shape) >= missing
    if missing < 1:
        observed[:, 0] = True
    X = np.where(observed, X, 0.0)
    return (X, observed, features, gram_inv, 1.5 * rng.standard_normal(K), new_rate, noise_var, feature_var)


def compare(function, reference, a):
    presence, log_density = function(*a)
    expected_presence, expected_density = reference(*a)
    np.testing.assert_allclose(presence, expected_presence, atol=1e-9)
    np.testing.assert_allclose(log_density, expected_density, rtol=1e-9, atol=1e-9)


shapes = (
    seeds, st.integers(0, 3), st.integers(0, 5), st.integers(1, 4), st.sampled_from([0.0, 0.4, 1.0]),
    st.sampled_from([0.0, 0.01, 0.7]),
)  # fmt: skip


@few
@given(*shapes)
def test_encode_equals_its_twin(seed, n_rows, K, n_dims, missing, new_rate):
    for function in (encode_rows, plain(encode_rows)):
        compare(function, twin.encode_rows, arguments(seed, n_rows, K, n_dims, missing, new_rate))


@few
@given(*shapes)
def test_sampled_encoding_equals_its_twin(seed, n_rows, K, n_dims, missing, new_rate):
    rng = np.random.default_rng(1)
    u = rng.random((10, K)), rng.random((15, K))
    compare(encode_sampled, twin_sampled, (*arguments(seed, n_rows, K, n_dims, missing, new_rate), *u))


@many
@given(
    st.floats(0, 20), st.floats(0, 300), st.integers(0, 8), st.floats(0.01, 5), st.sampled_from([0.0, 1e-4, 0.5, 9.0])
)
def test_log_row_equals_its_twin(q, s, n_dims, feature_var, new_rate):
    a = (q, s, n_dims, 0.7, feature_var, new_rate)
    assert log_row(*a) == pytest.approx(twin.log_row(*a), rel=1e-10, abs=1e-10)


@many
@given(*shapes[:5])
def test_row_forms_equal_their_twin(seed, n_rows, K, n_dims, missing):
    X, observed, features, *_ = arguments(seed, n_rows, K, n_dims, missing, 0.0)
    for x, seen in zip(X, observed, strict=True):
        mine, theirs = (np.zeros(K), np.zeros((K, K))), (np.zeros(K), np.zeros((K, K)))
        a = row_forms(x, seen, features, features @ features.T, *mine)
        assert a == pytest.approx(twin.row_forms(x, seen, features, features @ features.T, *theirs))
        np.testing.assert_allclose(mine[0], theirs[0], atol=1e-12)
        np.testing.assert_allclose(mine[1], theirs[1], atol=1e-12)


@pytest.mark.parametrize("noise_var", [0.05, 2.0], ids=["sharp", "diffuse"])
def test_sampled_encoding_is_near_the_exact_one(noise_var):
    """Ten features: presence within the Monte Carlo error of twelve runs; every density within 0.2 nats, their mean
    within 0.05 (importance weights have a long tail, so their spread says little about their error)."""
    a = arguments(7, 12, 10, 6, 0.2, 0.05, noise_var)
    rng = np.random.default_rng(2)
    exact, density = encode_rows(*a)
    runs = [encode_sampled(*a, rng.random((1000, 10)), rng.random((1000, 10))) for _ in range(12)]
    presence = np.array([run[0] for run in runs])
    error = presence.std(axis=0, ddof=1) / np.sqrt(12) + 1e-3
    assert (np.abs(presence.mean(axis=0) - exact) < 7 * error).all()  # t with 11 degrees, 120 cells: false alarm 1e-3
    ratio = np.array([np.exp(run[1] - density) for run in runs])
    assert np.abs(np.log(ratio.mean(axis=0))).max() < 0.05
    assert np.abs(np.log(ratio)).max() < 0.2


def test_density_integrates_to_one():
    """Over the only dim of a row: new features of the row alone included."""
    _, _, *rest = arguments(5, 1, 3, 1, 0.0, 0.7)
    x = np.linspace(-60, 60, 20001)[:, None]
    _, log_density = encode_rows(x, np.ones(x.shape, bool), *rest)
    assert abs(np.trapezoid(np.exp(log_density), x[:, 0]) - 1) < 1e-6


@pytest.mark.parametrize("K", [1, 5, 12])
def test_row_without_observed_cell_gets_the_prior(K, rng):
    a = arguments(4, 1, K, 3, 1.0, 0.2)
    for presence, log_density in (encode_rows(*a), encode_sampled(*a, rng.random((20, K)), rng.random((20, K)))):
        np.testing.assert_allclose(presence[0], expit(a[4]), atol=1e-10)
        assert abs(log_density[0]) < 1e-9


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("q += 2.0 * step * Pz[k]", "q += step * Pz[k]"),
        ("prior += step * log_odds[k]", "prior += log_odds[k]"),
        ("Gz[j] += step * gram[k, j]", "Gz[j] += gram[k, j]"),
        ("pattern = code ^ (code >> 1)", "pattern = code"),
    ],
)
def test_a_wrong_encoding_is_seen(old, new):
    wrong = mutant(encode_rows, old, new)
    with pytest.raises(AssertionError):
        compare(wrong, twin.encode_rows, arguments(2, 3, 5, 3, 0.3, 0.7))
