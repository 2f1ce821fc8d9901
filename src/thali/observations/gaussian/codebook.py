"""What a draw of a Gaussian model keeps of its features: A_d ~ N(features_d, noise_var_d gram_inv)."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from thali.core.codebook import FEATURES, ONES, Axes, Codebook
from thali.core.registry import stored

Array = np.ndarray


@stored("GaussianCodebook")
@dataclass(frozen=True, eq=False)
class GaussianCodebook(Codebook):
    """Of a model whose codes are bits."""

    gram_inv: Array  # (n_features, n_features)

    axes: ClassVar[Axes] = MappingProxyType({**Codebook.axes, "gram_inv": (FEATURES, FEATURES)})


@stored("WeightedCodebook")
@dataclass(frozen=True, eq=False)
class WeightedCodebook(GaussianCodebook):
    """Of a model with weights."""

    scales: Array  # (n_features,) of the weights
    weights: Array | None = None  # those of the fitted rows that are on, row by row, where they are kept

    axes: ClassVar[Axes] = MappingProxyType({**GaussianCodebook.axes, "scales": (FEATURES,), "weights": (ONES,)})
