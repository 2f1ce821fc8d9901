"""What a prior says of the bits of each row given all other rows: the one thing that sweeps ask of it."""

from typing import Any, NamedTuple

import numpy as np

from thali.core.protocols.prior import AuxiliaryPrior, provides
from thali.errors import IncompatibleModelError

Array = np.ndarray


class RowOdds(NamedTuple):
    """Log-odds of having a feature, and rates of the features that a row alone has.

    Where rows are exchangeable both are the same for all rows: log_odds[m] if m other rows have the feature, -inf at
    m = 0 if there are infinitely many features. Where they are not, each row has its own: log_odds (n_rows, n_features)
    and new_rate (n_rows,).
    """

    log_odds: Array
    new_rate: Any  # a float, or an array with one for each row

    @property
    def by_count(self) -> bool:
        """Whether rows are exchangeable."""
        return self.log_odds.ndim == 1

    @property
    def infinite(self) -> bool:
        """Whether features that one row alone has are drawn by their number."""
        return bool(np.isneginf(self.log_odds[0])) if self.by_count else bool(np.any(self.new_rate > 0))

    def table(self) -> tuple[Array, float]:
        """(log-odds by count, rate), for sweeps that know exchangeable rows only."""
        if not self.by_count:
            raise IncompatibleModelError("This sweep needs a prior whose rows are exchangeable. Got odds for each row.")
        return self.log_odds, float(self.new_rate)

    def of(self, row: int, feature: int, n_others: int) -> float:
        """Log-odds of one bit, when so many other rows have the feature."""
        return float(self.log_odds[n_others] if self.by_count else self.log_odds[row, feature])

    def rate_of(self, row: int) -> float:
        """Rate of the features that this row alone has."""
        return float(self.new_rate if np.ndim(self.new_rate) == 0 else self.new_rate[row])


def row_odds(rng: np.random.Generator, prior: Any, Z: Array) -> RowOdds:
    """The odds of all rows under a concrete prior. One whose rows are not exchangeable draws its own row variables
    (links, groups) given Z, which are forgotten after the sweep."""
    if provides(prior, AuxiliaryPrior):
        return RowOdds(*prior.auxiliary_odds(prior.draw_auxiliary(rng, Z), Z))
    return exchangeable_odds(prior, len(Z))


def one_kind(n_rows: int, used: Array, unused: Array) -> tuple[Array, Array, Array]:
    """Weights of columns in use and of further ones as (chances (1, n_columns), kinds of rows, sizes for a slice)."""
    weights = np.concatenate([used, unused])
    return weights[None], np.zeros(n_rows, np.int64), weights


def exchangeable_odds(prior: Any, n_rows: int) -> RowOdds:
    """The odds of rows that are exchangeable, from the tables of a `Predictive` prior."""
    return RowOdds(prior.log_odds(n_rows), prior.new_rate(n_rows))
