"""Whatever comes in, for every model and inference: a right result, or one of thali's own errors with words in it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
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
    FactorAnalysis,
    Gamma,
    Gibbs,
    InverseGamma,
    LatentFeatures,
    LinearGaussian,
    NormalOffset,
    ParticleFilter,
    PerDim,
    SliceSampler,
)
from thali.core.model import lacking

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
SHORT: dict[str, Any] = {"n_warmup": 2, "n_draws": 3, "start": "empty"}
INFERENCES = st.one_of(
    st.builds(Gibbs, births=st.sampled_from(["integrated", "importance"]), **{k: st.just(v) for k, v in SHORT.items()}),
    st.just(SliceSampler(**SHORT)),
    st.builds(ParticleFilter, n_particles=st.integers(2, 9)),
    st.builds(
        BPMeans,
        penalty=st.sampled_from([None, 1e-3, 5.0, 1e9]),
        candidates=st.sampled_from(["shared", "residual", "refit"]),
        max_iter=st.integers(1, 4),
        n_restarts=st.integers(1, 3),
    ),
)


def fit_any(X: np.ndarray, prior: Any, parts: Any, inference: Any) -> None:
    observation = accepted(lambda: parts[0](**parts[1]))
    model = LatentFeatures(observation, prior, inference, n_chains=2, n_jobs=1, random_state=0)
    if observation is not None and accepted(lambda: model.fit(X)):
        assert not lacking(prior, observation, inference)
        check_fit(model, *X.shape)
        check_use(model, X, X)


@pytest.mark.filterwarnings("ignore:Row .* of this batch:UserWarning")
@pytest.mark.parametrize("kind", ["plain", "extreme"])
@pytest.mark.parametrize("n", [8, pytest.param(400, marks=[pytest.mark.slow, pytest.mark.timeout(3000)])])
def test_fuzz_of_models_and_inferences(kind: str, n: int) -> None:
    data = {"plain": plain(), "extreme": extreme()}[kind]
    options = {"derandomize": True, "deadline": None, "suppress_health_check": list(HealthCheck), "database": None}
    fuzz = given(X=data, prior=PRIORS, parts=OBSERVATIONS, inference=INFERENCES)(fit_any)
    settings(max_examples=n, **options)(fuzz)()
