"""Simulation-based calibration of hyperparameters, of features, and of what both say of the data."""

import numpy as np
import pytest
from thinned import thinned

from thali import (
    IBP,
    ICA,
    BetaBernoulli,
    BetaProcess,
    CollapsedGibbs,
    FactorAnalysis,
    Gamma,
    Gibbs,
    InverseGamma,
    LinearGaussian,
    SliceSampler,
)
from thali.core.model import Model, compatible
from thali.core.protocols.engines.chains import ChainRows
from thali.observations.gaussian.rows import BitRows
from thali.testing import sbc
from thali.testing.sbc import uniformity

MODEL = Model(
    IBP(mass=Gamma(2.0, 2.0)),
    LinearGaussian(noise_var=InverseGamma(4.0, 1.0), feature_var=InverseGamma(4.0, 4.0)),
)
VARIANCES = {"noise_var": InverseGamma(4.0, 1.0), "feature_var": InverseGamma(4.0, 4.0), "offset": None}
TRIPLES = compatible(
    [
        IBP(mass=Gamma(2.0, 2.0)),
        BetaBernoulli(mass=Gamma(2.0, 2.0), n_features=3),
        BetaProcess(mass=Gamma(2.0, 2.0), concentration=2.0, rounds=2),
    ],
    [LinearGaussian(**VARIANCES), FactorAnalysis(**VARIANCES, noise_floor=0.0), ICA(**VARIANCES, noise_floor=0.0)],
    [
        CollapsedGibbs(start="spectral", moves=1.0),
        Gibbs(start="spectral", moves=0.5),
        Gibbs(start="spectral", births="importance", moves=0.5),
        SliceSampler(start="spectral", moves=0.5),
    ],
)
OF_DATA = {"log likelihood", "cell (0, 0)"}
NAMES = {"mass", "noise_var", "feature_var", "K", "ones", "bits of row 0", "shared(0, 1)"} | OF_DATA
FEW = {"n_replicates": 64, "n_draws": 15, "n_warmup": 40, "thin": 2}


class NarrowNoise(BitRows):
    def resample(self, rng, spec, data, local):
        current = super().resample(rng, spec, data, local)
        return current.replace(noise_var=current.noise_var**0.7)


class TooSure(LinearGaussian):
    """A noise posterior that is too narrow around a wrong centre."""

    engines = LinearGaussian.engines | {ChainRows: NarrowNoise}


def test_uniformity_tells_uniform_from_skewed(rng):
    assert uniformity(rng.integers(0, 32, size=2000), 31, 8) > 1e-4
    assert uniformity(np.minimum(rng.integers(0, 32, size=2000), rng.integers(0, 32, size=2000)), 31, 8) < 1e-10


def test_calibrated(rng):
    missing = np.zeros((6, 2), dtype=bool)
    missing[0, 0] = missing[4, 1] = True
    result = sbc(MODEL, CollapsedGibbs(start="empty", moves=1.0), rng, missing=missing, **FEW)
    assert set(result.p_values) == NAMES
    assert result.passed(), result.p_values


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_calibrated_long(rng):
    result = sbc(
        MODEL, CollapsedGibbs(start="spectral", moves=1.0), rng, n_replicates=1000, n_draws=63, n_warmup=150, thin=5
    )
    assert result.passed(), result.p_values


@pytest.mark.slow
@pytest.mark.parametrize(
    "triple", TRIPLES, ids=["-".join(type(part).__name__ for part in t) + getattr(t[2], "births", "") for t in TRIPLES]
)
def test_every_triple_is_calibrated(triple, rng):
    prior, observation, inference = triple
    result = sbc(Model(prior, observation), inference, rng, n_replicates=320, n_draws=31, n_warmup=80, thin=3)
    assert result.passed(), result.p_values


@pytest.mark.slow
def test_wrong_noise_step_is_not(rng):
    wrong = TooSure(noise_var=InverseGamma(4.0, 1.0), feature_var=InverseGamma(4.0, 4.0))
    result = sbc(Model(MODEL.prior, wrong), CollapsedGibbs(start="empty", moves=1.0), rng, **FEW)
    assert not result.passed(), result.p_values


class OddRows(BitRows):
    def prepare(self, X):
        return super().prepare(np.where(np.arange(len(X))[:, None] % 2, X, np.nan))


class OddDims(BitRows):
    def prepare(self, X):
        first = np.arange(len(X))[:, None] == 0
        return super().prepare(np.where(first | (np.arange(X.shape[1]) % 2 == 1), X, np.nan))


class IgnoresRows(LinearGaussian):
    """Half of the rows never reach the sampler."""

    engines = LinearGaussian.engines | {ChainRows: OddRows}


class IgnoresDims(LinearGaussian):
    """Half of the dims never reach the sampler, but for their first cell: no dim may be wholly missing."""

    engines = LinearGaussian.engines | {ChainRows: OddDims}


@pytest.mark.parametrize("blind", thinned([IgnoresRows, IgnoresDims], IgnoresRows))
def test_only_what_depends_on_the_data_sees_that_half_of_it_is_ignored(blind, rng):
    model = Model(MODEL.prior, blind(noise_var=InverseGamma(4.0, 1.0), feature_var=InverseGamma(4.0, 4.0)))
    result = sbc(model, CollapsedGibbs(start="empty", moves=1.0), rng, **FEW)
    assert result.p_values["log likelihood"] < 1e-8
    rest = result._replace(p_values={name: p for name, p in result.p_values.items() if name not in OF_DATA})
    assert rest.passed(), rest.p_values
