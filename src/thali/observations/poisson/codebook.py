"""What a draw of a Poisson-gamma model keeps of its features, which are gamma variates."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from scipy.special import digamma

from thali.core.codebook import DIMS, FEATURES, ONES, Axes, Codebook
from thali.core.registry import stored

Array = np.ndarray


@stored("CountCodebook")
@dataclass(frozen=True, eq=False)
class CountCodebook(Codebook):
    """Moments of the features."""

    log_features: Array  # (n_features, n_dims) mean of the logarithm
    features_spread: Array  # (n_features, n_dims) variance
    weights: Array | None = None  # those of the fitted rows that are on, row by row, where they are kept

    axes: ClassVar[Axes] = MappingProxyType(
        {
            **Codebook.axes,
            "log_features": (FEATURES, DIMS),
            "features_spread": (FEATURES, DIMS),
            "weights": (ONES,),
        }
    )


def of_gamma(shape: Array, rate: Array, counts: Array, weights: Array | None = None) -> CountCodebook:
    """The codebook of features that are Gamma(shape, rate)."""
    rate = np.broadcast_to(rate, shape.shape)
    return CountCodebook(shape / rate, counts, digamma(shape) - np.log(rate), shape / rate**2, weights)
