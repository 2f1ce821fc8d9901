"""What a draw of sparse factor analysis keeps of its factors."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Self

import numpy as np

from thali.core.codebook import DIMS, FEATURES, ONES, PAIR, ROWS, Axes, Codebook
from thali.core.registry import stored

Array = np.ndarray


@stored("LoadingsCodebook")
@dataclass(frozen=True, eq=False)
class LoadingsCodebook(Codebook):
    """Where dims own the loadings: `features` are these, in the units of the data, and rows have scores."""

    noise: Array  # (n_dims,) variances
    scores: Array | None = None  # of the fitted rows

    axes: ClassVar[Axes] = MappingProxyType({**Codebook.axes, "noise": (DIMS,), "scores": (FEATURES, ROWS)})
    positive = ("noise",)

    def summaries(self) -> dict[str, float]:
        """The mean share of a dim's variance that is noise: it has no units."""
        return {"noise_share": float(np.mean(self.noise / (self.noise + np.sum(self.features**2, axis=0))))}

    def columns(self, columns: Array) -> Self:
        """What other factors add to a dim counts as its noise."""
        others = np.delete(self.features, columns, axis=0)
        return super().columns(columns).replace(noise=self.noise + np.sum(others**2, axis=0))


@stored("FactorsCodebook")
@dataclass(frozen=True, eq=False)
class FactorsCodebook(Codebook):
    """Where rows own the loadings: `features` are the factors, in the units of the data."""

    precisions: Array  # (n_features,) of loadings that are not zero
    levels: Array  # of precisions and of noise, as new factors and new rows have them
    noise: Array | None = None  # variances of the fitted rows, in the units of the dims
    weights: Array | None = None  # loadings of the fitted rows that are not zero, row by row

    axes: ClassVar[Axes] = MappingProxyType(
        {**Codebook.axes, "precisions": (FEATURES,), "levels": (PAIR,), "noise": (ROWS,), "weights": (ONES,)}
    )
    positive = ("precisions", "levels", "noise")

    def summaries(self) -> dict[str, float]:
        assert self.noise is not None
        return {"noise_var": float(self.noise.mean())}
