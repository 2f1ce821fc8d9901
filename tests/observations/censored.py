"""A model of tests: linear-Gaussian data of which some cells are known by an interval only."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from thali import LinearGaussian, register
from thali.core.protocols.engines.chains import (
    AuxiliaryRows,
    ChainRows,
    CollapsedRows,
    ColumnMoves,
    ConditionalRows,
    ImportanceRows,
    MarginalRows,
    ParallelRows,
    StartRows,
)
from thali.core.protocols.engines.predictions import Predictions
from thali.core.spec import real, setting
from thali.observations.gaussian.intervals import IntervalMarginal
from thali.observations.gaussian.model import Cells

SERVED = (
    ChainRows, StartRows, Predictions, CollapsedRows, ColumnMoves, ConditionalRows, ImportanceRows, ParallelRows,
)  # fmt: skip


@register("tests.Censored")
@dataclass(frozen=True, eq=False)
class Censored(LinearGaussian):
    """Values above `limit` are known to lie above it, those below -limit in (-limit - 1, -limit); X has them at will."""

    limit: float = setting(1.0, real)
    engines = MappingProxyType(
        {kind: LinearGaussian.engines[kind] for kind in SERVED}
        | {MarginalRows: IntervalMarginal, AuxiliaryRows: IntervalMarginal}
    )

    def cells(self, X: Any) -> Cells:
        high, low = X > self.limit, X < -self.limit  # NaN is neither
        lower = np.where(high, self.limit, np.where(low & (X > -self.limit - 1), -self.limit - 1, -np.inf))
        upper = np.where(low, np.where(X > -self.limit - 1, -self.limit, -self.limit - 1), np.inf)
        points = np.where(high, self.limit + 0.5, np.where(low, (np.maximum(lower, upper - 1) + upper) / 2, X))
        return Cells(points, lower, upper)
