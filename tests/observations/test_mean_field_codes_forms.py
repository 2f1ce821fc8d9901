"""Mean field of models with weights in its other forms: parts, threads, columns, signs, scales, new rows, precision."""

import math

import numpy as np
import pytest
from coded_fits import FAMILIES, KINDS, Fit, some_data
from scipy.stats import laplace, norm
from served import serves

from thali import ICA, BetaBernoulli, FactorAnalysis, InvalidParameterError, NormalOffset, PerDim
from thali.core.distributions import LogNormal
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows, ScaledFeatures
from thali.core.protocols.engines.predictions import Predictions
from thali.core.statistics import add
from thali.kernels.weights.slabs import log_slab
from thali.observations.gaussian.mean_field.weight_factors import JointCodes
from thali.testing import z_limit
from thali.testing.zscores import z_scores


@pytest.mark.parametrize("kind", KINDS)
def test_capabilities(kind):
    assert serves(KINDS[kind](), MeanFieldRows)
    assert serves(KINDS[kind](), ScaledFeatures)


def fitted(kind, family="joint", missing=0.0, n_steps=5):
    X, codes = some_data(kind, missing=missing)
    return Fit(BetaBernoulli(n_features=2), KINDS[kind](noise_floor=0.0).adapt(X), X, FAMILIES[family], codes).run(
        n_steps
    )


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("family", ["joint", "independent"])
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_of_parts_add_up(kind, family, missing):
    fit = fitted(kind, family, missing)
    odds = fit.prior.expected_log_odds(fit.weights)
    whole, sums = fit.model.engine(MeanFieldRows).update_rows(fit.data, fit.q, fit.local, odds)
    parts, total = [], None
    for start, stop in ((0, 7), (7, 30)):
        local = type(fit.local)(*(values[start:stop] for values in fit.local))
        local, statistics = fit.model.engine(MeanFieldRows).update_rows(fit.data.part(start, stop), fit.q, local, odds)
        parts.append(local)
        total = statistics if total is None else add(total, statistics)
    for mine, theirs in zip(map(np.vstack, zip(*parts, strict=True)), whole, strict=True):
        assert np.allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(total, sums, strict=True):
        assert np.allclose(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_same_bits_on_any_number_of_threads(missing):
    X, codes = some_data("laplace", n_rows=1500, K=4, missing=missing)
    fit = Fit(BetaBernoulli(n_features=4), ICA(noise_floor=0.0).adapt(X), X, Family(), codes)
    one, several = (
        fit.model.engine(MeanFieldRows).update_rows(fit.data, fit.q, fit.local, np.zeros(4), 2, n_threads=n)
        for n in (1, 3)
    )
    for mine, theirs in zip((*one[0], *one[1]), (*several[0], *several[1]), strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("family", ["joint", "independent", "hard"])
@pytest.mark.parametrize("kind", KINDS)
def test_columns_come_and_go(kind, family):
    fit = fitted(kind, family, 0.2)
    model, odds = fit.model, np.zeros(3)
    wide, q = (
        model.engine(MeanFieldRows).add_column(fit.local, np.linspace(-1, 1, 30)),
        model.engine(MeanFieldRows).add_feature(fit.q),
    )
    local, statistics = model.engine(MeanFieldRows).update_rows(fit.data, q, wide, odds, 0)
    assert local.z_prob.shape == (30, 3)
    assert np.allclose(model.engine(MeanFieldRows).expected_codes(local)[:, 2], np.linspace(-1, 1, 30), atol=0.1)
    back = (
        model.engine(MeanFieldRows).keep_columns(local, [0, 1]),
        model.engine(MeanFieldRows).keep_columns(q, [0, 1]),
        model.engine(MeanFieldRows).keep_columns(statistics, [0, 1]),
    )
    again, sums = model.engine(MeanFieldRows).update_rows(fit.data, back[1], back[0], odds[:2], 0)
    assert all(np.array_equal(a, b) for a, b in zip(back[0], again, strict=True))
    assert np.allclose(sums.gram, back[2].gram)
    assert np.allclose(sums.cross, back[2].cross)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("family", ["joint", "independent"])
@pytest.mark.parametrize("kind", KINDS)
def test_signs_change_together(kind, family, missing):
    fit = fitted(kind, family, missing)
    signs = np.array([-1.0, 1.0])
    turned = [fit.model.engine(ScaledFeatures).turned(part, signs) for part in (fit.q, fit.local, fit.statistics)]
    assert fit.model.engine(MeanFieldRows).features_bound(turned[0], turned[2]) == pytest.approx(
        fit.model.engine(MeanFieldRows).features_bound(fit.q, fit.statistics), rel=1e-12
    )
    _, statistics = fit.model.engine(MeanFieldRows).update_rows(fit.data, turned[0], turned[1], np.zeros(2), 0)
    assert all(np.allclose(a, b) for a, b in zip(statistics, turned[2], strict=True))
    shown = (
        fit.model.engine(ScaledFeatures)
        .turned(fit.q, fit.model.engine(ScaledFeatures).signs(fit.q, [fit.local]))
        .mean[:2]
    )
    assert (shown[range(2), np.abs(shown).argmax(axis=1)] > 0).all()


def bound_of_scaled(fit, factors):
    """What depends on the factors if q(w) and q(A) are scaled by them exactly, by quadrature and by definition."""
    model, q, local, total = fit.model, fit.q, fit.local, 0.0
    rate, precision, log_norm = model.law
    for k, f in enumerate(factors):
        for n in range(len(local.z_prob)):
            if isinstance(local, JointCodes):
                b, c, share = local.pull[n, k], local.curve[n, k], local.z_prob[n, k]
                log_norm_q = log_slab(b, c, rate, precision, 0.0)

                def log_q(w, b=b, c=c, log_norm_q=log_norm_q):
                    return b * w - 0.5 * (c + precision) * w * w - rate * np.abs(w) - log_norm_q
            else:
                share = 1.0
                spread = local.spread[n, k]
                law = laplace(local.mean[n, k], spread) if rate > 0 else norm(local.mean[n, k], spread**0.5)
                log_q = law.logpdf
            w = GRID + local.mean[n, k]
            log_p = -rate * np.abs(f * w) - 0.5 * precision * (f * w) ** 2 - log_norm + math.log(f)
            total += share * np.sum(np.exp(log_q(w)) * log_p) * (GRID[1] - GRID[0])
    K, n_dims = q.mean[: q.n_features].shape
    power = np.square(q.mean[:K]).sum(axis=1) / q.noise[0] + n_dims * np.diag(q.cov[0])[:K]
    ratio = q.noise[0] / q.observation.feature_var
    return total - np.sum(n_dims * np.log(factors)) - 0.5 * ratio * np.sum(power / factors**2)


GRID = np.linspace(-40.0, 40.0, 40_001)


@pytest.mark.parametrize("family", ["joint", "independent"])
@pytest.mark.parametrize("kind", KINDS)
def test_stretch_is_the_optimum(kind, family):
    X, codes = some_data(kind, n_rows=4)
    model = KINDS[kind](noise_var=0.5, feature_var=2.0, noise_floor=0.0).adapt(X)
    fit = Fit(BetaBernoulli(n_features=2), model, X, FAMILIES[family], codes).run(3)
    factors = model.engine(ScaledFeatures).stretch(fit.q, [fit.local])
    best = bound_of_scaled(fit, factors)
    for k in range(2):
        for step in (0.97, 1.03):
            other = np.array(factors)
            other[k] *= step
            assert bound_of_scaled(fit, other) < best
    assert best > bound_of_scaled(fit, np.ones(2))


@pytest.mark.parametrize("kind", KINDS)
def test_stretching_gets_further(kind):
    """A pass after it gains more than one without, where passes have become slow."""
    X, codes = some_data(kind, n_rows=60, noise=0.2)
    model = KINDS[kind](noise_floor=0.0).adapt(X)
    fit = Fit(BetaBernoulli(n_features=2), model, X, Family(), codes).run(25)
    factors = model.engine(ScaledFeatures).stretch(fit.q, [fit.local])
    before, q, local = fit.bounds[-1], fit.q, fit.local
    plain = fit.run(1).bounds[-1] - before
    fit.q, fit.local = (
        model.engine(ScaledFeatures).turned(q, factors),
        model.engine(ScaledFeatures).turned(local, factors),
    )
    assert fit.run(1).bounds[-1] - before > 1.5 * plain > 0


@pytest.mark.parametrize("family", ["joint", "independent"])
@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_moments_of_q(kind, family, rng):
    fit = fitted(kind, family)
    draws = np.array([fit.model.engine(MeanFieldRows).draw_rows(rng, fit.local) for _ in range(2000)])
    assert np.array_equal(draws[:, 0] != 0, draws[:, 1] != 0)
    z = z_scores(
        draws[:, 1].reshape(2000, -1).sum(axis=1)[:, None],
        np.array([fit.model.engine(MeanFieldRows).expected_codes(fit.local).sum()]),
    )
    z = np.append(z, z_scores(draws[:, 0].sum(axis=1), fit.statistics.counts))
    squares = np.diag(fit.statistics.gram)[:2]
    z = np.append(z, z_scores((draws[:, 1] ** 2).sum(axis=1), squares))
    assert np.abs(z).max() <= z_limit(len(z)), z


@pytest.mark.parametrize("kind", KINDS)
def test_new_rows_are_encoded_with_the_codebook(kind):
    X, codes = some_data(kind, n_rows=80, noise=0.3)
    fit = Fit(BetaBernoulli(n_features=2), KINDS[kind](noise_floor=0.0).adapt(X), X, Family(), codes).run(60)
    book = fit.model.engine(MeanFieldRows).codebook(fit.q, fit.local)
    encoded = fit.q.observation.engine(Predictions).encode(X[:20], book, fit.prior.expected_log_odds(fit.weights), 0.0)
    assert np.abs(encoded.presence - fit.local.z_prob[:20]).mean() < 0.15
    assert (
        np.corrcoef(encoded.codes.ravel(), fit.model.engine(MeanFieldRows).expected_codes(fit.local)[:20].ravel())[0, 1]
        > 0.95
    )
    assert np.isfinite(fit.q.observation.engine(Predictions).log_cells(X[:20], encoded.codes, book)).all()


def test_unexplained_is_what_is_left():
    fit = fitted("normal", missing=0.2)
    left = fit.model.engine(MeanFieldRows).unexplained(fit.data, fit.q, fit.local)
    assert np.isfinite(left).all()
    assert np.square(left).sum() < 0.7 * np.square(fit.data.X).sum()


def test_single_precision_is_close():
    fit = fitted("laplace")
    odds = fit.prior.expected_log_odds(fit.weights)
    _, double = fit.model.engine(MeanFieldRows).update_rows(fit.data, fit.q, fit.local, odds)
    _, single = fit.model.engine(MeanFieldRows).update_rows(
        fit.data, fit.q._replace(family=Family(precision="single")), fit.local, odds
    )
    assert single.entropy == pytest.approx(double.entropy, rel=1e-4)
    assert not np.array_equal(single.gram, double.gram)


def test_relevance_of_single_features_is_refused():
    X, codes = some_data("normal")
    with pytest.raises(InvalidParameterError, match="ard to be None"):
        Fit(BetaBernoulli(n_features=2), FactorAnalysis(ard=2.0, noise_floor=0.0).adapt(X), X, Family(), codes)


def test_learned_parts_are_those_of_the_model():
    model = FactorAnalysis()
    assert isinstance(model.noise_var, PerDim)
    assert isinstance(model.offset, NormalOffset)
    assert isinstance(fitted("normal").model.feature_var, LogNormal)
