"""The choices of a model on the command line, and the estimator that they describe."""

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thali.estimator import LatentFeatures


class Observation(StrEnum):
    LINEAR_GAUSSIAN = "linear-gaussian"
    FACTOR_ANALYSIS = "factor-analysis"
    ICA = "ica"
    POISSON_GAMMA = "poisson-gamma"

    def make(self, **parts: Any) -> Any:
        """The model with these parts."""
        from thali import ICA, FactorAnalysis, LinearGaussian, PoissonGamma

        kinds = {
            Observation.LINEAR_GAUSSIAN: LinearGaussian,
            Observation.FACTOR_ANALYSIS: FactorAnalysis,
            Observation.ICA: ICA,
            Observation.POISSON_GAMMA: PoissonGamma,
        }
        return kinds[self](**parts)


class Prior(StrEnum):
    IBP = "ibp"
    BETA_BERNOULLI = "beta-bernoulli"


class Inference(StrEnum):
    AUTO = "auto"
    SAMPLER = "sampler"
    MEAN_FIELD = "mean-field"
    STOCHASTIC_MEAN_FIELD = "stochastic-mean-field"
    BP_MEANS = "bp-means"
    PARTICLE_FILTER = "particle-filter"

    def make(self) -> Any:
        """The inference of that name; "auto" is chosen later, and so is the sampler."""
        from thali import BPMeans, MeanField, ParticleFilter, StochasticMeanField

        kinds: dict[Inference, Any] = {
            Inference.MEAN_FIELD: MeanField,
            Inference.STOCHASTIC_MEAN_FIELD: StochasticMeanField,
            Inference.BP_MEANS: BPMeans,
            Inference.PARTICLE_FILTER: ParticleFilter,
        }
        return kinds[self]() if self in kinds else "auto"


class Noise(StrEnum):
    COMMON = "common"
    PER_DIM = "per-dim"


class Offset(StrEnum):
    NONE = "none"
    LEARNED = "learned"


def make_prior(kind: Prior, max_features: int | None, mass: float | None) -> Any:
    from thali import IBP, BetaBernoulli

    given = {"mass": mass, "n_features": max_features}
    parts: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return IBP(**parts) if kind is Prior.IBP else BetaBernoulli(**parts)


def make_observation(kind: Observation, noise: Noise | None, noise_floor: float | None, offset: Offset | None) -> Any:
    """What is None is left to the model."""
    from thali import InvalidParameterError, LinearGaussian, NormalOffset, PerDim

    parts: dict[str, Any] = {}
    if noise_floor is not None:
        parts["noise_floor"] = noise_floor
    if noise is not None:
        parts["noise_var"] = PerDim() if noise is Noise.PER_DIM else LinearGaussian().noise_var
    if offset is not None:
        parts["offset"] = NormalOffset() if offset is Offset.LEARNED else None
    if parts and kind is Observation.POISSON_GAMMA:
        raise InvalidParameterError("--noise, --noise-floor and --offset are not for counts; leave them out.")
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
