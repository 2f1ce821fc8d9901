"""Joint-distribution tests: the sweep in compiled code, and the whole step with learned hyperparameters."""

import numpy as np
import pytest
from mutants import mutant
from thinned import thinned

from thali import (
    IBP,
    Beta,
    BetaBernoulli,
    CollapsedGibbs,
    Gamma,
    InverseGamma,
    LinearGaussian,
    LogNormal,
    NormalOffset,
    PerDim,
)
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.observations.gaussian.rows import BitRows
from thali.testing import geweke, geweke_sweeps

FIXED = LinearGaussian(noise_var=0.3, feature_var=1.0)
MISSING = np.zeros((4, 2), dtype=bool)
MISSING[0, 1] = MISSING[2, 0] = True

PRIORS = {
    "one parameter": IBP(mass=1.2),
    "two parameters": IBP(mass=1.2, concentration=2.5),
    "three parameters": IBP(mass=1.0, concentration=0.7, discount=0.4),
    "finite": BetaBernoulli(mass=1.5, n_features=3),
}

LEARNED = {
    "mass and variances": Model(
        IBP(mass=Gamma(2.0, 2.0)),
        LinearGaussian(noise_var=InverseGamma(3.0, 1.0), feature_var=InverseGamma(3.0, 2.0)),
    ),
    "three learned parameters": Model(
        IBP(mass=Gamma(2.0, 2.0), concentration=Gamma(2.0, 1.0), discount=Beta(1.0, 3.0)), FIXED
    ),
    "finite, mass learned": Model(BetaBernoulli(mass=Gamma(2.0, 1.0), n_features=3), FIXED),
    "noise per dim with floor, offset": Model(
        IBP(mass=1.0),
        LinearGaussian(
            noise_var=PerDim(2.0, Gamma(2.0, 2.0)),
            feature_var=LogNormal(0.0, 1.0),
            offset=NormalOffset(centre=np.zeros(2), spread=4.0),
            noise_floor=0.2,
            scale=np.ones(2),
        ),
    ),
    "one noise level with floor, offset": Model(
        IBP(mass=1.0),
        LinearGaussian(
            noise_var=InverseGamma(3.0, 1.0),
            feature_var=Gamma(2.0, 2.0),
            offset=NormalOffset(centre=np.array([0.5, -0.5]), spread=4.0),
            noise_floor=0.1,
            scale=np.ones(2),
        ),
    ),
}


@pytest.mark.parametrize("missing", [None, MISSING], ids=["complete", "missing cells"])
@pytest.mark.parametrize("prior", PRIORS)
def test_sweep(prior, missing, rng):
    result = geweke_sweeps(PRIORS[prior], FIXED, rng, n_replicates=40_000, missing=missing)
    assert len(result.z) >= 12
    assert result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("missing", [None, MISSING], ids=["complete", "missing cells"])
@pytest.mark.parametrize("prior", PRIORS)
def test_sweep_million(prior, missing, rng):
    result = geweke_sweeps(PRIORS[prior], FIXED, rng, n_replicates=1_000_000, missing=missing)
    assert result.passed, result.worst


@pytest.mark.parametrize(
    "name",
    [
        "drop singletons first",
        pytest.param("append-order scan", marks=pytest.mark.slow),
        pytest.param("missing D/2", marks=pytest.mark.slow),
        pytest.param("no factorial in new columns", marks=pytest.mark.slow),
    ],
)
def test_wrong_sweeps_fail(name, rng):
    sweep = mutant(name)["replicates"].sweep_replicates
    result = geweke_sweeps(PRIORS["one parameter"], FIXED, rng, n_replicates=100_000, capacity=64, sweep=sweep)
    assert not result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imputation without feature variance", "missing cells used as data"])
def test_wrong_imputations_fail(name, rng):
    sweep = mutant(name)["replicates"].sweep_replicates
    result = geweke_sweeps(PRIORS["one parameter"], FIXED, rng, n_replicates=100_000, missing=MISSING, sweep=sweep)
    assert not result.passed, result.worst


@pytest.mark.parametrize("name", thinned(LEARNED, "noise per dim with floor, offset"))
def test_whole_step(name, rng):
    result = geweke(LEARNED[name], CollapsedGibbs(moves=1.0), rng, n_replicates=2_500, missing=MISSING)
    assert result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("missing", [None, MISSING], ids=["complete", "missing cells"])
@pytest.mark.parametrize("name", LEARNED)
def test_whole_step_long(name, missing, rng):
    result = geweke(LEARNED[name], CollapsedGibbs(moves=1.0), rng, n_replicates=40_000, missing=missing)
    assert result.passed, result.worst


class MassWithoutPrior(IBP):
    """The mass conditional with its rate forgotten."""

    def resample(self, rng, current, Z):
        return super().resample(rng, current, Z).replace(mass=float(rng.gamma(self.mass.shape + Z.shape[1])))


class LowNoise(BitRows):
    def resample(self, rng, spec, data, local):
        current = super().resample(rng, spec, data, local)
        return current.replace(noise_var=0.8 * current.noise_var)


class HalfTheNoise(LinearGaussian):
    """A noise update that is off by a factor."""

    engines = LinearGaussian.engines | {ChainRows: LowNoise}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(Model(MassWithoutPrior(mass=Gamma(2.0, 2.0)), FIXED), marks=pytest.mark.slow),
        Model(IBP(mass=1.2), HalfTheNoise(noise_var=InverseGamma(3.0, 1.0), feature_var=1.0)),
    ],
    ids=["mass", "noise"],
)
def test_wrong_hyperparameter_steps_fail(model, rng):
    result = geweke(model, CollapsedGibbs(moves=1.0), rng, n_replicates=4_000)
    assert not result.passed, result.worst
