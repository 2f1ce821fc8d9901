"""Inference. A new sampler is one new file here and one line below."""

from thali.inference.collapsed_gibbs import CollapsedGibbs
from thali.inference.gibbs import Gibbs

__all__ = ["CollapsedGibbs", "Gibbs"]
