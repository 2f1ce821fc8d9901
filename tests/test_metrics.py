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
