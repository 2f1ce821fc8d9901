"""Which inference serves a model: the user's own, or the choice of "auto" with its reason."""

from typing import Any

from thali.core.model import check_composition, lacking
from thali.errors import IncompatibleModelError, InvalidParameterError
from thali.inference import (
    BPMeans,
    CollapsedGibbs,
    DistanceDependentGibbs,
    Gibbs,
    HierarchicalGibbs,
    MeanField,
    ParticleFilter,
    RecursiveIBP,
    SliceSampler,
    StochasticMeanField,
    StreamingMeanField,
)
from thali.storage.fit import Choice

AUTO = (CollapsedGibbs, Gibbs, SliceSampler, DistanceDependentGibbs, HierarchicalGibbs)  # in order of preference
LARGE = 10**7  # rows x dims (a hundred or more): samplers would take an hour or more
ALL = (*AUTO, MeanField, StochasticMeanField, BPMeans, ParticleFilter, RecursiveIBP, StreamingMeanField)


def choose(inference: Any, prior: Any, observation: Any, n_rows: int, n_dims: int) -> Choice:
    """Resolve `inference="auto"`, or check that the given one fits."""
    alternatives = [kind() for kind in ALL]
    if isinstance(inference, str):
        if inference != "auto":
            raise InvalidParameterError(
                f'inference must be "auto" or an inference such as CollapsedGibbs(). Got {inference!r}.'
            )
        if n_rows * max(n_dims, 100) > LARGE and serves(MeanField(), prior, observation):
            return Choice(
                MeanField(),
                f"MeanField: {n_rows} x {n_dims} is large, sampling would take hours; it approximates the posterior",
            )
        found = sampler(prior, observation, n_rows, n_dims)
        if found is not None:
            return found
        if not lacking(prior, observation, MeanField()):
            pair = f"{type(prior).__name__} x {type(observation).__name__}"
            why = "" if observation.has_bits else ", which has no bits"
            if not serves(MeanField(), prior, observation):
                raise IncompatibleModelError(
                    f"No sampler serves {pair}{why}, and MeanField does not serve a prior with a discount. "
                    "Use discount=0, or an observation model with bits."
                )
            return Choice(MeanField(), f"MeanField: no sampler serves {pair}{why}; it approximates the posterior")
        if not observation.has_bits:  # which all samplers need
            alternatives = [other for other in alternatives if type(other) not in AUTO]
        check_composition(prior, observation, CollapsedGibbs(), alternatives)
    needed = ("needs_prior", "needs_observation")
    if isinstance(inference, type) or not all(hasattr(inference, name) for name in needed):
        raise InvalidParameterError(
            f'inference must be "auto" or an inference such as CollapsedGibbs(). Got {inference!r}.'
        )
    check_composition(prior, observation, inference, alternatives)
    return Choice(inference, f"{type(inference).__name__}: as asked")


def sampler(prior: Any, observation: Any, n_rows: int, n_dims: int) -> Choice | None:
    """The sampler that serves these parts best, whatever the size of the data."""
    if not observation.has_bits:
        return None
    for kind in AUTO:
        if not lacking(prior, observation, kind()):
            how = (
                "exact sampling, features integrated out"
                if kind in (CollapsedGibbs, DistanceDependentGibbs)
                else "exact sampling"
            )
            reason = f"{kind.__name__}: {how} ({n_rows} x {n_dims})"
            return Choice(kind(), reason)
    return None


def serves(inference: Any, prior: Any, observation: Any) -> bool:
    """Whether a variational inference fits, and the prior has weights for it with its present parameters."""
    if lacking(prior, observation, inference):
        return False
    try:
        prior.init_weights(1)
    except InvalidParameterError:  # a discount
        return False
    return True
