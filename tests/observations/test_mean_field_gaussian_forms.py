"""Mean field of the linear-Gaussian model in its other forms: missing cells, parts, threads, precision, columns."""

import numpy as np
import pytest
from gaussian_fits import FIXED, MODELS, PRIORS, Fit, settled, wave, with_holes
from scipy.special import logit
from served import serves

from thali.core.distributions import NormalOffset
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows
from thali.core.protocols.engines.predictions import Predictions
from thali.core.statistics import add
from thali.observations.gaussian.mean_field import bits as _mean_field_bits
from thali.observations.gaussian.mean_field import sums as _feature_factor
from thali.testing import z_limit


def test_nothing_missing_is_no_mask(rng):
    """Gram matrices of each dim, of which none lacks a row, say what one for all says."""
    for name in MODELS:
        fit = settled(name, False, rng)
        masked = fit.sums._replace(lacking=np.zeros((3, 4, 4)))
        mine, theirs = (fit.model.engine(MeanFieldRows).update_features(fit.q, sums) for sums in (masked, fit.sums))
        np.testing.assert_allclose(mine.mean, theirs.mean, atol=1e-9)
        np.testing.assert_allclose(mine.cov, np.broadcast_to(theirs.cov, mine.cov.shape), atol=1e-9)
        np.testing.assert_allclose(mine.observation.noise_var, theirs.observation.noise_var, rtol=1e-7)
        assert mine.observation.feature_var == pytest.approx(theirs.observation.feature_var, rel=1e-6)
        assert fit.model.engine(MeanFieldRows).features_bound(fit.q, masked) == pytest.approx(
            fit.model.engine(MeanFieldRows).features_bound(fit.q, fit.sums), rel=1e-12
        )


@pytest.mark.parametrize("precision", ["double", "single"])
def test_parts_make_the_whole(precision, rng):
    X = wave(300, 6) + rng.standard_normal((300, 6))
    X[:150] = with_holes(X[:150], rng)
    fit = Fit(MODELS["all learned"], PRIORS["finite"], X, 3, Family(precision=precision))
    fit.run(2)
    odds = np.array([0.3, -0.2, 0.1])
    local, sums = fit.model.engine(MeanFieldRows).update_rows(fit.data, fit.q, fit.local, odds)
    parts = []
    for start, stop in ((0, 100), (100, 160), (160, 300)):
        some = type(fit.local)(*(values[start:stop] for values in fit.local))
        mine, part = fit.model.engine(MeanFieldRows).update_rows(fit.data.part(start, stop), fit.q, some, odds)
        np.testing.assert_allclose(mine.z_prob, local.z_prob[start:stop], atol=1e-6)
        parts.append(part)
    whole = add(add(*parts[:2]), parts[2])
    for mine, theirs in zip(whole, sums, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-4)
    alone = fit.model.engine(MeanFieldRows).update_rows(fit.data, fit.q, fit.local, odds, n_threads=1)
    assert all(np.array_equal(a, b) for a, b in zip(alone[1], sums, strict=True))
    assert np.array_equal(alone[0].z_prob, local.z_prob)


def test_data_are_copied_only_where_they_must_be(rng):
    X = rng.standard_normal((20, 3))
    assert FIXED.engine(MeanFieldRows).row_data(X).double is X
    data = FIXED.engine(MeanFieldRows).row_data(X.astype(np.float32))
    assert data.single is data.X
    assert data.part(5, 9).single.base is data.X
    X.flags.writeable = False
    assert FIXED.engine(MeanFieldRows).row_data(X).X.flags.writeable
    centred = MODELS["offset"].engine(MeanFieldRows).row_data(np.where(X > 1, np.nan, X))
    assert np.array_equal(centred.X, np.where(X > 1, 0.0, X - MODELS["offset"].offset))
    some = centred.part(5, 15)
    assert len(some) == 10
    rows, dims = np.nonzero(X[5:15] > 1)
    assert np.array_equal(some.missing_row, rows)
    assert np.array_equal(some.missing_dim, dims)


def test_many_threads_give_the_same_bits(rng, monkeypatch):
    monkeypatch.setattr(_mean_field_bits, "_LEAST_WORK", 1)
    monkeypatch.setattr(_feature_factor, "_LEAST_WORK", 1)
    fit = Fit(FIXED.replace(offset=NormalOffset()), PRIORS["finite"], with_holes(wave(1000, 6), rng, 0.01), 3)
    fit.update_features()
    results = [
        fit.model.engine(MeanFieldRows).update_rows(fit.data, fit.q, fit.local, np.zeros(3), 1, n) for n in (1, 2, 5)
    ]
    for local, sums in results[1:]:
        assert np.array_equal(local.z_prob, results[0][0].z_prob)
        assert all(np.array_equal(a, b) for a, b in zip(sums, results[0][1], strict=True))


