"""The posterior of a variational fit that did not keep the factors of its rows: of these only sums are known."""

from functools import cached_property
from typing import NoReturn

import numpy as np

from thali.posteriors.approximation import SummedApproximation, rows_not_kept
from thali.posteriors.variational import Variational

Array = np.ndarray


class VariationalSums(Variational):
    """q(features) q(weights), and how many rows have each feature. Rows that were fitted are predicted as new ones."""

    q: SummedApproximation

    def __init__(self, q: SummedApproximation) -> None:
        super().__init__(q)
        self.n_draws = 1

    @cached_property
    def draws(self) -> dict[str, Array]:
        """One entry: the expected numbers of features that are in use and of ones in Z, and the hyperparameters."""
        draws = super().draws
        n_features, n_on = round(float(self.q.in_use.sum())), round(float(self.q.counts.sum()))
        return draws | {"n_features": np.array([[n_features]]), "n_on": np.array([[n_on]])}

    def bits(self, chain: int, draw: int) -> NoReturn:
        raise rows_not_kept()

    def codes(self, chain: int, draw: int) -> NoReturn:
        raise rows_not_kept()

    def _used(self, chain: int, draw: int) -> Array:
        return np.arange(len(self.q.counts))
