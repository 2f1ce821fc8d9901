"""Codes that a user gives as a start: every inference that has a start begins there, and wrong ones are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thali
from thali import (
    IBP,
    BetaBernoulli,
    BPMeans,
    CollapsedGibbs,
    FactorAnalysis,
    Gibbs,
    InvalidDataError,
    InvalidParameterError,
    LatentFeatures,
    LinearGaussian,
    MeanField,
    PoissonGamma,
    SliceSampler,
    StochasticMeanField,
)
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.inference.calibration.noise_floor import calibrate
from thali.rng import make_generator

rng = np.random.default_rng(0)
Z = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]])
W = Z * rng.normal(size=Z.shape)
X = Z[:, :2] @ np.array([[4.0, 4, 0, 0], [0, 0, 4, -4]]) + 0.1 * rng.standard_normal((8, 4))
COUNTS = rng.poisson(Z[:, :2] @ np.array([[6.0, 6, 0, 0], [0, 0, 9, 2]]) + 0.2).astype(float)
FEW = {"n_warmup": 3, "n_draws": 4}


CASES = {
    "bits": (LinearGaussian(), X, Z),
    "weights": (FactorAnalysis(noise_floor=0.05), X, W),
    "counts": (PoissonGamma(), COUNTS, Z * 3.0),
}
SERVED = [(CollapsedGibbs, "bits")] + [(kind, name) for kind in (Gibbs, SliceSampler) for name in CASES]


@pytest.mark.parametrize(("inference", "name"), SERVED)
def test_chains_begin_there(inference: Any, name: str) -> None:
    observation, data, codes = CASES[name]
    sampler = inference(start=codes, **FEW)
    model = calibrate(Model(IBP(), observation), data)
    work = model.observation.engine(ChainRows).prepare(data)
    state = sampler.init(make_generator(0), model, work, len(data))
    begun = state.observation.engine(ChainRows).codes(state.local)
    used = codes[:, codes.any(axis=0)]
    if observation.code_kind == "positive":  # a row with counts gets a feature
        begun, used = begun[Z.any(axis=1)], used[Z.any(axis=1)]
    assert np.array_equal(begun, used)


@pytest.mark.parametrize(
    "inference",
    [
        CollapsedGibbs(start=Z, **FEW),
        MeanField(start=Z, n_restarts=1, max_iter=20),
        StochasticMeanField(start=Z, n_restarts=1, n_epochs=3),
        BPMeans(start=Z, n_restarts=1, penalty=1.0),
    ],
    ids=lambda inference: type(inference).__name__,
)
def test_every_inference_takes_them(inference: Any, tmp_path: Path) -> None:
    model = LatentFeatures(LinearGaussian(), inference=inference, n_chains=1, random_state=0, verbose=False)
    model.fit(X)
    assert model.n_components_ == 2
    model.save(tmp_path / "fit.thali")
    assert np.array_equal(thali.load(tmp_path / "fit.thali").inference_.inference.start, Z)


def test_a_finite_prior_gets_its_columns() -> None:
    sampler = CollapsedGibbs(start=Z, **FEW)
    model = calibrate(Model(BetaBernoulli(n_features=4), LinearGaussian()), X)
    work = model.observation.engine(ChainRows).prepare(X)
    assert sampler.init(make_generator(0), model, work, 8).local.z.shape == (8, 4)


@pytest.mark.parametrize(
    ("codes", "prior", "words"),
    [
        (Z[:5], IBP(), "a row of codes for each of the 8 rows of X. Got 5"),
        (2 * Z, IBP(), "zeros and ones: the codes of LinearGaussian are bits"),
        (np.eye(8), BetaBernoulli(n_features=3), "at most the 3 features of the prior. Got 8"),
    ],
    ids=["rows", "bits", "columns"],
)
def test_codes_that_do_not_fit_are_refused(codes: np.ndarray, prior: Any, words: str) -> None:
    with pytest.raises(InvalidDataError, match=words):
        LatentFeatures(LinearGaussian(), prior, CollapsedGibbs(start=codes, **FEW), verbose=False).fit(X)


def test_negative_weights_of_counts_are_refused() -> None:
    with pytest.raises(InvalidDataError, match="must not be negative"):
        LatentFeatures(PoissonGamma(), IBP(), Gibbs(start=-1.0 * Z, **FEW), verbose=False).fit(COUNTS)


@pytest.mark.parametrize("start", ["nowhere", np.zeros(3), [[1, 2], [3]], np.array([[np.nan]]), None])
@pytest.mark.parametrize("inference", [CollapsedGibbs, MeanField, BPMeans])
def test_what_is_no_start_is_refused(inference: Any, start: Any) -> None:
    with pytest.raises(InvalidParameterError, match="or a matrix of codes"):
        inference(start=start)
