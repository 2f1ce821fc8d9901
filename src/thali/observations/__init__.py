"""Observation models. A new one is one new file here and one line below."""

from thali.observations.bernoulli import Bernoulli
from thali.observations.factor_analysis import FactorAnalysis
from thali.observations.ica import ICA
from thali.observations.likelihood import Likelihood as Likelihood  # the base of new ones
from thali.observations.linear_gaussian import LinearGaussian
from thali.observations.poisson_gamma import PoissonGamma
from thali.observations.sparse_factors import SparseFactorAnalysis

__all__ = ["ICA", "Bernoulli", "FactorAnalysis", "LinearGaussian", "PoissonGamma", "SparseFactorAnalysis"]
