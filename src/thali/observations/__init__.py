"""Observation models. A new one is one new file here and one line below."""

from thali.observations.linear_gaussian import LinearGaussian

__all__ = ["LinearGaussian"]
