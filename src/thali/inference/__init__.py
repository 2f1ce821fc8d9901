"""Inference. A new sampler is one new file here and one line below."""

from thali.inference.collapsed_gibbs import CollapsedGibbs
from thali.inference.gibbs import Gibbs
from thali.inference.slice_sampler import SliceSampler

__all__ = ["CollapsedGibbs", "Gibbs", "SliceSampler"]
