"""Whatever prior meets whatever observation model, "auto" finds an inference for it or says why there is none."""

import itertools
import warnings

import numpy as np
import pytest

from thali import (
    IBP,
    ICA,
    Bernoulli,
    Beta,
    BetaBernoulli,
    BetaProcess,
    CollapsedGibbs,
    DistanceDependentGibbs,
    DistanceDependentIBP,
    ExponentialDecay,
    FactorAnalysis,
    Gibbs,
    HierarchicalBetaProcess,
    HierarchicalGibbs,
    IncompatibleModelError,
    LatentFeatures,
    LinearGaussian,
    MeanField,
    PoissonGamma,
    SparseFactorAnalysis,
    StickBreakingIBP,
    Times,
    how_many,
)
from thali.core.model import lacking
from thali.running.choose import choose, serves

TIMES = Times(np.arange(12.0))
PRIORS = {
    "one": IBP(),
    "two": IBP(concentration=2.0),
    "three": IBP(discount=0.5),
    "learned discount": IBP(discount=Beta(1.0, 1.0)),
    "finite": BetaBernoulli(n_features=4),
    "sticks": StickBreakingIBP(),
    "few sticks": StickBreakingIBP(truncation=4),
    "rounds": BetaProcess(truncation=5),
    "distances": DistanceDependentIBP(distances=TIMES, decay=ExponentialDecay(0.1)),
    "groups": HierarchicalBetaProcess.from_distances(TIMES, ExponentialDecay(0.1)),
}
OBSERVATIONS = {
    "bits": LinearGaussian(),
    "factors": FactorAnalysis(),
    "sources": ICA(),
    "counts": PoissonGamma(),
    "no bits": PoissonGamma(leak=1.0),
    "zeros and ones": Bernoulli(),
    "loadings of dims": SparseFactorAnalysis(),
    "loadings of rows": SparseFactorAnalysis(sparse="rows"),
}
PAIRS = list(itertools.product(PRIORS, OBSERVATIONS))
SMALL, LARGE = (12, 4), (10**6, 50)


def none_serves(prior, observation):
    """Mean field alone serves sticks, and models without bits; it knows no discount, and not every likelihood."""
    if observation == "no bits":
        return prior in ("distances", "groups", "three", "learned discount")
    if observation == "zeros and ones":
        return prior in ("distances", "sticks", "few sticks")
    if prior == "groups":
        return observation.startswith("loadings")
    return prior == "distances" and observation not in ("bits", "factors", "sources")


@pytest.mark.parametrize(("prior", "observation"), PAIRS)
def test_something_serves_or_it_is_said_why_not(prior, observation):
    parts = PRIORS[prior], OBSERVATIONS[observation]
    for shape in (SMALL, LARGE):
        if none_serves(prior, observation):
            with pytest.raises(IncompatibleModelError, match=r"Inference that fits .*: none yet|Use discount=0"):
                choose("auto", *parts, *shape)
            continue
        inference, reason = choose("auto", *parts, *shape)
        assert not lacking(*parts, inference)
        assert reason.startswith(f"{type(inference).__name__}: ")
        kinds = (CollapsedGibbs, Gibbs, DistanceDependentGibbs, HierarchicalGibbs)
        samplers = [kind for kind in kinds if not lacking(*parts, kind()) and observation != "no bits"]
        if shape == SMALL or not serves(MeanField(), *parts):
            assert isinstance(inference, samplers[0] if samplers else MeanField)
            assert ("exact sampling" in reason) is bool(samplers)
            assert ("no sampler serves" in reason) is not samplers
        else:
            assert "is large" in reason
            assert isinstance(inference, MeanField)


@pytest.mark.parametrize(
    ("prior", "observation"),
    [
        ("few sticks", "bits"),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS if not none_serves(*pair)),
    ],
)
def test_a_small_fit_works(prior, observation):
    X = np.random.default_rng(0).poisson(2.0, SMALL).astype(float)
    X = np.minimum(X, 1.0) if observation == "zeros and ones" else X
    settings = {"n_chains": 1, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what so few rows say need not be sure
        model = LatentFeatures(OBSERVATIONS[observation], PRIORS[prior], **settings).fit(X)
        found = how_many(X, observation=OBSERVATIONS[observation], prior=PRIORS[prior], **settings)
    assert model.posterior_.k == found.k
    assert model.transform(X).shape == (12, model.n_components_)
    assert model.inference_.reason.startswith(type(model.inference_.inference).__name__)
