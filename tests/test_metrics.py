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
