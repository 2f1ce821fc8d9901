"""The finite beta-Bernoulli prior: n_features columns with weights Beta(mass / n_features, 1) integrated out.

Its limit for many features is the one-parameter IBP. Columns are labelled and may be empty.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import gammaln

from thali.binary import Array, check_binary, column_counts
from thali.distributions import Gamma
from thali.errors import InvalidDataError
from thali.slice_sampling import slice_sample_positive
from thali.spec import ScalarHypers, at_least, hyper, moderate, setting


@dataclass(frozen=True, eq=False)
class BetaBernoulli(ScalarHypers):
    """At most `n_features` features. mass: a number (fixed) or a distribution (learned)."""

    mass: Any = hyper(Gamma(1.0, 1.0), moderate)
    n_features: int = setting(10, at_least(1))

    def simulate(self, rng: np.random.Generator, n_rows: int) -> Array:
        prior = self.draw(rng)
        weights = rng.beta(prior.mass / self.n_features, 1.0, size=self.n_features)
        return (rng.random((n_rows, self.n_features)) < weights).astype(np.uint8)

    def log_prob(self, Z: Array) -> float:
        """Log probability of Z with its columns in this order, empty columns included."""
        self.require_concrete("log_prob")
        Z = check_binary(Z)
        if Z.shape[1] != self.n_features:
            raise InvalidDataError(
                f"Z must have n_features = {self.n_features} columns, empty ones included. Got {Z.shape[1]}."
            )
        return self._log_prob_counts(column_counts(Z), len(Z))

    def _log_prob_counts(self, counts: Array, n_rows: int) -> float:
        a = self.mass / self.n_features
        # eq: BB.prob
        columns = math.log(a) + gammaln(counts + a) + gammaln(n_rows - counts + 1) - math.lgamma(n_rows + 1 + a)
        return float(columns.sum())

    def log_odds(self, n_rows: int) -> Array:
        self.require_concrete("log_odds")
        others = np.arange(n_rows, dtype=float)
        # eq: BB.predictive
        return np.log(others + self.mass / self.n_features) - np.log(n_rows - others)

    def new_rate(self, n_rows: int) -> float:
        return 0.0

    def resample(self, rng: np.random.Generator, current: Self, Z: Array) -> Self:
        prior = self.learned.get("mass")
        if prior is None:
            return current
        counts = column_counts(Z)

        def log_density(mass: float) -> float:
            if not 0 < mass < math.inf:
                return -math.inf
            return prior.log_prob(mass) + current.updated(mass=mass)._log_prob_counts(counts, len(Z))

        return current.updated(mass=slice_sample_positive(log_density, current.mass, rng))
