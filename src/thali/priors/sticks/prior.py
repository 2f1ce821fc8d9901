"""The IBP by breaking a stick: weights pi_k = v_1 v_2 ... v_k with v ~ Beta(mass, 1), in decreasing order.

Teh, Gorur & Ghahramani (2007). All features together are the one-parameter IBP; the first `truncation` of them are the
model of Doshi-Velez et al. (2009), whose bounds for variational inference are in `weights`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln

from thali.core.binary import Array, check_binary, column_counts
from thali.core.distributions import Gamma
from thali.core.registry import stored
from thali.core.spec import Domain, ScalarHypers, at_least, hyper, moderate, one_of, setting
from thali.errors import InvalidDataError, InvalidParameterError
from thali.priors.gamma_factor import ScalarFactor
from thali.priors.ibp import IBP
from thali.priors.sticks import weights as sticks
from thali.priors.sticks.taylor import taylor_interval
from thali.priors.sticks.weights import StickWeights
from thali.priors.truncation_size import check_growth, enough

_MOST = 100_000  # sticks: more would not fit a machine
_LEFT_OUT = 0.01  # probability that a feature beyond the default truncation is in use

_truncation = Domain(
    f"None or an integer from 1 to {_MOST}", lambda v: v is None or (at_least(1).contains(v) and v <= _MOST)
)


@stored("StickBreakingIBP")
@dataclass(frozen=True, eq=False)
class StickBreakingIBP(ScalarHypers):
    """Features in decreasing order of their weights.

    Parameters
    ----------
    mass : float or distribution
        Expected number of features of a row. A number is fixed, a distribution is learned.
    truncation : int or None
        How many features there are at most. None means no limit for `simulate`, `log_prob` and samplers, and enough
        for the number of rows in variational inference.
    log_complement : "multinomial" or "exact"
        How E log(1 - weight) is evaluated there: by a bound in O(K), or by its series, a tighter bound whose sticks
        are found by numerical optimisation.
    """

    mass: Any = hyper(Gamma(1.0, 1.0), moderate)
    truncation: int | None = setting(None, _truncation)
    log_complement: str = setting("multinomial", one_of("multinomial", "exact"))

    @property
    def n_features(self) -> int | None:
        """The number of columns of Z, which then have an order; None without truncation."""
        return self.truncation

    def draw_sticks(self, rng: np.random.Generator) -> Array:
        """The weights of the first `truncation` features."""
        if self.truncation is None:
            raise InvalidParameterError(
                "StickBreakingIBP.draw_sticks needs a number of sticks. Got truncation=None; use replace(truncation=K)."
            )
        return np.cumprod(rng.beta(self.draw(rng).mass, 1.0, size=self.truncation))

    def simulate(self, rng: np.random.Generator, n_rows: int) -> Array:
        """A draw of Z: all `truncation` columns in order, or without truncation those in use, in no order."""
        if self.truncation is None:
            return IBP(self.mass).simulate(rng, n_rows)
        weights = self.draw_sticks(rng)
        return (rng.random((n_rows, self.truncation)) < weights).astype(np.uint8)

    def expected_features(self, n_rows: int) -> float:
        """How many of the features some of n_rows rows has, on average."""
        self.require_concrete("expected_features")
        if self.truncation is None:
            return IBP(self.mass).expected_features(n_rows)
        log_mass = math.log(self.mass)
        log_c = _before_stick(np.zeros(1), n_rows, self.mass) + log_mass
        total = 0.0
        for _ in range(self.truncation):
            total -= math.expm1(float(log_c[0]))  # E (1 - pi_k)^n_rows is its first coefficient
            log_c = _before_stick(log_c, 0, self.mass) + log_mass
        return total

    def log_prob(self, Z: Array) -> float:
        """Of Z with its columns in this order; without truncation of its class. Weights are integrated out.

        Exactly and with positive terms only: backwards over sticks, the expectation of what is left is a polynomial
        sum_i c_i (1 - p)^i in the weight p of the stick before, and a stick maps its coefficients in O(their number):
        (1 - p v)^j = sum_l C(j, l) (1 - v)^(j - l) v^l (1 - p)^l. Cost O(n_rows truncation^2).
        """
        self.require_concrete("log_prob")
        Z = check_binary(Z)
        if self.truncation is None:
            return IBP(self.mass).log_prob(Z)
        if Z.shape[1] != self.truncation:
            raise InvalidDataError(
                f"Z must have truncation = {self.truncation} columns, empty ones included. Got {Z.shape[1]}."
            )
        on = column_counts(Z)
        log_c = np.zeros(1)
        exponent = float(self.mass)
        for m in on[::-1]:
            exponent += float(m)
            log_c = _before_stick(log_c, len(Z) - int(m), exponent) + math.log(self.mass)
        return float(log_c[0])

    def draw_weights(self, rng: np.random.Generator, counts: Array, n_rows: int) -> Array:
        self._require_all_sticks("draw_weights")
        return IBP(self.mass).draw_weights(rng, counts, n_rows)

    def draw_unused(self, rng: np.random.Generator, level: float, n_rows: int) -> Array:
        self._require_all_sticks("draw_unused")
        return IBP(self.mass).draw_unused(rng, level, n_rows)

    def least_level(self, n_rows: int) -> float:
        self._require_all_sticks("least_level")
        return IBP(self.mass).least_level(n_rows)

    def _require_all_sticks(self, action: str) -> None:
        if self.truncation is not None:
            raise InvalidParameterError(
                f"StickBreakingIBP.{action} is for all sticks. Got truncation={self.truncation}; use truncation=None."
            )

    # --- variational weights ----------------------------------------------------------------------

    def init_weights(self, n_rows: int) -> StickWeights:
        mass = ScalarFactor.of(self, "mass")
        K = self.truncation or min(enough(mass.mean, mass.mean, n_rows, _LEFT_OUT), _MOST)
        return StickWeights(sticks.prior_sticks(mass, K), mass)

    def reorder_weights(self, q: StickWeights, order: Array) -> StickWeights:
        """Sticks are not exchangeable: the bound changes, and is best with the counts in decreasing order."""
        return q._replace(tau=q.tau[:, order])

    def grow_weights(self, q: StickWeights, n_features: int) -> StickWeights:
        check_growth(self, q.tau.shape[1], n_features, self.truncation, _MOST)
        return q._replace(tau=np.hstack([q.tau, sticks.prior_sticks(q.mass, n_features - q.tau.shape[1])]))

    def expected_log_odds(self, q: StickWeights) -> Array:
        # eq: DV09.infinite-log-odds
        return sticks.expected_log_weights(q.tau) - self._complement(q.tau)

    def expected_weights(self, q: StickWeights) -> Array:
        return np.cumprod(q.tau[0] / q.tau.sum(axis=0))

    def update_weights(self, q: StickWeights, counts: Array, n_rows: int) -> StickWeights:
        update = sticks.multinomial_ascent if self.log_complement == "multinomial" else sticks.exact_update
        tau = update(q.tau, q.mass.mean, counts, n_rows)
        # eq: own.stick-mass
        return StickWeights(tau, q.mass.updated(tau.shape[1], -float(sticks.expected_log_sticks(tau).sum())))

    def weights_bound(self, q: StickWeights, counts: Array, n_rows: int) -> float:
        """Of the truncated model. Below its evidence, not below that of the IBP: see `tail_correction`."""
        return sticks.weights_bound(q.tau, q.mass, counts, n_rows, self._complement(q.tau)) + q.mass.bound()

    def tail_correction(self, q: StickWeights, n_rows: int) -> float:
        """What to add to the truncated bound for a bound of the IBP: that no feature beyond the last stick is in use.

        - E[mass] E[g_N(pi_K)], g_N(p) = sum_{j <= N} (1 - (1 - p)^j)/j; the sticks after the last one are integrated
        out exactly.
        """
        # eq: own.tail-correction
        return -q.mass.mean * sticks.expected_tail(q.tau, n_rows)

    def complement_interval(self, q: StickWeights, terms: int = 50) -> tuple[Array, Array]:
        """(lower, upper) of E log(1 - weight) of each feature, from `terms` terms of its Taylor series."""
        return taylor_interval(q.tau, terms)

    def _complement(self, tau: Array) -> Array:
        if self.log_complement == "multinomial":
            return sticks.multinomial_complement(tau)
        return sticks.exact_complement(tau)


def _before_stick(log_c: Array, n_off: int, exponent: float) -> Array:
    """log coefficients of E[v^... (1 - p v)^n_off sum_i c_i (1 - p v)^i] in powers of 1 - p, without the factor mass.

    c'_l = Gamma(exponent + l)/l! sum_{j >= l} c_(j - n_off) j!/Gamma(exponent + j + 1).
    """
    j = np.arange(n_off, n_off + len(log_c))
    terms = log_c + gammaln(j + 1) - gammaln(exponent + j + 1)
    tails = np.logaddexp.accumulate(terms[::-1])[::-1]
    tails = np.concatenate([np.full(n_off, tails[0]), tails])
    low = np.arange(n_off + len(log_c))
    # eq: own.truncated-sticks
    return gammaln(exponent + low) - gammaln(low + 1) + tails
