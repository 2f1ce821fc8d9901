"""What the bound of mean field with Gaussian data must be, and that its factors are at their optimum."""

import itertools

import numpy as np
import pytest
from gaussian_fits import MODELS, PRIORS, X4, Fit, with_holes
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit, logsumexp
from scipy.stats import multivariate_normal

from thali.core.distributions import NormalOffset, PerDim
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows
from thali.observations.gaussian.mean_field import point_variances as _point_variances
from thali.observations.gaussian.mean_field import sums as _feature_factor
from thali.testing.enumerate import all_matrices
from thali.testing.zscores import z_scores


def log_marginal(model, concrete, X, Z):
    """log p(X | Z) over observed cells: columns of X are normal with the features and the offset integrated out."""
    total, n_dims = 0.0, X.shape[1]
    noise = np.broadcast_to(concrete.noise_var, n_dims)
    feature = concrete.feature_var * (noise if concrete.per_dim else np.ones(n_dims))
    learned = isinstance(model.offset, NormalOffset)
    centre = model.offset.centre if learned else (np.zeros(n_dims) if model.offset is None else model.offset)
    for d in range(n_dims):
        seen = ~np.isnan(X[:, d])
        z = Z[seen].astype(float)
        cov = noise[d] * (np.eye(len(z)) + (model.offset.spread if learned else 0.0)) + feature[d] * z @ z.T
        error = X[seen, d] - centre[d]
        total -= 0.5 * (np.linalg.slogdet(2 * np.pi * cov)[1] + error @ np.linalg.solve(cov, error))
    return total


def log_evidence(fit, X, K):
    terms = [fit.prior.log_prob(Z) + log_marginal(fit.model, fit.q.observation, X, Z) for Z in all_matrices(len(X), K)]
    return float(logsumexp(terms)) + fit.model.engine(MeanFieldRows)._log_variances(fit.q.observation)


def score_of_bound(name, holes, features, rng):
    X = with_holes(X4, rng) if holes else X4
    fit = Fit(MODELS[name], PRIORS["finite"], X, 3, Family(features=features))
    fit.run(2)
    model, concrete, q, P = fit.model, fit.q.observation, fit.q, fit.local.z_prob
    noise = q.noise
    n_draws, (n_columns, n_dims) = 20_000, q.mean.shape
    Z = rng.random((n_draws, *P.shape)) < P
    value = -(Z * np.log(P) + ~Z * np.log1p(-P)).sum(axis=(1, 2))
    cov = np.broadcast_to(q.cov, (n_dims, n_columns, n_columns)) * noise[:, None, None]
    centre = 0.0 if model.offset is None else np.asarray(getattr(model.offset, "centre", model.offset))
    prior_var = np.full((n_columns, n_dims), concrete.feature_var) * (noise if concrete.per_dim else 1.0)
    if n_columns == 4:
        prior_var[3] = model.offset.spread * noise
    A = np.empty((n_draws, n_columns, n_dims))
    for d in range(n_dims):
        law = multivariate_normal(q.mean[:, d], cov[d])
        A[:, :, d] = law.rvs(size=n_draws, random_state=rng).reshape(n_draws, n_columns)
        value -= law.logpdf(A[:, :, d])
    value += -0.5 * (np.log(2 * np.pi * prior_var) + A**2 / prior_var).sum(axis=(1, 2))
    codes = np.concatenate([Z, np.ones((n_draws, len(P), n_columns - 3))], axis=2)
    error = X - centre - codes @ A
    value += np.nansum(-0.5 * (np.log(2 * np.pi * noise) + error**2 / noise), axis=(1, 2))
    expected = model.engine(MeanFieldRows).features_bound(q, fit.sums) - model.engine(MeanFieldRows)._log_variances(
        concrete
    )
    return float(z_scores(value[:, None], np.array([expected]))[0])


def slope(function, at=0.0, step=1e-4):
    """Derivative by central differences, of fourth order."""
    a, b, c, d = (function(at + i * step) for i in (-2, -1, 1, 2))
    return (a - 8 * b + 8 * c - d) / (12 * step)


