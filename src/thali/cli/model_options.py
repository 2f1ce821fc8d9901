"""The choices of a model on the command line, and the estimator that they describe."""

import dataclasses
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import thali
from thali.errors import InvalidParameterError

if TYPE_CHECKING:
    from thali.estimator import LatentFeatures


def kebab(name: str) -> str:
    """LinearGaussian is linear-gaussian among the options."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


_SHORT = {"SparseFactorAnalysis": "sparse-factors"}
_OBSERVATIONS = {_SHORT.get(name, kebab(name)): name for name, home in thali._HOME.items() if home == "observations"}


class Observation(StrEnum):
    """Every observation model that thali exports."""

    _ignore_ = "option"
    LINEAR_GAUSSIAN = "linear-gaussian"  # these two are named by verbs
    POISSON_GAMMA = "poisson-gamma"
    for option in _OBSERVATIONS:
        if option not in (LINEAR_GAUSSIAN, POISSON_GAMMA):
            vars()[option.replace("-", "_").upper()] = option

    @property
    def kind(self) -> Any:
        """The class of the model."""
        return getattr(thali, _OBSERVATIONS[self.value])

    def make(self, **parts: Any) -> Any:
        """The model with these parts; an error if it has no such parts."""
        self.refuse({f"--{name.replace('_', '-')}": name for name in parts})
        return self.kind(**parts)

    def refuse(self, options: dict[str, str]) -> None:
        """An error if one of these options sets a part that the model does not have."""
        names = {field.name for field in dataclasses.fields(self.kind)}
        lacking = [option for option, part in options.items() if part not in names]
        if lacking:
            are, them = ("is", "it") if len(lacking) == 1 else ("are", "them")
            raise thali.InvalidParameterError(
                f"{' and '.join(lacking)} {are} not for {self.kind.words}; leave {them} out."
            )


def option_of(observation: Any) -> str:
    """The name of an observation model among the options."""
    name = type(observation).__name__
    return _SHORT.get(name, kebab(name))


class Sparse(StrEnum):
    DIMS = "dims"
    ROWS = "rows"


class Prior(StrEnum):
    IBP = "ibp"
    BETA_BERNOULLI = "beta-bernoulli"


class FitPrior(StrEnum):
    """Those of all rows at once: with distances between the rows, too."""

    IBP = Prior.IBP.value
    BETA_BERNOULLI = Prior.BETA_BERNOULLI.value
    DISTANCE_DEPENDENT = "distance-dependent"
    HIERARCHICAL = "hierarchical"

    @property
    def is_of_near_rows(self) -> bool:
        return self in (FitPrior.DISTANCE_DEPENDENT, FitPrior.HIERARCHICAL)


class Inference(StrEnum):
    AUTO = "auto"
    SAMPLER = "sampler"
    MEAN_FIELD = "mean-field"
    STOCHASTIC_MEAN_FIELD = "stochastic-mean-field"
    BP_MEANS = "bp-means"
    PARTICLE_FILTER = "particle-filter"
    RECURSIVE = "recursive"
    STREAMING_MEAN_FIELD = "streaming-mean-field"

    def make(self) -> Any:
        """The inference of that name; "auto" is chosen later, and so is the sampler."""
        from thali import BPMeans, MeanField, ParticleFilter, RecursiveIBP, StochasticMeanField, StreamingMeanField

        kinds: dict[Inference, Any] = {
            Inference.MEAN_FIELD: MeanField,
            Inference.STOCHASTIC_MEAN_FIELD: StochasticMeanField,
            Inference.BP_MEANS: BPMeans,
            Inference.PARTICLE_FILTER: ParticleFilter,
            Inference.RECURSIVE: RecursiveIBP,
            Inference.STREAMING_MEAN_FIELD: StreamingMeanField,
        }
        return kinds[self]() if self in kinds else "auto"


class StreamInference(StrEnum):
    """Those that take rows as they come."""

    RECURSIVE = Inference.RECURSIVE.value
    STREAMING_MEAN_FIELD = Inference.STREAMING_MEAN_FIELD.value
    STOCHASTIC_MEAN_FIELD = Inference.STOCHASTIC_MEAN_FIELD.value
    PARTICLE_FILTER = Inference.PARTICLE_FILTER.value

    def make(self, batch: int | None = None) -> Any:
        """The inference of that name; `batch` rows are taken in together, if that is a setting of its own."""
        if batch is not None and self is StreamInference.RECURSIVE:
            raise InvalidParameterError("--batch has no use with recursive: it takes rows as they come. Leave it out.")
        made = Inference(self.value).make()
        own = batch is not None and self is StreamInference.STREAMING_MEAN_FIELD
        return made.replace(batch_size=batch) if own else made


STREAM_INFERENCE = StreamInference.RECURSIVE


class Noise(StrEnum):
    COMMON = "common"
    PER_DIM = "per-dim"


class Offset(StrEnum):
    NONE = "none"
    LEARNED = "learned"


def make_prior(kind: Prior | FitPrior, max_features: int | None, mass: float | None) -> Any:
    from thali import IBP, BetaBernoulli

    given = {"mass": mass, "n_features": max_features}
    parts: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return BetaBernoulli(**parts) if kind == Prior.BETA_BERNOULLI else IBP(**parts)


def make_observation(
    kind: Observation,
    noise: Noise | None,
    noise_floor: float | None,
    offset: Offset | None,
    sparse: Sparse | None = None,
) -> Any:
    """What is None is left to the model."""
    from thali import LinearGaussian, NormalOffset, PerDim

    options = {"--noise": "noise_var", "--noise-floor": "noise_floor", "--offset": "offset", "--sparse": "sparse"}
    given = dict(zip(options, (noise, noise_floor, offset, sparse), strict=True))
    kind.refuse({option: options[option] for option, value in given.items() if value is not None})
    parts: dict[str, Any] = {} if sparse is None else {"sparse": sparse.value}
    if noise_floor is not None:
        parts["noise_floor"] = noise_floor
    if noise is not None:
        parts["noise_var"] = PerDim() if noise is Noise.PER_DIM else LinearGaussian().noise_var
    if offset is not None:
        own = kind.make().offset  # learned in its own way, if it is
        learned = own if isinstance(own, NormalOffset) else NormalOffset()
        parts["offset"] = learned if offset is Offset.LEARNED else None
    return kind.make(**parts)


def make_estimator(
    observation: Any,
    prior: Any,
    shape: tuple[int, ...],
    sampling: dict[str, int | None],
    kind: Inference = Inference.AUTO,
    **settings: Any,
) -> "LatentFeatures":
    """`sampling` overrides settings of the sampler that fits; None leaves one as it is."""
    from thali import LatentFeatures
    from thali.errors import InvalidParameterError
    from thali.running.choose import sampler

    given = {name: value for name, value in sampling.items() if value is not None}
    inference = kind.make()
    if not isinstance(inference, str):
        if given:
            raise InvalidParameterError(f"{', '.join(given)} are settings of samplers; leave them out with {kind}.")
    elif given or kind is Inference.SAMPLER:
        found = sampler(prior, observation, *shape)
        if found is not None:
            inference = found.inference.replace(**given)
    return LatentFeatures(observation, prior, inference, **settings)
