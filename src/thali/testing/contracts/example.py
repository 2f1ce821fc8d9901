"""A small example of an observation model, its data drawn by itself: what the contracts of its engines are tried on."""

from typing import Any, NamedTuple

import numpy as np

from thali.core.observation import Observation
from thali.core.protocols.engines.chains import ChainRows
from thali.core.protocols.engines.predictions import Predictions

Array = np.ndarray

BITS = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], dtype=np.uint8)


class Example(NamedTuple):
    """Four rows with two features, and data that suit them."""

    observation: Observation  # concrete
    rng: np.random.Generator
    n_draws: int
    codes: Array  # of the bits
    X: Array

    @property
    def n_dims(self) -> int:
        return self.X.shape[1]

    @property
    def holes(self) -> Array:
        """X with two cells missing."""
        holes = self.X.copy()
        holes[0, 0] = holes[2, -1] = np.nan
        return holes

    @property
    def origin(self) -> Any:
        """What the engines count from."""
        origin = self.observation.engine(Predictions).origin if self.observation.has(Predictions) else None
        return 0.0 if origin is None else origin

    def placed(self, X: Array | None = None) -> tuple[Any, Any]:
        """(data, row variables) of a chain on X, by default complete."""
        rows = self.observation.engine(ChainRows)
        data = rows.prepare(self.observation.check_data(self.X if X is None else X))
        return data, rows.place(data, self.codes, self.X - self.origin)

    def codebook(self) -> Any:
        return self.observation.engine(ChainRows).codebook(*self.placed())
