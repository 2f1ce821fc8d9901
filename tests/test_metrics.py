"""Scores of counts."""

import numpy as np
import pytest
from scipy import sparse

from thali import InvalidDataError, InvalidParameterError, metrics


def test_golden_perplexity():
    """G23, whose columns are documents."""
    rates = np.array([[1.0, 2.0], [0.5, 0.3], [2.5, 0.7]]).T
    counts = np.array([[2.0, 1.0], [0.0, 3.0], [4.0, 0.0]]).T
    assert metrics.perplexity(rates, counts) == pytest.approx(3.30878933489, rel=1e-11)
    assert metrics.perplexity(3 * rates, sparse.csr_array(counts)) == pytest.approx(3.30878933489, rel=1e-11)


def test_a_token_without_probability_is_a_surprise():
    assert metrics.perplexity([[0.0, 1.0]], [[1, 1]]) == np.inf
    assert metrics.perplexity([[1.0, 1.0, 1.0]], [[5, 0, 1]]) == pytest.approx(3.0)


def test_tokens_are_split_at_random(rng):
    X = rng.poisson(2.0, (300, 7)).astype(float)
    given, asked = metrics.split_tokens(X, random_state=1)
    assert np.array_equal(given + asked, X)
    assert (given >= 0).all()
    assert (asked >= 0).all()
    assert np.abs(given.sum(axis=1) - asked.sum(axis=1)).max() <= 1
    assert given.sum() == pytest.approx(X.sum() / 2, rel=0.02)
    some, _ = metrics.split_tokens(sparse.csr_array(X), random_state=1)
    assert np.array_equal(some.toarray(), given)
    assert metrics.split_tokens(X, 0.9)[0].sum() == pytest.approx(0.9 * X.sum(), rel=0.02)


@pytest.mark.parametrize("bad", [[[1.5]], [[-1.0]], [[np.nan]]])
def test_what_is_no_count_is_refused(bad):
    with pytest.raises(InvalidDataError, match="counts"):
        metrics.split_tokens(bad)


def test_bad_arguments_are_refused():
    with pytest.raises(InvalidParameterError, match="share"):
        metrics.split_tokens([[1]], 1.0)
    with pytest.raises(InvalidDataError, match="shape"):
        metrics.perplexity([[1.0]], [[1, 2]])
    with pytest.raises(InvalidDataError, match="token"):
        metrics.perplexity([[1.0]], [[0]])


# ---- loadings

G = np.array([[0.5, 0, -1], [0, 1.2, 0.3], [0.7, 0.4, 0], [0, 0, 0.9]])


def test_golden_sparsity():
    """Golden G25."""
    assert metrics.compression(np.ones((400, 256)), 784) == pytest.approx(0.966530612245)
    np.testing.assert_allclose(metrics.relevance(G), [1.2, 1.6, 2.2])
    np.testing.assert_allclose(metrics.density(G), [2 / 3, 2 / 3, 2 / 3, 1 / 3])


def test_sparse_loadings_need_fewer_numbers(rng):
    assert metrics.compression(G, 6, sparse_loadings=True) == pytest.approx((7 + 18) / 24)
    assert metrics.compression(G, 6) == pytest.approx(3 * (1 / 6 + 1 / 4))


def test_relevance_does_not_depend_on_who_has_the_scale(rng):
    F, scales = rng.standard_normal((3, 6)), np.array([2.0, 0.1, 5.0])
    np.testing.assert_allclose(metrics.relevance(G * scales, F / scales[:, None]), metrics.relevance(G, F))


def test_no_features_at_all():
    none = np.zeros((4, 0))
    assert metrics.compression(none, 6) == 0.0
    assert metrics.relevance(none).shape == (0,)
    assert np.array_equal(metrics.density(none), np.zeros(4))


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.density([1.0, 2.0]),
        lambda: metrics.relevance(G, np.ones((2, 6))),
        lambda: metrics.relevance(np.full((2, 2), np.nan)),
    ],
)
def test_what_are_no_loadings_is_refused(call):
    with pytest.raises(InvalidDataError):
        call()
    with pytest.raises(InvalidParameterError):
        metrics.compression(G, 0)


# ---- how many features rows share


def test_shared_features_of_bits():
    Z = np.array([[1, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, 0]])
    counts = [[2, 1, 2, 0], [1, 2, 2, 0], [2, 2, 3, 0], [0, 0, 0, 0]]
    assert metrics.shared_features(Z).tolist() == counts
    shares = np.array([[1, 1 / 3, 2 / 3, 0], [1 / 3, 1, 2 / 3, 0], [2 / 3, 2 / 3, 1, 0], [0, 0, 0, 0]])
    assert metrics.shared_features(Z, relative=True) == pytest.approx(shares)
    assert metrics.shared_features(np.zeros((2, 0))).tolist() == [[0, 0], [0, 0]]


def test_shared_features_of_probabilities_are_expected_ones(rng):
    """By draws of the bits; the diagonal is the number that a row has, not the sum of squares of its chances."""
    chance = rng.random((4, 3))
    draws = (rng.random((20_000, 4, 3)) < chance).astype(float)
    values = np.einsum("snk,smk->snm", draws, draws)
    error = values.std(axis=0) / np.sqrt(len(values))
    assert np.abs((values.mean(axis=0) - metrics.shared_features(chance)) / error).max() < 5
    assert np.abs((values.mean(axis=0) - chance @ chance.T) / error).max() > 20  # with squares in the diagonal


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("at_once", [1, 10**9])
def test_shared_features_of_groups_are_means_over_pairs(relative, at_once, rng, monkeypatch):
    monkeypatch.setattr(metrics, "_PAIRS", at_once)
    Z, labels = rng.random((7, 3)) < 0.5, np.array(["b", "a", "b", "c", "a", "b", "a"])
    pairs = metrics.shared_features(Z, relative=relative)
    got = metrics.shared_features(Z, labels, relative=relative)
    for i, one in enumerate("abc"):
        for j, other in enumerate("abc"):
            of_pairs = [
                pairs[n, m] for n in range(7) for m in range(7) if n != m and labels[n] == one and labels[m] == other
            ]
            assert got[i, j] == pytest.approx(np.mean(of_pairs)) if len(of_pairs) else np.isnan(got[i, j])


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (([[1.2]],), "between 0 and 1"),
        (([1, 0],), "a matrix"),
        (([[np.nan]],), "a matrix"),
        (([[1], [0]], ["a"]), "a label for each of 2 rows"),
    ],
)
def test_shared_features_need_probabilities(bad, why):
    with pytest.raises(InvalidDataError, match=why):
        metrics.shared_features(*bad)
