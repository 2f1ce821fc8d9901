"""Factor analysis and probabilistic PCA by EM reach the maximum, also with missing cells; wrong formulas do not."""

import types
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.decomposition import PCA, FactorAnalysis
from thinned import thinned

from thali.inference.calibration import factor_em as _factor_em
from thali.inference.calibration.factor_em import FactorFit, fill, fit_factors, log_cells, log_rows, validated_factors


def simulated(rng, n_rows, n_dims, n_factors, missing=0.0):
    noise_sd = rng.uniform(0.5, 1.0, n_dims)
    X = rng.standard_normal((n_rows, n_factors)) @ rng.standard_normal((n_factors, n_dims)) * 1.5
    X += 3.0 + noise_sd * rng.standard_normal((n_rows, n_dims))
    X[rng.random(X.shape) < missing] = np.nan
    return X


def covariance(fit):
    return fit.loadings.T @ fit.loadings + np.diag(fit.noise_var)


def log_likelihood(mean, cov, X):
    """Of the observed cells, row by row from the marginal Gaussian."""
    total = 0.0
    for x, seen in zip(X - mean, ~np.isnan(X), strict=True):
        marginal = cov[np.ix_(seen, seen)]
        total += x[seen] @ np.linalg.solve(marginal, x[seen]) + np.linalg.slogdet(2 * np.pi * marginal)[1]
    return -0.5 * total


def conditional(fit, x, given, d):
    """Mean and variance of cell d given the cells of x where `given` is True."""
    cov = covariance(fit)
    gain = cov[d, given] @ np.linalg.inv(cov[np.ix_(given, given)])
    return fit.mean[d] + gain @ (x - fit.mean)[given], cov[d, d] - gain @ cov[given, d]


def mutant(old, new):
    """The module with one piece of text replaced."""
    source = Path(_factor_em.__file__).read_text()
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times"
    module = types.ModuleType("mutated_factor_em")
    exec(compile(source.replace(old, new), "mutant", "exec"), module.__dict__)
    return module


# ---- the likelihood


def check_never_falls(module, X, n_factors, per_dim):
    likelihood = [
        log_rows(module.fit_factors(X, n_factors, n_iter=n, per_dim=per_dim, floor=1e-3), X).sum() for n in range(25)
    ]
    assert np.min(np.diff(likelihood)) > -1e-8


def check_forms_agree(module, rng):
    """Rows with a matrix for their missing cells and rows with a matrix for their factors: one round gives the same."""
    X = simulated(rng, 30, 6, 3, missing=0.3)
    X[:5] = np.where(np.isnan(X[0]), np.nan, X[:5])  # five rows share a pattern
    X = X[~np.isnan(X).all(axis=1)]
    missing = np.isnan(X)
    R = np.where(missing, 0.0, X - 3.0)
    fit = FactorFit(rng.standard_normal(6), rng.standard_normal((3, 6)), rng.uniform(0.5, 1.0, 6))
    by_cells, by_factors = module._patterns(missing, 6), ([], [np.arange(10), np.arange(10, len(X))])
    assert not by_cells[1]
    one, other = (module._round(fit, R, missing, form, 0.01, per_dim=True) for form in (by_cells, by_factors))
    for a, b in zip(one, other, strict=True):
        assert np.allclose(a, b, rtol=1e-10)


CASES = [(0.0, 2), (0.15, 3), (0.6, 2)]  # share of missing cells, factors: no, few, many missing cells in a row


@pytest.mark.parametrize("per_dim", [True, False])
@pytest.mark.parametrize(("missing", "n_factors"), CASES)
def test_likelihood_never_falls(missing, n_factors, per_dim, rng):
    check_never_falls(_factor_em, simulated(rng, 40, 6, 3, missing), n_factors, per_dim)


def test_both_forms_of_a_round_agree(rng):
    check_forms_agree(_factor_em, rng)


def test_log_rows_is_the_marginal(rng):
    X = simulated(rng, 12, 5, 2, missing=0.3)
    fit = fit_factors(X, 2, n_iter=5)
    assert np.isclose(log_rows(fit, X).sum(), log_likelihood(fit.mean, covariance(fit), X))


# ---- the maximum


