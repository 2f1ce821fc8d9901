"""What a draw of a likelihood without engines of its own keeps of its features: their values."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from thali.core.codebook import ONES, Axes, Codebook
from thali.core.registry import stored


@stored("ExplicitCodebook")
@dataclass(frozen=True, eq=False)
class ExplicitCodebook(Codebook):
    """Features as they were drawn."""

    weights: np.ndarray | None = None  # codes of the fitted rows that are not zero, row by row; None if codes are bits

    axes: ClassVar[Axes] = MappingProxyType({**Codebook.axes, "weights": (ONES,)})