@pytest.mark.parametrize("holes", [False, True])
def test_single_precision_is_close(holes, rng):
    X = wave(200, 5) + 0.5 * rng.standard_normal((200, 5))
    X = with_holes(X, rng) if holes else X
    bounds = [
        Fit(MODELS["all learned"], PRIORS["finite"], X, 3, Family(precision=precision)).run(20)[-1]
        for precision in ("double", "single")
    ]
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-4)


def test_annealing_divides_the_evidence(rng):
    fit = settled("all learned per dim", True, rng)
    one = fit.model.engine(MeanFieldRows).keep_columns(fit.q, [0])
    local = fit.model.engine(MeanFieldRows).keep_columns(fit.local, [0])

    def log_odds(temperature):
        q = fit.model.engine(MeanFieldRows).annealed(one, temperature)
        return logit(fit.model.engine(MeanFieldRows).update_rows(fit.data, q, local, np.zeros(1))[0].z_prob)

    np.testing.assert_allclose(log_odds(5.0), log_odds(1.0) / 5, rtol=1e-9)


def test_columns_come_and_go(rng):
    """A feature as in its prior that no row has changes nothing; what was added can be dropped again."""
    for name in ("all learned", "noise per dim"):
        fit = settled(name, True, rng)
        q, local = (
            fit.model.engine(MeanFieldRows).add_feature(fit.q),
            fit.model.engine(MeanFieldRows).add_column(fit.local, np.zeros(9)),
        )
        _, sums = fit.model.engine(MeanFieldRows).update_rows(fit.data, q, local, np.zeros(4), 0)
        known = fit.model.engine(MeanFieldRows).features_bound(fit.q, fit.sums)
        assert fit.model.engine(MeanFieldRows).features_bound(q, sums) == pytest.approx(known, rel=1e-12)
        q, sums = (fit.model.engine(MeanFieldRows).keep_columns(part, np.arange(3)) for part in (q, sums))
        assert fit.model.engine(MeanFieldRows).features_bound(q, sums) == pytest.approx(known, rel=1e-12)
        order = np.array([2, 0, 1])
        q, sums, local = (
            fit.model.engine(MeanFieldRows).keep_columns(part, order) for part in (fit.q, fit.sums, fit.local)
        )
        assert fit.model.engine(MeanFieldRows).features_bound(q, sums) == pytest.approx(known, rel=1e-12)
        assert np.array_equal(local.z_prob, fit.local.z_prob[:, order])


def test_no_features(rng):
    fit = settled("all learned", True, rng)
    parts = [fit.model.engine(MeanFieldRows).keep_columns(part, np.arange(0)) for part in (fit.q, fit.local)]
    local, sums = fit.model.engine(MeanFieldRows).update_rows(fit.data, *parts, np.zeros(0))
    q = fit.model.engine(MeanFieldRows).update_features(parts[0], sums)
    assert local.z_prob.shape == (9, 0)
    assert np.isfinite(fit.model.engine(MeanFieldRows).features_bound(q, sums))


def test_what_is_left_and_what_predicts(rng):
    X = with_holes(wave(9, 3) + 5.0, rng)
    fit = Fit(MODELS["all learned"], PRIORS["finite"], X, 3)
    fit.run(20)
    observation = fit.q.observation
    assert serves(fit.model, MeanFieldRows)
    observation.require_concrete("test")
    left = fit.model.engine(MeanFieldRows).unexplained(fit.data, fit.q, fit.local)
    codes = fit.model.engine(MeanFieldRows).expected_codes(fit.local)
    book = fit.model.engine(MeanFieldRows).codebook(fit.q, fit.local)
    expected = X - observation.reconstruct(codes, book.features)
    np.testing.assert_allclose(left, np.where(np.isnan(X), 0.0, expected), atol=1e-9)
    encoded = observation.engine(Predictions).encode(X, book, fit.prior.expected_log_odds(fit.weights), 0.0)
    assert np.isfinite(encoded.log_density).all()
    assert np.corrcoef(encoded.presence.ravel(), codes.ravel())[0, 1] > 0.8
    assert np.isfinite(observation.engine(Predictions).log_cells(X, codes, book)[~np.isnan(X)]).all()
    bits = np.mean([fit.model.engine(MeanFieldRows).draw_rows(rng, fit.local)[0] for _ in range(4000)], axis=0)
    z = (bits - fit.local.z_prob) / np.sqrt(np.maximum(fit.local.z_prob * (1 - fit.local.z_prob), 1e-4) / 4000)
    assert np.abs(z).max() <= z_limit(z.size)