def test_factor_analysis_equals_scikit_learn(rng):
    X = simulated(rng, 300, 8, 2)
    ours = fit_factors(X, 2, n_iter=3000, floor=1e-6)
    theirs = FactorAnalysis(2, tol=1e-12, max_iter=20_000, svd_method="lapack").fit(X)
    assert np.allclose(covariance(ours), theirs.get_covariance(), rtol=1e-3, atol=1e-3)
    assert np.isclose(log_rows(ours, X).mean(), theirs.score(X), atol=1e-7)
    assert np.allclose(ours.mean, theirs.mean_)


@pytest.mark.parametrize(("n_rows", "n_dims"), [(60, 7), (7, 20)])
def test_probabilistic_pca_equals_the_closed_form(n_rows, n_dims, rng):
    X = simulated(rng, n_rows, n_dims, 2)
    ours = fit_factors(X, 2, per_dim=False)
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    rest = values[:-2].mean()
    cov = vectors[:, -2:] @ np.diag(values[-2:] - rest) @ vectors[:, -2:].T + rest * np.eye(n_dims)
    assert np.allclose(covariance(ours), cov)
    if n_rows > n_dims:
        theirs = PCA(2).fit(X)
        assert np.allclose(covariance(ours), theirs.get_covariance() * (n_rows - 1) / n_rows)


def check_is_maximum(module, rng, per_dim):
    """With missing cells: no general-purpose optimiser finds a better point."""
    loadings = np.array([1.5, -1.2, 1.0, 1.8])
    X = np.outer(rng.standard_normal(60), loadings) + 0.7 * rng.standard_normal((60, 4))
    X[rng.random(X.shape) < 0.25] = np.nan
    fit = module.fit_factors(X, 1, n_iter=2000, per_dim=per_dim, floor=1e-6)
    n_noise = 4 if per_dim else 1

    def loss(theta):
        mean, loadings, noise_var = theta[:4], theta[4:8], np.exp(theta[8:])
        return -log_likelihood(mean, np.outer(loadings, loadings) + np.diag(np.broadcast_to(noise_var, 4)), X)

    truth = np.concatenate([np.zeros(4), loadings, np.full(n_noise, np.log(0.49))])
    found = minimize(loss, truth, method="BFGS", options={"gtol": 1e-6})
    reached = np.concatenate([fit.mean, fit.loadings[0], np.log(fit.noise_var[:n_noise])])
    assert np.isclose(loss(reached), found.fun, atol=1e-6)
    best = FactorFit(found.x[:4], found.x[None, 4:8], np.broadcast_to(np.exp(found.x[8:]), 4))
    assert np.allclose(covariance(fit), covariance(best), atol=2e-3)
    assert np.allclose(fit.mean, best.mean, atol=2e-3)


@pytest.mark.parametrize("per_dim", [True, False])
def test_is_the_maximum_with_missing_cells(per_dim, rng):
    check_is_maximum(_factor_em, rng, per_dim)


