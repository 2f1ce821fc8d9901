"""The finite beta-Bernoulli prior: n_features columns with weights Beta(mass / n_features, 1).

Its limit for many features is the one-parameter IBP. Columns are labelled and may be empty. Samplers integrate the
weights out; variational inference has q(weight_k) = Beta(tau_k1, tau_k2) (Doshi-Velez et al. 2009, section 4).
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import digamma, gammaln

from thali.core.binary import Array, check_binary, column_counts, history_counts
from thali.core.distributions import Gamma
from thali.core.registry import stored
from thali.core.spec import ScalarHypers, at_least, hyper, moderate, setting
from thali.errors import InvalidDataError, InvalidParameterError
from thali.numerics.entropies import beta_entropy
from thali.numerics.slice_sampling import slice_sample_positive
from thali.priors.gamma_factor import ScalarFactor


@stored("BetaWeights")
class BetaWeights(NamedTuple):
    """q(weight_k) = Beta(tau_k1, tau_k2), tau (2, n_features), and q(mass)."""

    tau: Array
    mass: ScalarFactor


@stored("BetaBernoulli")
@dataclass(frozen=True, eq=False)
class BetaBernoulli(ScalarHypers):
    """A fixed number of features, each of which may be in no row.

    Parameters
    ----------
    mass : float or distribution
        The weight of each feature is Beta(mass / n_features, 1). A number is fixed, a distribution is learned.
    n_features : int
        How many features there are at most.
    """

    mass: Any = hyper(Gamma(1.0, 1.0), moderate)
    n_features: int = setting(10, at_least(1))

    def simulate(self, rng: np.random.Generator, n_rows: int) -> Array:
        prior = self.draw(rng)
        weights = rng.beta(prior.mass / self.n_features, 1.0, size=self.n_features)
        return (rng.random((n_rows, self.n_features)) < weights).astype(np.uint8)

    def expected_features(self, n_rows: int) -> float:
        """How many of the features some of n_rows rows has, on average."""
        self.require_concrete("expected_features")
        a = self.mass / self.n_features
        # eq: BB.expected-features
        log_none = math.lgamma(1 + a) + math.lgamma(n_rows + 1) - math.lgamma(n_rows + 1 + a)
        return -self.n_features * math.expm1(log_none)

    def log_prob(self, Z: Array) -> float:
        """Log probability of Z with its columns in this order, empty columns included."""
        self.require_concrete("log_prob")
        Z = check_binary(Z)
        if Z.shape[1] != self.n_features:
            raise InvalidDataError(
                f"Z must have n_features = {self.n_features} columns, empty ones included. Got {Z.shape[1]}."
            )
        return self._log_prob_counts(column_counts(Z), len(Z))

    def log_prob_class(self, Z: Array) -> float:
        """Log probability of all matrices that differ from Z only by the order of their columns."""
        Z = check_binary(Z)
        repeats = history_counts(Z)
        repeats.append(self.n_features - sum(repeats))  # of empty columns
        # eq: BB.class-size
        return self.log_prob(Z) + math.lgamma(self.n_features + 1) - sum(math.lgamma(k + 1) for k in repeats)

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

    def draw_weights(self, rng: np.random.Generator, counts: Array, n_rows: int) -> Array:
        """Weights given Z: Beta(mass / n_features + m, 1 + N - m)."""
        self.require_concrete("draw_weights")
        # eq: BB.weights
        return rng.beta(self.mass / self.n_features + np.asarray(counts), 1.0 + n_rows - np.asarray(counts))

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

    # --- variational weights ----------------------------------------------------------------------

    def init_weights(self, n_rows: int) -> BetaWeights:
        mass = ScalarFactor.of(self, "mass")
        a = np.full(self.n_features, mass.mean / self.n_features)
        return BetaWeights(np.vstack([a, np.ones(self.n_features)]), mass)

    def reorder_weights(self, q: BetaWeights, order: Array) -> BetaWeights:
        return q._replace(tau=q.tau[:, order])

    def grow_weights(self, q: BetaWeights, n_features: int) -> BetaWeights:
        if n_features != self.n_features:
            raise InvalidParameterError(
                f"BetaBernoulli has {self.n_features} features, which its law depends on. Got {n_features}; "
                f"use BetaBernoulli(n_features={n_features}), or IBP() if their number is not known."
            )
        return q

    def expected_log_odds(self, q: BetaWeights) -> Array:
        # eq: DV09.finite-log-odds
        return digamma(q.tau[0]) - digamma(q.tau[1])

    def expected_weights(self, q: BetaWeights) -> Array:
        return q.tau[0] / q.tau.sum(axis=0)

    def update_weights(self, q: BetaWeights, counts: Array, n_rows: int) -> BetaWeights:
        # eq: DV09.finite-update
        tau = np.vstack([q.mass.mean / self.n_features + counts, 1.0 + n_rows - counts])
        log_weights = digamma(tau[0]) - digamma(tau.sum(axis=0))
        # eq: own.finite-mass
        return BetaWeights(tau, q.mass.updated(self.n_features, -float(log_weights.mean())))

    def weights_bound(self, q: BetaWeights, counts: Array, n_rows: int) -> float:
        total = digamma(q.tau.sum(axis=0))
        on, off = digamma(q.tau[0]) - total, digamma(q.tau[1]) - total  # E log(weight), E log(1 - weight)
        prior = q.mass.mean_log - math.log(self.n_features) + (q.mass.mean / self.n_features - 1) * on
        # eq: DV09.finite-bound
        return float(np.sum(prior + beta_entropy(*q.tau)) + counts @ on + (n_rows - counts) @ off) + q.mass.bound()
