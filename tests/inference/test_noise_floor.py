"""The noise floor of FactorAnalysis and ICA: any units, odd rows and cells, and room for the posterior."""

import numpy as np
import pytest

from thali import IBP, ICA, FactorAnalysis, Gibbs, LatentFeatures, PerDim
from thali.core.model import Model
from thali.data.odd_cells import odd_cells
from thali.inference.calibration.factor_em import fit_factors
from thali.inference.calibration.noise_floor import calibrate

NOISE_VAR = 0.36


def clean(seed=0, n_rows=150, n_dims=15, K=4):
    rng = np.random.default_rng(seed)
    codes = (rng.random((n_rows, K)) < 0.5) * rng.standard_normal((n_rows, K))
    return codes @ rng.standard_normal((K, n_dims)) + np.sqrt(NOISE_VAR) * rng.standard_normal((n_rows, n_dims))


def fitted(X, model=None, n_chains=1, n_draws=20):
    inference = Gibbs(n_warmup=n_draws, n_draws=n_draws)
    return LatentFeatures(model or FactorAnalysis(), inference=inference, n_chains=n_chains, random_state=0).fit(X)


def floor_of(model, X):
    """The floor of each dim of these data."""
    return calibrate(Model(IBP(), model), X).observation.floor(X.shape[1])


# ---- units


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_factor_analysis_has_the_same_bits_in_units_of_powers_of_two(missing, rng):
    X = clean()
    X[rng.random(X.shape) < missing] = np.nan
    units = 2.0 ** rng.integers(-20, 21, X.shape[1])
    one, other = fit_factors(X, 4, n_iter=10), fit_factors(X * units, 4, n_iter=10)
    assert np.array_equal(one.noise_var * units**2, other.noise_var)
    assert np.array_equal(one.loadings * units, other.loadings)


@pytest.mark.parametrize(
    "model",
    [
        FactorAnalysis(),
        pytest.param(ICA(), marks=pytest.mark.slow),
        FactorAnalysis(noise_floor=0.05),
        pytest.param(FactorAnalysis(noise_floor=0.0), marks=pytest.mark.slow),
    ],
    ids=["normal", "laplace", "a share", "no floor"],
)
def test_a_fit_does_not_mind_units(model, rng):
    X = clean(n_rows=60, n_dims=8, K=2)
    units = 2.0 ** rng.integers(-20, 21, X.shape[1])
    one, other = fitted(X, model), fitted(X * units, model)
    assert np.array_equal(one.posterior_.draws["n_features"], other.posterior_.draws["n_features"])
    noise = [model.posterior_.hyper["observation.noise_var"] for model in (one, other)]
    assert np.array_equal(noise[0] * units**2, noise[1])
    gap = one.score_samples(X[:5]) - np.log(units).sum() - other.score_samples(X[:5] * units)
    assert np.abs(gap).max() < 1e-9


@pytest.mark.parametrize("times", [100.0, 1e6])
def test_one_dim_in_another_unit(times):
    X = clean(n_rows=60, n_dims=8, K=2)
    units = np.where(np.arange(8) == 3, times, 1.0)
    floors = [floor_of(FactorAnalysis(), data) for data in (X, X * units)]
    assert floors[1] == pytest.approx(floors[0] * units**2, rel=1e-6)


def test_the_prior_of_the_noise_is_in_units():
    units, x = np.array([4.0, 0.25]), np.array([0.3, 2.0])
    plain = PerDim(2.5).scaled(1.0)
    assert plain.by_dim(units) == plain  # an absolute level stays
    law = PerDim(2.5).by_dim(units)
    assert law.log_prob(x * units) == pytest.approx(plain.log_prob(x) - np.log(units).sum())
    draws = [p.sample(np.random.default_rng(1), 2) for p in (plain, law)]
    assert np.allclose(draws[0] * units, draws[1])
    levels = [p.sample_level(np.random.default_rng(1), v) for p, v in ((plain, x), (law, x * units))]
    assert levels[0] == levels[1]


# ---- odd rows and cells


