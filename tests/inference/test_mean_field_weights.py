"""Whole variational fits of models with weights: known sources are found, signs are shown one way, the bound rises."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from thali import ICA, FactorAnalysis, LatentFeatures, MeanField, StickBreakingIBP
from thali.inference.variational import mean_field

KINDS = {"normal": FactorAnalysis, "laplace": ICA}


def sources(kind, n_rows=200, n_dims=10, noise=0.4):
    rng = np.random.default_rng(3)
    codes = (rng.random((n_rows, 3)) < 0.4) * KINDS[kind]().draw_weights(rng, (n_rows, 3))
    X = codes @ rng.standard_normal((3, n_dims)) + noise * rng.standard_normal((n_rows, n_dims)) + 2.0
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, codes


def fit(kind, X, **options):
    inference = MeanField(**{"n_restarts": 1} | options, start="spectral")
    return LatentFeatures(KINDS[kind](noise_floor=0.0), StickBreakingIBP(), inference, random_state=0).fit(X)


def matched(codes, found):
    table = np.abs(np.corrcoef(codes.T, found.T)[:3, 3:])
    return table[linear_sum_assignment(table, maximize=True)]


@pytest.mark.parametrize("codes", ["joint", pytest.param("independent", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_sources_are_found(kind, codes):
    X, true = sources(kind)
    model = fit(kind, X, n_restarts=2, codes=codes, max_iter=100)
    assert model.n_components_ == 3
    assert matched(true, model.posterior_.q.codes).min() > 0.9
    features = model.components_ / np.sqrt(model.posterior_.factors.q.observation.noise_var)
    assert (features[range(3), np.abs(features).argmax(axis=1)] > 0).all()
    objective = model.history_["objective"][0]
    assert np.diff(objective).max() <= 1e-9 * abs(objective[-1])


def test_codes_and_features_are_turned_together():
    X, _ = sources("normal")
    posterior = fit("normal", X, max_iter=20).posterior_
    left = X - posterior.fitted_mean(np.arange(len(X)))
    assert np.nanvar(left) < 0.3


def test_stretching_needs_fewer_passes(monkeypatch):
    X, _ = sources("laplace", noise=0.2)
    X = np.where(np.isnan(X), 2.0, X)
    with_it = fit("laplace", X, moves=False, max_iter=400)
    monkeypatch.setattr(mean_field, "stretched", lambda problem, state: state)
    without = fit("laplace", X, moves=False, max_iter=400)
    assert 2 * with_it.history_["n_passes"][0] < without.history_["n_passes"][0]
    assert with_it.posterior_.bound > without.posterior_.bound - 0.2  # both end where a pass gains little
