"""Which inference serves a model: the user's own, or the choice of "auto" with its reason."""

from typing import Any, NamedTuple

from thali.errors import InvalidParameterError
from thali.inference import (
    BPMeans,
    CollapsedGibbs,
    Gibbs,
    MeanField,
    ParticleFilter,
    SliceSampler,
    StochasticMeanField,
)
from thali.model import check_composition, lacking

AUTO = (CollapsedGibbs, Gibbs, SliceSampler)  # in order of preference
ALL = (*AUTO, MeanField, StochasticMeanField, BPMeans, ParticleFilter)


class Choice(NamedTuple):
    """The inference that is used, and why."""

    inference: Any
    reason: str


def choose(inference: Any, prior: Any, observation: Any, n_rows: int, n_dims: int) -> Choice:
    """Resolve `inference="auto"`, or check that the given one fits."""
    alternatives = [kind() for kind in ALL]
    if isinstance(inference, str):
        if inference != "auto":
            raise InvalidParameterError(
                f'inference must be "auto" or an inference such as CollapsedGibbs(). Got {inference!r}.'
            )
        for candidate in alternatives[: len(AUTO)]:
            if not lacking(prior, observation, candidate):
                size = f"{n_rows} x {n_dims}"
                return Choice(
                    candidate, f"{type(candidate).__name__}: exact sampling, features integrated out ({size})"
                )
        check_composition(prior, observation, alternatives[0], alternatives)
    needed = ("needs_prior", "needs_observation")
    if isinstance(inference, type) or not all(hasattr(inference, name) for name in needed):
        raise InvalidParameterError(
            f'inference must be "auto" or an inference such as CollapsedGibbs(). Got {inference!r}.'
        )
    check_composition(prior, observation, inference, alternatives)
    return Choice(inference, f"{type(inference).__name__}: as asked")
