"""The posterior of a variational fit that did not keep the factors of its rows: of these only sums are known."""

from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np

from thali.core.codebook import Codebook
from thali.core.model import Model
from thali.core.registry import stored
from thali.errors import InvalidParameterError
from thali.posteriors.variational import Factors, Variational

Array = np.ndarray


@stored("RowSums")
class RowSums(NamedTuple):
    """What is known of the rows."""

    n_rows: int
    counts: Array  # (n_features,) expected numbers of rows


class VariationalSums(Variational):
    """q(features) q(weights), and how many rows have each feature. Rows that were fitted are predicted as new ones."""

    def __init__(self, model: Model, factors: Factors, sums: RowSums) -> None:
        """`factors.local` has no rows."""
        super().__init__(model, factors)
        self.n_draws = 1
        self.sums = sums
        self.counts = sums.counts if self.has_bits else np.full(len(sums.counts), float(sums.n_rows))

    @property
    def n_rows(self) -> int:
        return self.sums.n_rows

    @cached_property
    def in_use(self) -> Array:
        """P(some row has the feature) of each feature, from below: prod (1 - p) <= exp(-sum p)."""
        return -np.expm1(-self.counts)  # eq: own.in-use-counts

    @cached_property
    def shared_codebook(self) -> Codebook:
        return self.engine.codebook(self.factors.q).replace(counts=self.counts)

    @cached_property
    def draws(self) -> dict[str, Array]:
        """One entry: the expected numbers of features that are in use and of ones in Z, and the hyperparameters."""
        draws = super().draws
        n_features, n_on = round(float(self.in_use.sum())), round(float(self.counts.sum()))
        return draws | {"n_features": np.array([[n_features]]), "n_on": np.array([[n_on]])}

    def bits(self, chain: int, draw: int) -> NoReturn:
        raise _not_kept()

    def codes(self, chain: int, draw: int) -> NoReturn:
        raise _not_kept()

    def _used(self, chain: int, draw: int) -> Array:
        return np.arange(len(self.counts))

    def rows(self, rows: Array) -> Any:
        raise _not_kept()


def _not_kept() -> InvalidParameterError:
    return InvalidParameterError(
        "Which row has which feature was not kept, since the rows were read in blocks. "
        "Use presence(X) or transform(X) for the rows that are wanted."
    )