def shifted_row(X, rng):
    X[7] += 24 * np.sqrt(NOISE_VAR)


def wild_rows(X, rng):
    X[7:9] = 30 * rng.standard_normal((2, X.shape[1]))


def cell(X, rng):
    X[7, 2] += 24 * np.sqrt(NOISE_VAR)


def cells_of_one_dim(X, rng):
    X[7, 2] += 24 * np.sqrt(NOISE_VAR)
    X[30, 2] -= 1e6


@pytest.mark.parametrize(
    "spoil", [pytest.param(shifted_row, marks=pytest.mark.slow), wild_rows, cell, cells_of_one_dim]
)
def test_odd_rows_and_cells_do_not_set_the_floor(spoil, rng):
    """Nowhere is it above the noise, as it was many times over; a dim or two may follow another factor."""
    X = clean(n_rows=100, n_dims=10, K=2)
    before = floor_of(FactorAnalysis(), X)
    spoil(X, rng)
    floor = floor_of(FactorAnalysis(), X)
    assert np.median(floor / before) == pytest.approx(1.0, abs=0.05)
    assert floor.max() < 1.1 * NOISE_VAR


def test_a_share_is_of_the_variance_without_odd_cells():
    X = clean()
    X[7, 2] = 1e6
    floor = floor_of(FactorAnalysis(noise_floor=0.1), X)
    assert floor[2] == pytest.approx(0.1 * np.delete(X[:, 2], 7).var())
    assert np.delete(floor, 2) == pytest.approx(0.1 * np.delete(X, 2, axis=1).var(axis=0))


def test_which_cells_are_odd(rng):
    X = rng.standard_normal((100, 6))
    X[3, 0] = 20.0
    X[:, 1] = 0.0
    X[:2, 1] = 50.0  # most cells equal: the others are what there is
    X[:40, 2] = 30.0  # too many to be exceptions
    X[5, 3:6] = 90.0  # half of a row: all of it
    X[8:, 4] = np.nan
    odd = odd_cells(X)
    expected = np.zeros_like(odd)
    expected[3, 0], expected[5] = True, True
    expected[:, 4] = False  # eight cells are too few to tell
    expected[5, 4] = True
    assert np.array_equal(odd, expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "X",
    [
        np.column_stack([clean(n_rows=12, n_dims=3, K=1), np.full(12, 1e9), np.arange(12) % 2, np.arange(12) == 3]),
        np.full((6, 3), 0.1),
        clean(n_rows=6, n_dims=20, K=2),
        np.where(np.arange(40).reshape(8, 5) % 3 == 0, np.nan, clean(n_rows=8, n_dims=5, K=1)),
    ],
    ids=["constant and two values", "all constant", "few rows", "holes"],
)
def test_odd_dims_have_a_floor(X):
    floor = floor_of(FactorAnalysis(), X.astype(float))
    assert np.isfinite(floor).all()
    assert (floor > 0).all()


# ---- the posterior of the noise (slow: whole fits)


@pytest.mark.slow
def test_intervals_of_the_noise_cover_it():
    """90 % intervals; 5 sets of 15 dims have a standard error of 0.035. A floor at the estimate covers 0.6."""
    covered, noise = [], []
    for seed in range(5):
        posterior = fitted(clean(seed), n_chains=2, n_draws=150).posterior_
        draws = posterior.hyper["observation.noise_var"].reshape(-1, 15)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        covered.append(np.mean((low < NOISE_VAR) & (high > NOISE_VAR)))
        noise.append(draws.mean() / NOISE_VAR)
    assert 0.82 < np.mean(covered) < 0.97
    assert 0.95 < np.mean(noise) < 1.05


@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "most"), [(None, 4), (shifted_row, 5), (cell, 5), (wild_rows, 6)])
def test_an_odd_row_is_one_feature_at_most(spoil, most, rng):
    X = clean(2)
    if spoil is not None:
        spoil(X, rng)
    assert 4 <= fitted(X, n_chains=2, n_draws=150).n_components_ <= most
