"""X = offset + (Z * W) A + noise with normal weights: factor analysis that decides on the number of factors."""

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from thali.core.binary import Array
from thali.core.protocols.engines.recursive import RecursiveRows
from thali.core.registry import stored
from thali.observations.gaussian.recursive_weighted import RecursiveWeighted
from thali.observations.gaussian.weight_law import WeightLaw
from thali.observations.gaussian.weighted import WeightedGaussian


@stored("FactorAnalysis")
@dataclass(frozen=True, eq=False)
class FactorAnalysis(WeightedGaussian):
    """Features with normal weights, w_nk ~ N(0, weight_var), and Gaussian noise: the default for real data.

    Of each feature, the value that is largest in size, in units of its dim's noise, is shown as positive.

    Parameters
    ----------
    noise_var : float, array of shape (n_dims,), distribution or PerDim
        Variance of the noise, as in `LinearGaussian`. By default each dim has its own, which is learned, and dims
        may be in any units.
    feature_var : float, distribution or None
        Variance of the features, as in `LinearGaussian`.
    offset : None, array of shape (n_dims,) or NormalOffset
        What a row without features is on average: zero, fixed, or learned.
    noise_floor : float or "uniqueness"
        A share of each dim's variance (without odd cells) below which learned noise does not go. "uniqueness": half
        of the noise that an ordinary factor analysis leaves, less in few rows; its number of factors is chosen by
        hidden cells. On real data the number of features is a function of the floor.
    scale : float, array of shape (n_dims,) or None
        The variance of each dim, to which relative priors and the floor refer; None takes it from the data.
    origin : array of shape (n_dims,) or None
        Numbers from which data and offset are counted, as in `LinearGaussian`.
    weight_var : float
        Fixed, since only its product with feature_var can be known.
    ard : float or None
        None, or how alike the variances of the features are: each has its own, feature_var times a draw of
        InverseGamma(ard, ard), so that features of different strength pay the same.
    """

    words: ClassVar[str] = "factor analysis"
    engines = MappingProxyType({**WeightedGaussian.engines, RecursiveRows: RecursiveWeighted})

    @property
    def law(self) -> WeightLaw:
        return WeightLaw(0.0, 1.0 / self.weight_var, 0.5 * math.log(2 * math.pi * self.weight_var))

    def draw_weights(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        return math.sqrt(self.weight_var) * rng.standard_normal(size)
