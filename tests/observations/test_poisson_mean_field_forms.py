"""Mean field of counts in its other forms: parts, sparse data, precision, columns, codes."""

import numpy as np
import pytest
from count_runs import FAMILIES, LOG_ODDS, Run, some_counts
from scipy import sparse
from served import serves

from thali import PoissonGamma
from thali.core.protocols.engines.mean_field import MeanFieldRows
from thali.core.statistics import add
from thali.observations.poisson.mean_field import RowFactors
from thali.testing import z_limit
from thali.testing.zscores import z_scores


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", FAMILIES)
def test_statistics_of_parts_add_up(name, missing, rng):
    run = Run(some_counts(rng, 9, 4, missing), 3, FAMILIES[name], rng).settle(3)
    parts = [
        run.model.engine(MeanFieldRows).update_rows(
            run.data.part(a, b), run.q, RowFactors(*(f[a:b] for f in run.local)), run.odds, 0
        )[1]
        for a, b in ((0, 2), (2, 9))
    ]
    for mine, whole in zip(add(*parts), run.rows(0), strict=True):
        np.testing.assert_allclose(mine, whole, rtol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_sparse_counts_give_the_same_bits(name):
    X = some_counts(np.random.default_rng(1), 12, 6)
    runs = [
        Run(data, 3, FAMILIES[name], np.random.default_rng(2)).settle(5)
        for data in (X, sparse.csr_matrix(X), sparse.coo_array(X))
    ]
    for other in runs[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(runs[0].local, other.local, strict=True))


def test_sparse_counts_are_never_made_dense(rng):
    """A matrix that would take 160 GB."""
    where = rng.integers(200_000, size=500), rng.integers(100_000, size=500)
    X = sparse.coo_array((np.ones(500), where), shape=(200_000, 100_000))
    run = Run(X, 2, FAMILIES["joint"], rng)
    run.rows(), run.features(), run.rows()
    assert np.isfinite(run.bound())


@pytest.mark.parametrize("name", FAMILIES)
def test_single_precision_is_near(name, rng):
    X = some_counts(rng, 30, 8)
    family = FAMILIES[name]
    one, two = (
        Run(X, 4, family._replace(precision=p), np.random.default_rng(0)).settle(10) for p in ("double", "single")
    )
    assert two.bound() == pytest.approx(one.bound(), rel=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_columns(name, rng):
    """A feature that is dropped and put back in another place; one that is added; a rise of the bound follows."""
    run = Run(some_counts(rng, 12, 5, 0.1), 4, FAMILIES[name], rng).settle(5)
    order, bound = np.array([2, 0, 3, 1]), run.bound()
    model = run.model
    run.q, run.local = (
        model.engine(MeanFieldRows).keep_columns(run.q, order),
        model.engine(MeanFieldRows).keep_columns(run.local, order),
    )
    kept = model.engine(MeanFieldRows).keep_columns(run.sums, order)
    for mine, anew in zip(kept, run.rows(0), strict=True):
        np.testing.assert_allclose(mine, anew, rtol=1e-9)
    assert run.bound() == pytest.approx(bound, rel=1e-12)
    run.q, run.local = (
        model.engine(MeanFieldRows).add_feature(run.q),
        model.engine(MeanFieldRows).add_column(run.local, rng.random(12)),
    )
    run.odds = np.full(5, LOG_ODDS)
    assert run.q.a_shape.shape == (5, 5)
    assert run.local.z_prob.shape == (12, 5)
    run.rows(0)
    before = run.bound()
    run.rows()
    assert run.bound() >= before


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_feature_explained_is_handed_over(name, rng):
    """Rows that lose a feature have another, with about the weight that is gone; the others stay as they are."""
    run = Run(some_counts(rng, 12, 5), 3, FAMILIES[name], rng).settle(20)
    before = RowFactors(*(field.copy() for field in run.local))
    kept = run.model.engine(MeanFieldRows).keep_columns(run.local, np.array([2, 0]))
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(before, run.local, strict=True))
    lost = before.z_prob[:, 1] > 0.5
    assert lost.any()
    assert (kept.z_prob[lost] > 0.5).all()
    assert np.array_equal(kept.w_shape[~lost], before.w_shape[~lost][:, [2, 0]])
    weight = (before.z_prob * before.w_shape / before.w_on).sum(axis=1)
    np.testing.assert_allclose((kept.w_shape / kept.w_on)[lost].sum(axis=1), weight[lost], rtol=0.3)
    run.q, run.local, run.odds = (
        run.model.engine(MeanFieldRows).keep_columns(run.q, np.array([2, 0])),
        kept,
        run.odds[:2],
    )
    run.rows(0)
    assert np.isfinite(run.bound())


def test_codes(rng):
    run = Run(some_counts(rng, 6, 5), 3, FAMILIES["joint"], rng).settle(5)
    draws = [run.model.engine(MeanFieldRows).draw_rows(rng, run.local) for _ in range(4000)]
    assert all(set(np.unique(bits)) <= {0, 1} for bits, _ in draws)
    assert all(np.array_equal(codes > 0, bits > 0) for bits, codes in draws)
    z = z_scores(
        np.array([c for _, c in draws]).reshape(4000, -1),
        run.model.engine(MeanFieldRows).expected_codes(run.local).ravel(),
    )
    assert np.abs(z).max() < z_limit(18)
    book = run.model.engine(MeanFieldRows).codebook(run.q, run.local)
    np.testing.assert_allclose(book.features, run.q.mean)
    np.testing.assert_allclose(book.log_features, run.q.log_mean)
    np.testing.assert_allclose(book.features_spread, run.q.mean / run.q.a_rate)
    hidden = Run(some_counts(rng, 6, 5, 0.3), 3, FAMILIES["joint"], rng).settle(5)
    left = hidden.model.engine(MeanFieldRows).unexplained(hidden.data, hidden.q, hidden.local)
    X, rate = hidden.X, hidden.model.engine(MeanFieldRows).expected_codes(hidden.local) @ hidden.q.mean
    np.testing.assert_allclose(left, np.where(np.isnan(X), 0.0, X - rate))


def test_it_is_a_mean_field_model():
    assert serves(PoissonGamma(), MeanFieldRows)