MUTANTS = {
    "missing cells without their variance": ("cell_var = psi**2 * np.diag(T)", "cell_var = 0.0 * psi"),
    "factors of incomplete rows too sure": ("* C + C @ A @ TAC", "* C"),
    "cells and factors uncorrelated": ("cell_cov = psi[:, None] * TAC", "cell_cov = 0.0 * TAC"),
    "filled from the complete row's factors": ("S_inv[p.owner] @ guess", "np.eye(p.cells.shape[1]) @ guess"),
    "no noise in missing cells": ("cell_var += lacking.sum(axis=0) * psi + np.sum", "cell_var += np.sum"),
    "one row of a pattern counted": ("S_inv * p.counts[:, None, None]", "S_inv * 1.0"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_rounds_are_seen(name, rng):
    with pytest.raises(AssertionError):
        check_forms_agree(mutant(*MUTANTS[name]), rng)


@pytest.mark.parametrize("name", ["missing cells without their variance", "filled from the complete row's factors"])
def test_wrong_maximum_is_seen(name, rng):
    with pytest.raises(AssertionError):
        check_is_maximum(mutant(*MUTANTS[name]), rng, per_dim=True)


def test_falling_likelihood_is_seen(rng):
    module = mutant("left.mean() / n_rows", "1.2 * left.mean() / n_rows")
    with pytest.raises(AssertionError):
        check_never_falls(module, simulated(rng, 40, 6, 3), 2, per_dim=False)


# ---- predictions


def check_log_cells(module, rng):
    X = simulated(rng, 9, 5, 2)
    given = rng.random(X.shape) < 0.6
    fit = FactorFit(rng.standard_normal(5), rng.standard_normal((2, 5)), rng.uniform(0.5, 1.0, 5))
    found = module.log_cells(fit, X, given)
    for n, d in np.ndindex(X.shape):
        others = given[n] & (np.arange(5) != d)
        mean, var = conditional(fit, X[n], others, d)
        assert np.isclose(found[n, d], -0.5 * (np.log(2 * np.pi * var) + (X[n, d] - mean) ** 2 / var))


def test_log_cells_is_the_conditional(rng):
    check_log_cells(_factor_em, rng)


@pytest.mark.parametrize(
    "change",
    [("var = fit.noise_var + part_var", "var = fit.noise_var"), ("residual / np.maximum(kept, 1e-12)", "residual")],
    ids=["factors known", "the cell predicts itself"],
)
def test_wrong_log_cells_are_seen(change, rng):
    with pytest.raises(AssertionError):
        check_log_cells(mutant(*change), rng)


def test_log_cells_of_missing_values(rng):
    X = simulated(rng, 9, 5, 2, missing=0.3)
    fit = fit_factors(X, 1)
    found = log_cells(fit, X, ~np.isnan(X))
    assert np.array_equal(np.isnan(found), np.isnan(X))


def test_fill_is_the_conditional_mean(rng, monkeypatch):
    monkeypatch.setattr(_factor_em, "_BLOCK", 20)  # several blocks of rows
    X = simulated(rng, 9, 5, 2, missing=0.4)
    fit = fit_factors(X, 2)
    filled = fill(fit, X)
    for n, d in np.ndindex(X.shape):
        seen = ~np.isnan(X[n])
        expected = X[n, d] if seen[d] else conditional(fit, X[n], seen, d)[0]
        assert np.isclose(filled[n, d], expected)


# ---- the number of factors


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("n_factors", [0, 3])
def test_number_of_factors_is_found(n_factors, missing, rng):
    X = simulated(rng, 300, 20, n_factors, missing)
    fit = validated_factors(rng, X)
    assert n_factors <= len(fit.loadings) <= max(n_factors, 1)  # one weak factor too many may win by chance


def test_same_seed_same_fit():
    X = simulated(np.random.default_rng(1), 50, 8, 2, missing=0.1)
    one, other = (validated_factors(np.random.default_rng(2), X) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_units_do_not_matter(rng):
    X = simulated(rng, 40, 6, 2, missing=0.2)
    plain, scaled = fit_factors(X, 2), fit_factors(1e120 * (X + 10.0), 2)
    assert np.allclose(scaled.mean, 1e120 * (plain.mean + 10.0))
    assert np.allclose(scaled.noise_var, 1e240 * plain.noise_var)


def one_cell_a_row(rng):
    X = np.full((12, 5), np.nan)
    X[np.arange(12), np.arange(12) % 5] = rng.standard_normal(12)
    return X


ODD = {
    "one cell": lambda rng: np.array([[2.0]]),
    "one row": lambda rng: rng.standard_normal((1, 4)),
    "one dim": lambda rng: rng.standard_normal((30, 1)),
    "two rows": lambda rng: rng.standard_normal((2, 50)),
    "constant": lambda rng: np.full((20, 3), 4.0),
    "a constant dim": lambda rng: np.column_stack([rng.standard_normal((20, 3)), np.ones(20)]),
    "equal dims": lambda rng: np.repeat(rng.standard_normal((40, 1)), 6, axis=1),
    "one cell a row": one_cell_a_row,
    "an empty row": lambda rng: np.vstack([rng.standard_normal((20, 4)), np.full((1, 4), np.nan)]),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("per_dim", thinned([True, False], True))
@pytest.mark.parametrize("name", ODD)
def test_odd_data_are_served(name, per_dim, rng):
    X = ODD[name](rng)
    fits = [validated_factors(rng, X, per_dim=per_dim)]
    fits += [fit_factors(X, k, per_dim=per_dim) for k in range(min(X.shape))]
    for fit in fits:
        assert np.all(fit.noise_var > 0)
        assert np.isfinite(fit.noise_var).all()
        assert np.isfinite(log_rows(fit, X)).all()
        assert np.isfinite(fill(fit, X)).all()
