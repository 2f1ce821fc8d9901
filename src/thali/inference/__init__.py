"""Inference. A new sampler is one new file here and one line below."""

from thali.inference.bp_means import BPMeans
from thali.inference.samplers.collapsed_gibbs import CollapsedGibbs
from thali.inference.samplers.distance_dependent_gibbs import DistanceDependentGibbs
from thali.inference.samplers.gibbs import Gibbs
from thali.inference.samplers.hierarchical_gibbs import HierarchicalGibbs
from thali.inference.samplers.slice_sampler import SliceSampler
from thali.inference.streams.particle_filter import ParticleFilter
from thali.inference.streams.recursive_ibp import RecursiveIBP
from thali.inference.streams.streaming_mean_field import StreamingMeanField
from thali.inference.variational.mean_field import MeanField
from thali.inference.variational.stochastic_mean_field import StochasticMeanField

__all__ = [
    "BPMeans",
    "CollapsedGibbs",
    "DistanceDependentGibbs",
    "Gibbs",
    "HierarchicalGibbs",
    "MeanField",
    "ParticleFilter",
    "RecursiveIBP",
    "SliceSampler",
    "StochasticMeanField",
    "StreamingMeanField",
]
