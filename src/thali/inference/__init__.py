"""Inference. A new sampler is one new file here and one line below."""

from thali.inference.bp_means import BPMeans
from thali.inference.collapsed_gibbs import CollapsedGibbs
from thali.inference.gibbs import Gibbs
from thali.inference.mean_field import MeanField
from thali.inference.particle_filter import ParticleFilter
from thali.inference.slice_sampler import SliceSampler
from thali.inference.stochastic import StochasticMeanField

__all__ = ["BPMeans", "CollapsedGibbs", "Gibbs", "MeanField", "ParticleFilter", "SliceSampler", "StochasticMeanField"]
