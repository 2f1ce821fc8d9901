"""The Indian buffet process with one, two or three parameters.

Griffiths & Ghahramani (2011) for `mass`; Ghahramani, Griffiths & Sollich (2007) for `concentration`; Teh & Gorur
(2009) for `discount`. The first row has Poisson(mass) features; row i takes a feature that m earlier rows have with
probability (m - discount) / (i - 1 + concentration), then Poisson(new_rate(i)) new ones. Rows are exchangeable.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import digamma, gammaln

from thali.core.binary import Array, column_counts
from thali.core.distributions import Gamma
from thali.core.registry import stored
from thali.core.spec import hyper, moderate, unit_interval
from thali.errors import InvalidParameterError
from thali.numerics.slice_sampling import slice_sample, slice_sample_positive
from thali.priors import recursion
from thali.priors.exchangeable import ByCounts

_BLOCK = 1 << 18  # cells of Z that are drawn at a time: few enough for the cache
_UNUSED = 500  # weights of features that no row has, expected above the lowest level
_EXP1 = 0.21938393439552029  # int_1^inf exp(-t)/t dt
_THINNED = 10**6  # candidates that are thinned at a time
_NO_DISCOUNT = 1e-7  # below it the limit discount -> 0 is exact to rounding and the general formula is not


@stored("IBP")
@dataclass(frozen=True, eq=False)
class IBP(ByCounts):
    """Infinitely many features, finitely many in use.

    Parameters
    ----------
    mass : float or distribution
        Expected number of features of a row. As for the others, a number is fixed, and a distribution is learned.
    concentration : float or distribution
        Larger values share features less.
    discount : float or distribution
        Positive values, below 1, give a power law of feature counts.
    """

    n_features: ClassVar[None] = None  # infinitely many

    mass: Any = hyper(Gamma(1.0, 1.0), moderate)
    concentration: Any = hyper(1.0, moderate)
    discount: Any = hyper(0.0, unit_interval)

    def simulate(self, rng: np.random.Generator, n_rows: int) -> Array:
        """The restaurant: columns in order of first appearance."""
        prior = self.draw(rng)
        c, d = prior.concentration, prior.discount
        rows = np.arange(n_rows)
        # eq: IBP.new-rate
        log_ratio = math.lgamma(1 + c) - math.lgamma(c + d) + gammaln(rows + c + d) - gammaln(rows + 1 + c)
        first = np.repeat(rows, rng.poisson(prior.mass * np.exp(log_ratio)))  # the row that each feature appears in
        # The later rows of a column are an urn, which is a coin with a drawn weight (de Finetti).
        # eq: IBP.urn-weight
        weights = rng.beta(1 - d, first + c + d)
        Z = np.empty((n_rows, len(first)), dtype=np.uint8)
        step = max(_BLOCK // max(len(first), 1), 1)
        for start in range(0, n_rows, step):
            block = rows[start : start + step]
            taken = rng.random((len(block), len(first))) < weights
            Z[start : start + step] = taken & (block[:, None] > first)
        Z[first, np.arange(len(first))] = 1
        return Z

    def expected_features(self, n_rows: int) -> float:
        """How many features n_rows rows have together, on average."""
        self.require_concrete("expected_features")
        return self.mass * self._features_per_mass(n_rows)

    def _log_prob_counts(self, counts: Array, n_rows: int) -> float:
        """The part of log_prob that depends on the hyperparameters."""
        c, d = self.concentration, self.discount
        per_feature = math.log(self.mass) + math.lgamma(1 + c) - math.lgamma(c + d) - math.lgamma(1 - d)
        # eq: DV09.class-prob
        columns = gammaln(counts - d) + gammaln(n_rows - counts + c + d) - math.lgamma(n_rows + c)
        return len(counts) * per_feature - self.mass * self._features_per_mass(n_rows) + float(columns.sum())

    def _features_per_mass(self, n_rows: float) -> float:
        """E[number of features of n_rows rows] / mass = sum of the new-feature rates, in closed form."""
        c, d = self.concentration, self.discount
        if d < _NO_DISCOUNT:
            # eq: IBP.expected-features
            return float(c * (digamma(c + n_rows) - digamma(c)))
        # eq: IBP.expected-features-discount
        exponent = math.lgamma(n_rows + c + d) - math.lgamma(n_rows + c) - math.lgamma(c + d) + math.lgamma(c)
        return c / d * math.expm1(exponent)

    def log_odds(self, n_rows: int) -> Array:
        self.require_concrete("log_odds")
        others = np.arange(n_rows, dtype=float)
        with np.errstate(divide="ignore"):
            # eq: IBP.predictive
            table = np.log(np.maximum(others - self.discount, 0.0)) - np.log(
                n_rows - 1 + self.concentration - others + self.discount
            )
        table[0] = -np.inf
        return table

    def new_rate(self, n_rows: int) -> float:
        self.require_concrete("new_rate")
        c, d = self.concentration, self.discount
        # eq: IBP.new-rate
        log_ratio = math.lgamma(1 + c) + math.lgamma(n_rows - 1 + c + d) - math.lgamma(n_rows + c) - math.lgamma(c + d)
        return self.mass * math.exp(log_ratio)

    def draw_weights(self, rng: np.random.Generator, counts: Array, n_rows: int) -> Array:
        """Weights of features in use given Z: Beta(m - d, N - m + c + d)."""
        self.require_concrete("draw_weights")
        c, d = self.concentration, self.discount
        # eq: T07.used-weights
        return rng.beta(np.asarray(counts) - d, n_rows - np.asarray(counts) + c + d)

    def draw_unused(self, rng: np.random.Generator, level: float, n_rows: int) -> Array:
        """Weights above `level` of features that no row has, in decreasing order.

        A Poisson process with intensity rate x^(-1 - d) (1 - x)^(n_rows + c + d - 1), by thinning the power of x.
        """
        self.require_concrete("draw_unused")
        if not 0 < level <= 1:
            raise InvalidParameterError(f"level must be in (0, 1]. Got {level!r}.")
        c, d = self.concentration, self.discount
        rate, fall = self._unused_rate, n_rows + c + d - 1
        depth = -math.log(level)
        total = depth if d < _NO_DISCOUNT else math.expm1(d * depth) / d  # int_level^1 x^(-1 - d) dx
        if rate * total > _THINNED and level * fall >= 1:  # the other factor falls faster: thin that one
            height = rate * level ** (-1 - d) * math.exp(-fall * level) / fall
            x = level + rng.standard_exponential(rng.poisson(height)) / fall
            x = x[x < 1]
            log_keep = (1 + d) * np.log(level / x) + fall * (np.log1p(-x) + x)
        else:
            n = rng.poisson(rate * total)
            # eq: own.unused-weights
            x = np.exp(-depth * rng.random(n)) if d < _NO_DISCOUNT else (1 + d * total * rng.random(n)) ** (-1 / d)
            log_keep = fall * np.log1p(-np.minimum(x, 1 - 1e-16))
        return np.sort(x[np.log1p(-rng.random(x.size)) < log_keep])[::-1]

    @property
    def _unused_rate(self) -> float:
        c, d = self.concentration, self.discount
        return float(self.mass * math.exp(math.lgamma(1 + c) - math.lgamma(1 - d) - math.lgamma(c + d)))

    def least_level(self, n_rows: int) -> float:
        """A level above which at most 500 unused features are expected.

        With a discount their number grows like level^-d, and has no mean below a random weight if d >= 1/2. With b =
        n_rows + c + d - 1, (1 - x)^b <= exp(-b x), so that the integral of the intensity above a level s <= 1/b is at
        most rate ((s^-d - b^d)/d + b^d int_1^inf exp(-t)/t dt), and above t/b, t >= 1, at most rate b^d exp(-t).
        """
        self.require_concrete("least_level")
        d, fall = self.discount, max(n_rows + self.concentration + self.discount - 1, 1.0)
        spare = _UNUSED / self._unused_rate / fall**d - _EXP1
        if spare <= 0:
            return min(math.log(self._unused_rate * fall**d / _UNUSED) / fall, 1.0)
        # eq: own.least-level
        return math.exp(-math.log(fall) - (spare if d < _NO_DISCOUNT else math.log1p(d * spare) / d))

    def marginals(self, n_rows: int, n_features: int | None = None) -> Array:
        """P(z_nk = 1), (n_rows, n_features), features numbered in order of appearance; by default all that matter."""
        _require_two_parameters(self, "marginals")
        return recursion.marginals(self.mass, self.concentration, n_rows, n_features)

    def start_running(self) -> recursion.Running:
        _require_two_parameters(self, "start_running")
        return recursion.start_running()

    def next_row(self, running: recursion.Running, births: str = "comonotone") -> Array:
        return recursion.next_row(running, self.mass, self.concentration, births)

    def absorb(self, running: recursion.Running, z_prob: Array, births: str = "comonotone") -> recursion.Running:
        return recursion.absorb(running, z_prob, self.mass, self.concentration, births)

    def filter_law(self, n_features: float, n_rows: float) -> tuple[float, float]:
        """(mass, concentration) of a filter that has found so many features in so many rows; a learned mass is at its
        mean given them."""
        others = [name for name in self.learned if name != "mass"]
        if others or self.discount != 0 or not isinstance(self.mass, Gamma | float | int | np.number):
            raise InvalidParameterError(
                "A filter takes an IBP whose mass is a number or a Gamma, with a fixed concentration and no discount. "
                f"Got {self!r}. Fix the others, or use CollapsedGibbs(), which learns them."
            )
        if not isinstance(self.mass, Gamma):
            return float(self.mass), float(self.concentration)
        # eq: IBP.mass-conditional
        rate = self.mass.rate + self._features_per_mass(n_rows)
        return (self.mass.shape + n_features) / rate, float(self.concentration)

    def resample(self, rng: np.random.Generator, current: Self, Z: Array) -> Self:
        if not self.learned:
            return current
        n_rows = len(Z)
        counts = column_counts(Z)
        counts = counts[counts > 0]
        for name, prior in self.learned.items():
            if name == "mass" and isinstance(prior, Gamma):
                # eq: IBP.mass-conditional
                rate = prior.rate + current._features_per_mass(n_rows)
                value = rng.gamma(prior.shape + len(counts)) / rate
            elif name == "discount":
                value = _slice_unit(current._target(name, prior, counts, n_rows), current.discount, rng)
            else:
                start = getattr(current, name)
                value = slice_sample_positive(current._target(name, prior, counts, n_rows), start, rng)
            current = current.updated(**{name: float(value)})
        return current

    # --- variational weights: those of a truncated prior with the same law in the limit --------------------

    @cached_property
    def _truncated(self) -> Any:
        from thali.priors.beta_process.prior import BetaProcess  # they build on this module
        from thali.priors.sticks.prior import StickBreakingIBP

        if "discount" in self.learned or self.discount != 0:
            raise InvalidParameterError(
                "Variational inference with IBP is known for the one- and two-parameter process. "
                f"Got discount={self.discount}; use 0, or a sampler such as CollapsedGibbs()."
            )
        if "concentration" not in self.learned and self.concentration == 1:
            return StickBreakingIBP(self.mass)
        return BetaProcess(self.mass, self.concentration)

    def init_weights(self, n_rows: int) -> Any:
        return self._truncated.init_weights(n_rows)

    def expected_log_odds(self, q: Any) -> Array:
        return self._truncated.expected_log_odds(q)

    def expected_weights(self, q: Any) -> Array:
        return self._truncated.expected_weights(q)

    def update_weights(self, q: Any, counts: Array, n_rows: int) -> Any:
        return self._truncated.update_weights(q, counts, n_rows)

    def weights_bound(self, q: Any, counts: Array, n_rows: int) -> float:
        return self._truncated.weights_bound(q, counts, n_rows)

    def tail_correction(self, q: Any, n_rows: int) -> float | None:
        """What to add to the truncated bound for one of the IBP, where that is known: for one parameter."""
        correction = getattr(self._truncated, "tail_correction", None)
        return None if correction is None else correction(q, n_rows)

    def reorder_weights(self, q: Any, order: Array) -> Any:
        return self._truncated.reorder_weights(q, order)

    def grow_weights(self, q: Any, n_features: int) -> Any:
        return self._truncated.grow_weights(q, n_features)


def _slice_unit(log_density: Any, x: float, rng: np.random.Generator) -> float:
    """Slice sampling on (0, 1), moved on the logit scale (Jacobian x (1 - x))."""

    def on_logit(t: float) -> float:
        value = 1 / (1 + math.exp(-t)) if t > -700 else 0.0
        if not 0 < value < 1:
            return -math.inf
        return log_density(value) + math.log(value) + math.log1p(-value)

    return 1 / (1 + math.exp(-slice_sample(on_logit, math.log(x) - math.log1p(-x), rng)))


def _require_two_parameters(prior: IBP, action: str) -> None:
    prior.require_concrete(action)
    if prior.discount != 0:
        raise InvalidParameterError(
            f"IBP.{action} is known for the one- and two-parameter process. Got discount={prior.discount}; use 0."
        )
