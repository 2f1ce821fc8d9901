"""The linear-Gaussian model keeps its contract; wrong ones do not; its statistics stay exact over many sweeps."""

import numpy as np
import pytest
from thinned import thinned

from thali import IBP, InvalidParameterError, InverseGamma, LinearGaussian, NormalOffset, PerDim
from thali.core.odds import exchangeable_odds
from thali.core.protocols.engines.chains import ChainRows, CollapsedRows, MarginalRows, StartRows
from thali.core.protocols.engines.predictions import Predictions
from thali.inference.starts.spectral import low_rank_completion
from thali.observations.gaussian.collapsed import CollapsedGaussian
from thali.observations.gaussian.marginal import GaussianMarginal
from thali.observations.gaussian.prediction import BitPredictions
from thali.testing import check_observation

MODELS = {
    "one noise level": LinearGaussian(noise_var=0.3, feature_var=1.2),
    "noise per dim": LinearGaussian(noise_var=np.array([0.3, 0.8]), feature_var=1.2),
    "offset": LinearGaussian(noise_var=0.3, feature_var=1.2, offset=np.array([1.0, -0.5])),
    "both": LinearGaussian(noise_var=np.array([0.3, 0.8]), feature_var=1.2, offset=np.array([1.0, -0.5])),
}


def completed(spec, data):
    return low_rank_completion(spec.engine(StartRows).matrix(data)[0])


@pytest.mark.parametrize("name", thinned(MODELS, "both"))
def test_contract(name, rng):
    check_observation(MODELS[name], rng, n_draws=5_000)


class WrongMarginalRows(GaussianMarginal):
    def log_marginal(self, X, codes):
        return super().log_marginal(X, codes) + 0.1


class WrongPredictions(BitPredictions):
    def encode(self, X, codebook, log_odds, new_rate):
        return super().encode(X, codebook, log_odds + 0.1, new_rate)


class SweepsItsInput(CollapsedGaussian):
    def sweep(self, rng, data, local, *args):
        local.z[0] = 1 - local.z[0]
        return super().sweep(rng, data, local, *args)


class WrongMarginal(LinearGaussian):
    engines = LinearGaussian.engines | {MarginalRows: WrongMarginalRows}


class WrongEncoding(LinearGaussian):
    engines = LinearGaussian.engines | {Predictions: WrongPredictions}


class ChangesItsInput(LinearGaussian):
    engines = LinearGaussian.engines | {CollapsedRows: SweepsItsInput}


WORDS = {
    WrongMarginal: "log_marginal must be the mean of log_prob",
    WrongEncoding: "encode must give the posterior of the bits",
    ChangesItsInput: "CollapsedRows.sweep with group=1 must leave its arguments as they were",
}


@pytest.mark.parametrize("kind", thinned(WORDS, WrongEncoding))
def test_contract_catches_mutants(kind, rng):
    with pytest.raises(AssertionError, match=rf"\A{WORDS[kind]}"):
        check_observation(kind(noise_var=0.3, feature_var=1.2), rng, n_draws=20_000 if kind is WrongMarginal else 2_000)


@pytest.mark.parametrize(
    "spec",
    [
        LinearGaussian(),
        LinearGaussian(offset=NormalOffset()),
        LinearGaussian(noise_var=PerDim(), noise_floor=0.1, offset=NormalOffset()),
    ],
    ids=["plain", "offset", "per dim"],
)
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_statistics_stay_exact(spec, missing, rng):
    """gram and cross after many sweeps equal Z'Z and Z'X from scratch."""
    X = rng.standard_normal((60, 5)) + 3.0 * (rng.random((60, 1)) < 0.5)
    X[rng.random(X.shape) < missing] = np.nan
    spec = spec.adapt(X)
    data = spec.engine(ChainRows).prepare(X)
    prior = IBP(mass=1.0)
    current, local = spec.engine(StartRows).begin(data, prior.simulate(rng, 60), completed(spec, data))
    for _ in range(60):
        local, remarks = current.engine(CollapsedRows).sweep(rng, data, local, exchangeable_odds(prior, 60))
        current = current.engine(ChainRows).resample(rng, spec, data, local)
        assert remarks["drift"] < 1e-8
    dense = local.z.astype(float)
    full = current.engine(ChainRows).completed(data, local)
    assert np.array_equal(local.gram, dense.T @ dense)
    assert np.allclose(local.cross, dense.T @ full, rtol=1e-9, atol=1e-9)
    assert np.array_equal(full[~np.isnan(X)], X[~np.isnan(X)])


