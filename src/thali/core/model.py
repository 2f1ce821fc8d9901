"""Model = prior x observation, and whether an inference can serve it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from thali.core.observation import Observation
from thali.core.registry import stored
from thali.core.spec import Spec
from thali.errors import IncompatibleModelError


@stored("Model")
@dataclass(frozen=True, eq=False)
class Model(Spec):
    """A prior over Z and an observation model of X given Z."""

    prior: Any
    observation: Any


def lacking(prior: Any, observation: Any, inference: Any) -> list[str]:
    """What the inference needs and the two components do not provide, in words."""
    missing = []
    for kind, component, needs in (
        ("a prior", prior, inference.needs_prior),
        ("an observation", observation, inference.needs_observation),
    ):
        has = component.has if isinstance(component, Observation) else partial(isinstance, component)
        names = [capability.__name__ for capability in needs if not has(capability)]
        if names:
            missing.append(
                f"{type(inference).__name__} needs {kind} with {' and '.join(f'`{n}`' for n in names)}, "
                f"which {type(component).__name__} does not provide."
            )
    if isinstance(observation, Observation) and observation.owners == "dims" and inference.shape == "blocks":
        missing.append(
            f"{type(inference).__name__} takes a batch of rows of X at a time, but the bits of this "
            f"{type(observation).__name__} belong to its dims: a batch would be some dims, with all rows."
        )
    return missing


def compatible(
    priors: Iterable[Any], observations: Iterable[Any], inferences: Iterable[Any]
) -> list[tuple[Any, Any, Any]]:
    """All triples that fit together. Feeds the docs' table and the tests."""
    inferences = list(inferences)
    observations = list(observations)
    return [
        (prior, observation, inference)
        for prior in priors
        for observation in observations
        for inference in inferences
        if not lacking(prior, observation, inference)
    ]


def check_composition(prior: Any, observation: Any, inference: Any, alternatives: Iterable[Any] = ()) -> None:
    """Raise one error that names everything missing, and the inferences among `alternatives` that would fit."""
    missing = lacking(prior, observation, inference)
    if missing:
        fits = [type(other).__name__ for _, _, other in compatible([prior], [observation], alternatives)]
        pair = f"{type(prior).__name__} x {type(observation).__name__}"
        missing.append(f"Inference that fits {pair}: {', '.join(fits) or 'none yet'}.")
        raise IncompatibleModelError("\n".join(missing))
