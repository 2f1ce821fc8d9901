"""Mean field of models with weights: Monte Carlo, numerical optima, golden values, mistakes."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from coded_fits import FAMILIES, KINDS, Fit, some_data
from scipy.special import expit
from scipy.stats import norm

from thali import ICA, BetaBernoulli, FactorAnalysis, StickBreakingIBP
from thali.core.distributions import Gamma
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows
from thali.kernels.weights.code_factors import joint_divergence
from thali.kernels.weights.slabs import log_slab
from thali.observations.gaussian.mean_field import weights as _mean_field_codes
from thali.observations.gaussian.mean_field.sums import GaussianFeatures
from thali.observations.gaussian.mean_field.weight_factors import IndependentCodes, JointCodes
from thali.testing import z_limit
from thali.testing.zscores import z_scores


def log_joint_terms(fit, X, rng, n_draws):
    """log p(X, A, W | Z) + log p(hyperparameters) - log q(Z, W, A) at draws from q."""
    model, q, local, concrete = fit.model, fit.q, fit.local, fit.q.observation
    noise, n_dims = q.noise, X.shape[1]
    rate, precision, log_norm = model.law
    K = q.n_features
    hyper = model.noise_var.log_prob(noise) + model.feature_var.log_prob(concrete.feature_var)
    values = np.full(n_draws, hyper)
    covs = np.broadcast_to(q.cov, (n_dims, *q.cov.shape[1:])) * noise[:, None, None]
    A = np.stack([rng.multivariate_normal(q.mean[:, d], covs[d], size=n_draws) for d in range(n_dims)], axis=2)
    var = np.outer(np.append(np.full(K, concrete.feature_var), model.offset.spread), noise)
    values += norm.logpdf(A, scale=np.sqrt(var)).sum(axis=(1, 2))
    for d in range(n_dims):
        e = A[:, :, d] - q.mean[:, d]
        values += 0.5 * np.einsum("rk,kl,rl->r", e, np.linalg.inv(covs[d]), e)
        values += 0.5 * (len(e[0]) * np.log(2 * np.pi) + np.linalg.slogdet(covs[d])[1])
    for r in range(n_draws):
        Z, V = model.engine(MeanFieldRows).draw_rows(rng, local)
        with np.errstate(divide="ignore"):
            values[r] -= np.sum(np.log(np.where(Z == 1, local.z_prob, 1 - local.z_prob)))
        if isinstance(local, JointCodes):
            on = Z == 1
            b, c, w = local.pull[on], local.curve[on], V[on]
            norms = [log_slab(*pair, rate, precision, log_norm) for pair in zip(b, c, strict=True)]
            values[r] -= np.sum(b * w - 0.5 * c * w * w) - np.sum(norms)  # p(w) cancels
        else:
            W = np.where(Z == 1, V, np.nan)
            fresh = rng.laplace(local.mean, local.spread) if rate > 0 else rng.normal(local.mean, local.spread**0.5)
            W = np.where(Z == 1, W, fresh)
            log_p = -rate * np.abs(W) - 0.5 * precision * W * W - log_norm
            away, wide = np.abs(W - local.mean), local.spread
            if rate > 0:
                log_q = -away / wide - np.log(2 * wide)
            else:
                log_q = -0.5 * away**2 / wide - 0.5 * np.log(2 * np.pi * wide)
            values[r] += np.sum(log_p - log_q)
        mean = model.offset.centre + V @ A[r, :K] + A[r, K]
        values[r] += np.nansum(norm.logpdf(X, mean, np.sqrt(noise)))
    return values


def monte_carlo_score(kind, family, missing, rng, n_draws=400):
    X, _ = some_data(kind, n_rows=5, n_dims=3, missing=missing)
    model = KINDS[kind](noise_floor=0.0).adapt(X)
    fit = Fit(BetaBernoulli(mass=1.0, n_features=2), model, X, FAMILIES[family], rng.standard_normal((5, 2))).run(1)
    values = log_joint_terms(fit, X, rng, n_draws)
    return abs(
        float(
            z_scores(values[:, None], np.array([model.engine(MeanFieldRows).features_bound(fit.q, fit.statistics)]))[0]
        )
    )


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("family", ["joint", "independent", "features too"])
@pytest.mark.parametrize("kind", KINDS)
def test_bound_equals_its_monte_carlo_estimate(kind, family, missing, rng):
    assert monte_carlo_score(kind, family, missing, rng) <= z_limit(1)


def squares_of_means(rows, *arguments):
    total = rows(*arguments)
    arguments[-1][:] = arguments[-2] ** 2
    return total


def dearer_weights(rows, *arguments):
    """The divergence of a weight is paid in rows without the feature, too."""
    total, (z, _, pull, curve, _, _) = rows(*arguments), arguments[-6:]
    law = arguments[6:9]
    paid = [joint_divergence(*pair, *law)[0] for pair in zip(pull.ravel(), curve.ravel(), strict=True)]
    return total - np.sum((1 - z.ravel()) * paid)


@pytest.mark.parametrize("wrong", [squares_of_means, dearer_weights])
def test_a_wrong_bound_is_seen(wrong, monkeypatch, rng):
    monkeypatch.setattr(_mean_field_codes, "joint_rows", partial(wrong, _mean_field_codes.joint_rows))
    assert monte_carlo_score("normal", "joint", 0.0, rng, 1000) > z_limit(1)


# ---- coordinate ascent


def lowest_step(fit):
    return np.diff(fit.bounds).min() / abs(fit.bounds[-1])


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_bound_never_falls(kind, family, missing, rng):
    X, _ = some_data(kind, missing=missing)
    prior = StickBreakingIBP(mass=Gamma(1.0, 1.0), truncation=4)
    model = KINDS[kind](noise_floor=0.0).adapt(X)
    fit = Fit(prior, model, X, FAMILIES[family], rng.standard_normal((len(X), 4))).run(25)
    assert lowest_step(fit) >= -1e-9
    assert fit.bounds[-1] > fit.bounds[0] + 1.0


def test_a_wrong_update_makes_the_bound_fall(monkeypatch, rng):
    """Evidence that forgets what is not known of the features, which is much in few rows."""
    evidence = _mean_field_codes.evidence
    X, _ = some_data("normal", n_rows=6)
    model, prior = FactorAnalysis(noise_floor=0.0).adapt(X), BetaBernoulli(n_features=3)
    starts = rng.standard_normal((4, 6, 3))
    assert min(lowest_step(Fit(prior, model, X, Family(), codes).run(15)) for codes in starts) >= -1e-9

    def without_spread(q, *, any_missing):
        return evidence(q._replace(cov=np.zeros_like(q.cov)), any_missing=any_missing)

    monkeypatch.setattr(_mean_field_codes, "evidence", without_spread)
    assert min(lowest_step(Fit(prior, model, X, Family(), codes).run(15)) for codes in starts) < -1e-6


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("family", ["joint", "independent"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_last_factor_of_a_pass_is_at_its_optimum(kind, family, missing, rng):
    """Slopes of the bound by its parameters are zero, by finite differences."""
    X, _ = some_data(kind, n_rows=4, missing=missing)
    model = KINDS[kind](noise_floor=0.0).adapt(X)
    fit = Fit(BetaBernoulli(mass=1.0, n_features=2), model, X, FAMILIES[family], rng.standard_normal((4, 2))).run(2)
    fit.rows(50 if family == "independent" else 1)  # location, spread and bit in turn
    names = ("pull", "curve") if family == "joint" else ("mean", "spread")
    h = 1e-4

    def moved(name, step):
        values = np.array(getattr(fit.local, name))
        if name == "z_prob":
            values[1, 1] = expit(np.log(values[1, 1] / (1 - values[1, 1])) + step)
        else:
            values[1, 1] *= math.exp(step)
        odds = fit.prior.expected_log_odds(fit.weights)
        _, statistics = model.engine(MeanFieldRows).update_rows(
            fit.data, fit.q, fit.local._replace(**{name: values}), odds, 0
        )
        return fit.prior.weights_bound(fit.weights, statistics.counts, 4) + model.engine(MeanFieldRows).features_bound(
            fit.q, statistics
        )

    for name in ("z_prob", *names):
        here, up, down = moved(name, 0.0), moved(name, h), moved(name, -h)
        assert abs(up - down) / (2 * h) < 1e-5
        assert here >= max(up, down) - 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_joint_is_better_than_independent(kind, rng):
    X, codes = some_data(kind, n_rows=60)
    model, prior = KINDS[kind](noise_floor=0.0).adapt(X), BetaBernoulli(n_features=2)
    joint, independent = (Fit(prior, model, X, FAMILIES[name], codes).run(80) for name in ("joint", "independent"))
    assert joint.bounds[-1] > independent.bounds[-1] + 1.0
    presence = joint.local.z_prob
    assert np.mean((presence > 0.5) == (np.abs(codes) > 0.3)) > 0.8  # a small weight is as good as none


# ---- golden values


def golden_fit():
    """G11 and G21 of the reference: one state of q, independent Laplace weights."""
    n, d = np.arange(4)[:, None], np.arange(3)
    X = np.sin((n + 1) * (d + 1)) + 0.7 * np.cos(0.3 * (n + 1) + (d + 1))
    model = ICA(noise_var=0.36, feature_var=1.21, offset=None, noise_floor=0.0)
    nu = expit(np.array([[0.3, -0.5], [1.0, 0.2], [-0.7, 0.9], [0.1, -1.2]]))
    mu = np.array([[0.7, -0.4], [1.2, 0.3], [-0.8, 0.05], [0.2, -0.9]])
    eta = np.array([[0.5, 0.9], [0.3, 1.2], [0.7, 0.4], [0.6, 0.8]])
    mean = np.array([[0.5, -0.2, 0.1], [-0.3, 0.8, 0.4]])
    q = GaussianFeatures(FAMILIES["features too"], model, mean, np.diag([0.2, 0.35])[None] / 0.36, np.zeros(2))
    data = model.engine(MeanFieldRows).row_data(X)
    _, statistics = model.engine(MeanFieldRows).update_rows(data, q, IndependentCodes(nu, mu, eta), np.zeros(2), 0)
    return SimpleNamespace(model=model, q=q, statistics=statistics)


@pytest.mark.parametrize(
    ("prior", "golden"),
    [
        (BetaBernoulli(mass=1.5, n_features=2), -36.4394117776),
        (StickBreakingIBP(mass=1.5, truncation=2), -39.6030614804),
    ],
)
def test_golden_bound(prior, golden):
    fit = golden_fit()
    weights = prior.init_weights(4)._replace(tau=np.array([[1.4, 0.9], [2.2, 3.1]]))
    bound = prior.weights_bound(weights, fit.statistics.counts, 4) + fit.model.engine(MeanFieldRows).features_bound(
        fit.q, fit.statistics
    )
    assert bound == pytest.approx(golden, rel=1e-9)


def test_golden_features():
    """The update of the first feature, the second as it is."""
    fit = golden_fit()
    new = fit.model.engine(MeanFieldRows).update_features(fit.q, fit.statistics, learn=False)
    assert 0.36 * new.cov[0, 0, 0] == pytest.approx(0.120520098792, rel=1e-9)
    gram, cross = fit.statistics.gram, fit.statistics.cross
    first = new.cov[0, 0, 0] * (cross[0] - gram[0, 1] * fit.q.mean[1])
    assert first == pytest.approx([0.371310969097, -0.257468210271, -0.369918507871], rel=1e-9)