def check_bits(fit, rng):
    """The last feature's bits, which were updated last: the best log-odds are where the slope is zero."""
    fit.update_rows()
    for n in rng.choice(fit.n_rows, 4, replace=False):

        def bound(change, n=n):
            P = fit.local.z_prob.copy()
            P[n, -1] = expit(logit(P[n, -1]) + change)
            _, sums = fit.model.engine(MeanFieldRows).update_rows(
                fit.data, fit.q, fit.local._replace(z_prob=P), np.zeros(3), 0
            )
            return fit.prior.weights_bound(fit.weights, sums.counts, fit.n_rows) + fit.model.engine(
                MeanFieldRows
            ).features_bound(fit.q, sums)

        assert abs(slope(bound)) < 1e-7
        assert max(bound(-0.5), bound(0.5)) < bound(0.0)


def check_features(fit, rng):
    """No change of the means or of the covariances in a random direction raises the bound."""
    fit.update_features(learn=False)
    q, independent = fit.q, fit.q.family.features == "independent"
    means = rng.standard_normal((6, *q.mean.shape))
    turns = rng.standard_normal((6, *q.cov.shape))
    if independent:
        turns *= np.eye(len(q.mean))
    for mean, turn in itertools.chain(
        zip(means, np.zeros_like(turns), strict=True), zip(np.zeros_like(means), turns, strict=True)
    ):

        def bound(size, mean=mean, turn=turn):
            by = np.eye(len(q.mean)) + size * turn
            changed = q._replace(mean=q.mean + size * mean, cov=by @ q.cov @ np.swapaxes(by, 1, 2))
            return fit.model.engine(MeanFieldRows).features_bound(changed, fit.sums)

        assert abs(slope(bound)) < 1e-6
        assert max(bound(-0.05), bound(0.05)) < bound(0.0)


def check_variances(fit):
    """Each variance maximises the bound, with what the step holds held."""
    fit.update_features(learn=False)
    model, q, sums = fit.model, fit.q, fit.sums
    noise = q.observation.noise_var

    def bound(cov, **values):
        return model.engine(MeanFieldRows).features_bound(
            q._replace(observation=q.observation.updated(**values), cov=cov), sums
        )

    parts = _feature_factor.error_parts(q, sums)
    if isinstance(model.noise_var, PerDim):
        new = _point_variances._noise_per_dim(model, q, sums, parts[0]).observation.noise_var
        for d in range(3):

            def of_dim(log_v, d=d):
                values = new.copy()
                values[d] = np.exp(log_v)
                return -bound(q.cov, noise_var=values)

            lowest = model.floor(3)[d]
            found = minimize_scalar(of_dim, bounds=(np.log(lowest), np.log(new[d]) + 3), options={"xatol": 1e-10})
            assert of_dim(np.log(new[d])) <= found.fun + 1e-9
    else:
        new = _point_variances._one_noise(model, q, sums, *parts).observation.noise_var
        lowest = max(model.floor(3).mean(), 1e-3)

        def one(log_v):
            return -bound(q.cov * (noise / np.exp(log_v)), noise_var=float(np.exp(log_v)))

        found = minimize_scalar(one, bounds=(np.log(lowest), np.log(new) + 3), options={"xatol": 1e-10})
        assert one(np.log(new)) <= found.fun + 1e-9
    new = _point_variances._feature_var(model, q).observation.feature_var
    found = minimize_scalar(
        lambda log_v: -bound(q.cov, feature_var=float(np.exp(log_v))), bracket=(np.log(new) - 1, np.log(new) + 1)
    )
    assert np.log(new) == pytest.approx(found.x, abs=1e-6)
    stretched = _point_variances._stretch(model, q, sums)
    for factor in (0.99, 1.01):
        by = np.ones(len(q.mean))
        by[: q.n_features] = np.sqrt(factor)
        other = stretched._replace(
            observation=stretched.observation.updated(feature_var=stretched.observation.feature_var * factor),
            cov=stretched.cov * np.outer(by, by),
        )
        assert model.engine(MeanFieldRows).features_bound(other, sums) < model.engine(MeanFieldRows).features_bound(
            stretched, sums
        )