def test_scale_of_the_data_does_not_matter(rng):
    """Default priors adapt: the same streams give the same Z for X and 1000 X."""
    X = rng.standard_normal((40, 6)) + 2.0 * (rng.random((40, 1)) < 0.4)
    found = []
    for factor in (1.0, 1024.0):
        stream = np.random.default_rng(5)
        spec = LinearGaussian().adapt(factor * X)
        data = spec.engine(ChainRows).prepare(factor * X)
        prior = IBP(mass=1.0)
        current, local = spec.engine(StartRows).begin(data, prior.simulate(stream, 40), factor * X)
        for _ in range(20):
            local, _ = current.engine(CollapsedRows).sweep(stream, data, local, exchangeable_odds(prior, 40))
            current = current.engine(ChainRows).resample(stream, spec, data, local)
        found.append(local.z)
    assert np.array_equal(*found)


def test_floor_holds(rng):
    X = rng.standard_normal((50, 4)) * np.array([1.0, 2.0, 3.0, 4.0])
    spec = LinearGaussian(noise_var=PerDim(), noise_floor=0.5).adapt(X)
    data = spec.engine(ChainRows).prepare(X)
    current, local = spec.engine(StartRows).begin(data, IBP(mass=1.0).simulate(rng, 50), completed(spec, data))
    for _ in range(30):
        current = current.engine(ChainRows).resample(rng, spec, data, local)
        assert (current.noise_var >= 0.5 * X.var(axis=0)).all()


def test_reconstruction_undoes_the_offset(rng):
    Z = (rng.random((30, 2)) < 0.5).astype(np.uint8)
    X = LinearGaussian(noise_var=0.01, feature_var=1.0, offset=np.full(4, 50.0)).simulate(rng, Z, n_dims=4)
    assert abs(X.mean() - 50.0) < 5.0


def test_default_feature_variance_is_learned_not_a_number(rng):
    spec = LinearGaussian(noise_var=0.3)
    with pytest.raises(InvalidParameterError, match=r"feature_var.*Got None"):
        spec.engine(MarginalRows).log_marginal(np.zeros((2, 1)), np.ones((2, 1), dtype=int))
    assert spec.simulate(rng, np.ones((2, 1), dtype=int), n_dims=3).shape == (2, 3)
    assert spec.replace(scale=np.ones(3)).draw(rng, 3).feature_var > 0


def test_one_centre_serves_all_dims(rng):
    X = 5.0 + rng.standard_normal((20, 3))
    X[0, 0] = np.nan
    spec = LinearGaussian(offset=NormalOffset(centre=5.0)).adapt(X)
    data = spec.engine(ChainRows).prepare(X)
    current, local = spec.engine(StartRows).begin(data, np.zeros((20, 0), dtype=np.uint8), completed(spec, data))
    prior = IBP(mass=1.0)
    local, _ = current.engine(CollapsedRows).sweep(rng, data, local, exchangeable_odds(prior, 20))
    assert current.engine(ChainRows).resample(rng, spec, data, local).offset.shape == (3,)


@pytest.mark.parametrize("size", [0.0, 1e-6, 1e6])
def test_a_start_is_probable_under_the_prior(size, rng):
    """From a point without density, one slice step goes anywhere: feature_var was 7e21 after it."""
    law = InverseGamma(4.0, 4.0)
    observation = LinearGaussian(noise_var=0.3, feature_var=law, offset=None)
    X = size * rng.standard_normal((6, 2))
    started, local = observation.engine(StartRows).begin(
        observation.engine(ChainRows).prepare(X), np.eye(6, 3, dtype=np.uint8), X
    )
    learned = started.engine(ChainRows).resample(rng, observation, observation.engine(ChainRows).prepare(X), local)
    assert law.log_prob(started.feature_var) > (-60 if size <= 1 else -200)
    assert learned.feature_var < 1e3 * max(1.0, size**2)
