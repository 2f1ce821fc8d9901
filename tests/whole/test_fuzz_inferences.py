"""Whatever comes in, for every model and inference: a right result, or one of thali's own errors with words in it."""

from typing import Any

import numpy as np
import pytest
from fuzzing import OPTIONS
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_data import extreme, plain
from right_results import accepted, check_fit, check_use

import thali
from thali import (
    IBP,
    ICA,
    BetaBernoulli,
    BetaProcess,
    BPMeans,
    CollapsedGibbs,
    DistanceDependentGibbs,
    FactorAnalysis,
    Gamma,
    Gibbs,
    HierarchicalGibbs,
    InverseGamma,
    LatentFeatures,
    LinearGaussian,
    MeanField,
    NormalOffset,
    ParticleFilter,
    PerDim,
    RecursiveIBP,
    SliceSampler,
    StochasticMeanField,
    StreamingMeanField,
)
from thali.core.model import lacking
from thali.running.choose import ALL

PRIORS = st.sampled_from(
    [IBP(), IBP(1.0, 2.0), BetaBernoulli(Gamma(1, 1), 3), BetaProcess(), thali.StickBreakingIBP(), IBP(1.0, 1.0, 0.5)]
)
VARIANCES = {
    "noise_var": st.sampled_from([1.0, InverseGamma(1.0, 0.1, relative=True), PerDim()]),
    "feature_var": st.sampled_from([None, 1.0, InverseGamma(2.0, 1.0)]),
    "offset": st.sampled_from([None, NormalOffset()]),
}
WEIGHTED = VARIANCES | {"ard": st.sampled_from([None, 1.0]), "noise_floor": st.sampled_from([0.0, 0.1, "uniqueness"])}
OBSERVATIONS = st.one_of(
    st.tuples(st.just(LinearGaussian), st.fixed_dictionaries(VARIANCES)),
    st.tuples(st.sampled_from([FactorAnalysis, ICA]), st.fixed_dictionaries(WEIGHTED)),
)
SHORT: dict[str, Any] = {"n_warmup": st.just(2), "n_draws": st.just(3)}
VARIATIONAL: dict[str, Any] = {
    "truncation": st.sampled_from([None, 1, 3]),
    "n_restarts": st.integers(1, 2),
    "start": st.sampled_from(["auto", "spectral", "empty", "random"]),
    "moves": st.booleans(),
    "bits": st.sampled_from(["soft", "hard"]),
    "features": st.sampled_from(["joint", "independent"]),
    "codes": st.sampled_from(["joint", "independent"]),
    "precision": st.sampled_from(["double", "single"]),
}
INFERENCES: dict[type, st.SearchStrategy[Any]] = {
    CollapsedGibbs: st.builds(
        CollapsedGibbs,
        start=st.sampled_from(["search", "spectral", "annealed", "empty"]),
        moves=st.sampled_from([0.0, 0.5]),
        **SHORT,
    ),
    Gibbs: st.builds(Gibbs, births=st.sampled_from(["integrated", "importance"]), start=st.just("empty"), **SHORT),
    SliceSampler: st.builds(SliceSampler, start=st.just("empty"), **SHORT),
    MeanField: st.builds(
        MeanField,
        max_iter=st.integers(1, 6),
        annealing=st.sampled_from([1.0, 10.0]),
        gradual=st.booleans(),
        **VARIATIONAL,
    ),
    StochasticMeanField: st.builds(
        StochasticMeanField,
        method=st.sampled_from(["memoised", "robbins-monro"]),
        batch_size=st.integers(1, 8),
        n_epochs=st.integers(1, 3),
        n_start=st.integers(1, 8),
        **VARIATIONAL,
    ),
    BPMeans: st.builds(
        BPMeans,
        penalty=st.sampled_from([None, 1e-3, 5.0, 1e9]),
        candidates=st.sampled_from(["shared", "residual", "refit"]),
        max_iter=st.integers(1, 4),
        n_restarts=st.integers(1, 3),
    ),
    ParticleFilter: st.builds(ParticleFilter, n_particles=st.integers(2, 9)),
    RecursiveIBP: st.builds(
        RecursiveIBP,
        births=st.sampled_from(["comonotone", "anchored", "independent", "poisson"]),
        forgetting=st.sampled_from([1.0, 0.9]),
        n_start=st.integers(0, 30),
        recipe=st.sampled_from(["residual", "paper"]),
    ),
    StreamingMeanField: st.builds(
        StreamingMeanField,
        batch_size=st.integers(1, 8),
        forgetting=st.sampled_from([None, 0.5, 1.0]),
        start=st.sampled_from(["births", "uniform"]),
        truncation=st.sampled_from([None, 2]),
        n_inner=st.integers(1, 4),
    ),
}


def test_every_inference_is_fuzzed() -> None:
    """But those of rows with distances, of which data of any shape have none."""
    assert set(INFERENCES) == set(ALL) - {DistanceDependentGibbs, HierarchicalGibbs}


@pytest.mark.filterwarnings("ignore:Row .* of this batch:UserWarning")
@pytest.mark.parametrize("data", [plain(), extreme()], ids=["plain", "extreme"])
@pytest.mark.parametrize("kind", INFERENCES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("n", [8, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3000)])])
def test_fuzz_of_models_and_inferences(n: int, kind: type, data: Any) -> None:
    fitted = 0

    def fit_any(X: np.ndarray, prior: Any, parts: Any, inference: Any) -> None:
        nonlocal fitted
        observation = accepted(lambda: parts[0](**parts[1]))
        model = LatentFeatures(observation, prior, inference, n_chains=2, n_jobs=1, random_state=0)
        if observation is not None and accepted(lambda: model.fit(X)):
            assert not lacking(prior, observation, inference)
            check_fit(model, *X.shape)
            check_use(model, X, X)
            fitted += 1

    settings(max_examples=n, **OPTIONS)(
        given(X=data, prior=PRIORS, parts=OBSERVATIONS, inference=INFERENCES[kind])(fit_any)
    )()
    assert fitted > 0 or n < 100, "everything was refused"
