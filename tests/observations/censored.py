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
    SliceRows,
    StartRows,
)
from thali.core.protocols.engines.predictions import Predictions
from thali.core.spec import real, setting
from thali.observations.gaussian.intervals import IntervalMarginal
from thali.observations.gaussian.model import Cells

SERVED = (
    ChainRows, StartRows, Predictions, CollapsedRows, ColumnMoves, ConditionalRows, ImportanceRows, ParallelRows,
    SliceRows,
)  # fmt: skip


@register("tests.Censored")
@dataclass(frozen=True, eq=False)
class Censored(LinearGaussian):
    """Values above `limit` are known to lie above it, those below -limit in one of two intervals; X may have any
    value there."""

    limit: float = setting(1.0, real)
    engines = MappingProxyType(
        {kind: LinearGaussian.engines[kind] for kind in SERVED}
        | {MarginalRows: IntervalMarginal, AuxiliaryRows: IntervalMarginal}
    )

    def cells(self, X: Any) -> Cells:
        edges = np.array([-np.inf, -self.limit - 1, -self.limit, self.limit, np.inf])
        part = np.searchsorted(edges, np.where(np.isnan(X), 0.0, X), side="left") - 1
        is_value = np.isnan(X) | (part == 2)
        lower, upper = np.where(is_value, -np.inf, edges[part]), np.where(is_value, np.inf, edges[part + 1])
        points = np.where(part == 3, self.limit + 0.5, np.minimum(upper, self.limit) - 0.5)
        points = np.where(is_value, X, points)
        return Cells(points, lower, upper)
