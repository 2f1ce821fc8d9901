"""Infinite latent feature models: which hidden features a data set is made of, which rows have which, how many.

Names are loaded when first used, so that `import thali` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thali import datasets, metrics, testing
    from thali.core.binary import class_size, left_ordered
    from thali.core.distributions import Beta, Gamma, InverseGamma, LogNormal, NormalOffset, PerDim, PerFeature
    from thali.core.registry import register
    from thali.counting import HowMany, how_many
    from thali.dependence import Dependence, dependence_pays
    from thali.errors import IncompatibleModelError, InvalidDataError, InvalidFileError, InvalidParameterError
    from thali.estimator import LatentFeatures
    from thali.grouping import LoadingClasses, loading_classes
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
    from thali.observations import ICA, Bernoulli, FactorAnalysis, LinearGaussian, PoissonGamma, SparseFactorAnalysis
    from thali.priors import (
        IBP,
        BetaBernoulli,
        BetaProcess,
        DistanceDependentIBP,
        HierarchicalBetaProcess,
        StickBreakingIBP,
    )
    from thali.priors.proximity.decays import ConstantDecay, ExponentialDecay, LogisticDecay, WindowDecay
    from thali.priors.proximity.distances import Coordinates, Times
    from thali.reopen import load, resume
    from thali.truncation import suggest_truncation, truncation_bounds

_HOME = {
    "LatentFeatures": "estimator", "load": "reopen", "resume": "reopen",
    "how_many": "counting", "HowMany": "counting",
    "dependence_pays": "dependence", "Dependence": "dependence",
    "loading_classes": "grouping", "LoadingClasses": "grouping",
    "IBP": "priors", "BetaBernoulli": "priors", "StickBreakingIBP": "priors", "BetaProcess": "priors",
    "DistanceDependentIBP": "priors", "HierarchicalBetaProcess": "priors",
    "ConstantDecay": "priors.proximity.decays", "WindowDecay": "priors.proximity.decays",
    "ExponentialDecay": "priors.proximity.decays", "LogisticDecay": "priors.proximity.decays",
    "Times": "priors.proximity.distances", "Coordinates": "priors.proximity.distances",
    "truncation_bounds": "truncation", "suggest_truncation": "truncation",
    "register": "core.registry",
    "left_ordered": "core.binary", "class_size": "core.binary",
    "LinearGaussian": "observations", "FactorAnalysis": "observations", "ICA": "observations",
    "PoissonGamma": "observations", "Bernoulli": "observations", "SparseFactorAnalysis": "observations",
    "CollapsedGibbs": "inference", "Gibbs": "inference", "SliceSampler": "inference",
    "DistanceDependentGibbs": "inference", "HierarchicalGibbs": "inference",
    "BPMeans": "inference", "MeanField": "inference", "StochasticMeanField": "inference", "ParticleFilter": "inference",
    "RecursiveIBP": "inference",
    "StreamingMeanField": "inference",
    "Gamma": "core.distributions", "InverseGamma": "core.distributions", "Beta": "core.distributions",
    "LogNormal": "core.distributions", "PerDim": "core.distributions", "PerFeature": "core.distributions",
    "NormalOffset": "core.distributions",
    "InvalidParameterError": "errors", "InvalidDataError": "errors", "IncompatibleModelError": "errors",
    "InvalidFileError": "errors",
}  # fmt: skip
_MODULES = ("datasets", "metrics", "testing")

__all__ = [
    "LatentFeatures", "load", "resume",
    "how_many", "HowMany", "loading_classes", "LoadingClasses", "dependence_pays", "Dependence",
    "IBP", "BetaBernoulli", "StickBreakingIBP", "BetaProcess", "DistanceDependentIBP", "HierarchicalBetaProcess",
    "ConstantDecay", "WindowDecay", "ExponentialDecay", "LogisticDecay", "Times", "Coordinates",
    "truncation_bounds", "suggest_truncation", "left_ordered", "class_size", "register",
    "LinearGaussian", "FactorAnalysis", "ICA", "PoissonGamma", "Bernoulli", "SparseFactorAnalysis",
    "CollapsedGibbs", "Gibbs", "SliceSampler", "MeanField", "StochasticMeanField", "BPMeans", "ParticleFilter",
    "RecursiveIBP",
    "StreamingMeanField",
    "DistanceDependentGibbs", "HierarchicalGibbs",
    "Gamma", "InverseGamma", "Beta", "LogNormal", "PerDim", "PerFeature", "NormalOffset",
    "InvalidParameterError", "InvalidDataError", "IncompatibleModelError", "InvalidFileError",
    "datasets", "metrics", "testing",
    "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("thali")
    if name in _MODULES:
        return import_module(f"thali.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'thali' has no attribute {name!r}")
    value = getattr(import_module(f"thali.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
