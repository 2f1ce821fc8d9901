"""Which rows of a stream lie far beyond those before them."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from thali.data.far_rows import Seen, far_rows, warn_of_far_rows


def found(X, n_before=0):
    X = np.asarray(X, dtype=float)
    seen = Seen.nothing(X.shape[1]).after(X[:n_before])
    return [far.row for far in far_rows(seen, X[n_before:])]


@pytest.mark.parametrize("unit", [1e-120, 1e-3, 1.0, 1e100])
@pytest.mark.parametrize("n_before", [0, 1, 3, 30])
def test_each_dim_in_its_own_units(unit, n_before, rng):
    X = rng.standard_normal((60, 3)) * [unit, 1.0, 1e4] + [0.0, 5.0, -1e6]
    assert found(X, n_before) == []
    X[40, 0] = 1e4 * unit if n_before + 40 > 10 else 1e8 * unit
    assert found(X, n_before) == [40 - n_before]
    X[40, 0] = np.nan
    assert found(X, n_before) == []


def test_one_odd_row_after_the_first():
    assert found([[1.0, 2.0]]) == []
    assert found([[1.0, 2.0], [1e149, 2.0]]) == [1]
    assert found([[1.0, 2.0], [300.0, 2.0], [-5e3, 1.0]]) == []
    assert found([*np.zeros((30, 2)).tolist(), [1.0, 7.0]]) == []  # nothing but zeros is no measure
    assert found([[np.nan, 1.0]] * 20 + [[1e9, 1.0]]) == [20]


@pytest.mark.parametrize("law", ["standard_normal", "standard_exponential", "standard_cauchy"])
def test_data_without_mistakes_are_not_suspected(law, rng):
    streams = [getattr(rng, law)((200, 4)) for _ in range(50)]
    alarms = sum(bool(found(X)) for X in streams)
    assert alarms <= (10 if law == "standard_cauchy" else 0)
    features = (rng.random((300, 2)) < 0.05) @ rng.normal(0, 100.0, (2, 4)) + rng.standard_normal((300, 4))
    assert found(features) == []  # strong features that few rows have


def test_sparse_counts_as_dense_ones(rng):
    X = rng.poisson(0.3, (80, 5)).astype(float)
    X[50, 3] = 1e7
    seen = Seen.nothing(5).after(X[:20])
    also = Seen.nothing(5).after(csr_matrix(X[:20]))
    for mine, its in zip(seen, also, strict=True):
        np.testing.assert_array_equal(mine, its)
    assert far_rows(seen, X[20:]) == far_rows(also, csr_matrix(X[20:]))
    assert [far.row for far in far_rows(also, csr_matrix(X[20:]))] == [30]


def test_the_first_batch_is_judged_from_both_ends(rng):
    X = rng.standard_normal((30, 2))
    X[0, 1] = 1e50
    with pytest.warns(UserWarning, match=r"Row 0 of this batch \(row 0 of the stream\).* in dim 1.*NaN"):
        warn_of_far_rows(Seen.nothing(2), X)
    X[20, 0] = -1e60
    with pytest.warns(UserWarning, match="So do 1 other rows"):
        warn_of_far_rows(Seen.nothing(2), X)
