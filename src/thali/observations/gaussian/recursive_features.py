"""What a recursive filter of a Gaussian model knows after the rows so far."""

from typing import Any, NamedTuple

import numpy as np

from thali.core.registry import stored

Array = np.ndarray


@stored("RecursiveFeatures")
class RecursiveFeatures(NamedTuple):
    """In the units of the standardised data."""

    observation: Any  # concrete
    mean: Array  # (n_features, n_dims)
    rows: Array  # (n_features, 1 or n_dims) expected rows with the feature; of each dim once a cell was missing
    counts: Array  # (n_features,) expected rows with it, whether or not cells are missing
    exists: Array  # (n_features,) P(it has appeared)
    age: Array  # (n_features,) rows since its birth, discounted
    number: Array  # (n_features,) in order of birth
    together: Array  # (n_features, n_features) expected rows with both
    told: Array  # (n_features,) whether its birth was told: once it is likely
    is_settled: Array  # (n_features,) whether there were rows enough to count a drift
    settled: Array  # (n_features, n_dims) the mean from which it is counted
    n_rows: int
    weight: float  # of the rows, discounted
    error: float  # E[squared residual] of all rows, discounted
    n_cells: float  # that were observed, discounted
    bound: float  # sum of the bounds of log p(row | rows before)
    n_born: int

    @property
    def n_features(self) -> int:
        return len(self.counts)
