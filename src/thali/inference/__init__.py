"""Inference. A new sampler is one new file here and one line below."""

from thali.inference.collapsed_gibbs import CollapsedGibbs

__all__ = ["CollapsedGibbs"]
