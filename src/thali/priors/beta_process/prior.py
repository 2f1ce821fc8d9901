"""The beta process with Bernoulli rows, built in rounds: Paisley, Carin & Blei (2011).

Round r brings Poisson(mass) atoms; the weight of each is the r-th piece of its own broken stick, with breaks
Beta(1, concentration). All rounds together are a beta process, whose rows have the two-parameter IBP with the same
mass and concentration; the first `rounds` alone are a truncation of it.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import digamma, gammaincc

from thali.core.binary import Array, column_counts
from thali.core.distributions import Gamma
from thali.core.registry import stored
from thali.core.spec import Domain, between, hyper, moderate, one_of, setting
from thali.errors import InvalidParameterError
from thali.numerics.slice_sampling import slice_sample_positive
from thali.priors.beta_process.atoms import ascend, expected_log_rest, log_rest_gradient
from thali.priors.beta_process.round_moments import expected_columns, log_column_rates
from thali.priors.beta_process.round_penalties import PENALTIES, RoundPenalty
from thali.priors.beta_process.weights import (
    Weights,
    atom_terms,
    bound,
    prior_atoms,
    update_rounds,
    update_scalars,
)
from thali.priors.exchangeable import ByCounts
from thali.priors.gamma_factor import ScalarFactor
from thali.priors.ibp import IBP
from thali.priors.truncation_size import check_growth, enough

_MOST = 10_000
_MOST_CHOSEN = 500  # atoms and rounds that are chosen when none are given
_MOST_EXACT = 500  # atoms for which the law of the number in each round fits in memory
_LEFT_OUT = 0.01  # probability that a chosen truncation may leave out something

_up_to_most = between(1, _MOST)
_optional = Domain(f"None or {_up_to_most.words}", lambda v: v is None or _up_to_most.contains(v))


@stored("BetaProcess")
@dataclass(frozen=True, eq=False)
class BetaProcess(ByCounts):
    """Features whose weights are those of a beta process. With rounds=None the rows have IBP(mass, concentration).

    Parameters
    ----------
    mass : float or distribution
        Expected number of features of a row, all rounds together (gamma in the paper). A number is fixed, and a
        distribution is learned.
    concentration : float or distribution
        Larger values share features less (alpha in the paper).
    truncation : int or None
        The number of atoms, for variational inference. None takes rounds (unless given) so that with probability
        0.99 no row has an atom of a later one, and atoms so that with probability 0.99 those rounds have no more;
        at most 500 each, at the centre of the priors of mass and concentration. Every atom counts as drawn, used or
        not, so q(mass) and q(concentration) depend on the truncation; `expected_weights` hardly does.
    rounds : int or None
        Only the atoms of the first rounds; None for the whole process.
    round_penalty : "none", "markov", "factorial" or "exact"
        What stands for E log prod_r C_r!, where C_r is the number of atoms in round r. "none": nothing. Atoms
        without an order have K!/prod C_r! arrangements, which cancels the factorials; C_r is Poisson under this
        choice alone. The others keep the factorials: "markov" by the printed bound, "factorial" by one that is
        tighter up to three atoms in a round, "exact" without a bound.
    """

    n_features: ClassVar[None] = None  # infinitely many

    mass: Any = hyper(Gamma(1.0, 1.0), moderate)
    concentration: Any = hyper(1.0, moderate)
    truncation: int | None = setting(None, _optional)
    rounds: int | None = setting(None, _optional)
    round_penalty: str = setting("none", one_of(*PENALTIES))

    def simulate(self, rng: np.random.Generator, n_rows: int) -> Array:
        """Columns that some row has: by the restaurant of the IBP, or from the weights if there are `rounds`."""
        prior = self.draw(rng)
        if self.rounds is None:
            return IBP(mass=prior.mass, concentration=prior.concentration).simulate(rng, n_rows)
        weights, _ = prior.simulate_weights(rng)
        counts = rng.binomial(n_rows, weights)
        counts = counts[counts > 0]
        Z = np.zeros((n_rows, len(counts)), dtype=np.uint8)
        for k, count in enumerate(counts):
            Z[rng.choice(n_rows, size=count, replace=False, shuffle=False), k] = 1
        return Z

    def simulate_rounds(self, rng: np.random.Generator, rounds: int | None = None) -> list[Array]:
        """The weights of each round, piece by piece: sticks that are broken r times in round r."""
        prior = self.draw(rng)
        weights = []
        for r in range(1, self._n_rounds(rounds) + 1):
            breaks = rng.beta(1.0, prior.concentration, size=(rng.poisson(prior.mass), r))
            weights.append(breaks[:, -1] * np.prod(1 - breaks[:, :-1], axis=1))  # eq: PCB11.rounds
        return weights

    def simulate_weights(self, rng: np.random.Generator, rounds: int | None = None) -> tuple[Array, Array]:
        """(weights, their rounds): one index for all atoms, and one gamma variable for the first breaks of a stick."""
        prior = self.draw(rng)
        counts = rng.poisson(prior.mass, size=self._n_rounds(rounds))
        index = np.repeat(np.arange(1, len(counts) + 1), counts)
        # eq: PCB11.single-index
        sticks = rng.beta(1.0, prior.concentration, size=len(index))
        return sticks * np.exp(-rng.gamma(index - 1) / prior.concentration), index

    def _n_rounds(self, rounds: int | None) -> int:
        rounds = self.rounds if rounds is None else rounds
        if rounds is None or not _up_to_most.contains(rounds):
            raise InvalidParameterError(
                f"BetaProcess has infinitely many weights; those of how many rounds? Give rounds, {_up_to_most.words}, "
                f"for example 50. Got {rounds!r}."
            )
        return int(rounds)

    def expected_features(self, n_rows: int) -> float:
        """How many features n_rows rows have together, on average."""
        self.require_concrete("expected_features")
        return self.mass * expected_columns(log_column_rates(self.concentration, n_rows, self.rounds))

    def _log_prob_counts(self, counts: Array, n_rows: int) -> float:
        """The part of log_prob that depends on the hyperparameters."""
        log_rates = log_column_rates(self.concentration, n_rows, self.rounds)
        # columns of each kind are a Poisson number: eq: PCB11.class-prob
        columns = math.log(self.mass) + log_rates[counts - 1]
        return float(columns.sum()) - self.mass * expected_columns(log_rates)

    def log_odds(self, n_rows: int) -> Array:
        self.require_concrete("log_odds")
        log_rates = log_column_rates(self.concentration, n_rows, self.rounds)
        return np.concatenate([[-np.inf], np.diff(log_rates)])  # eq: PCB11.predictive

    def new_rate(self, n_rows: int) -> float:
        self.require_concrete("new_rate")
        return float(self.mass * np.exp(log_column_rates(self.concentration, n_rows, self.rounds)[0]))

    def resample(self, rng: np.random.Generator, current: Self, Z: Array) -> Self:
        n_rows = len(Z)
        counts = column_counts(Z)
        counts = counts[counts > 0]
        for name, prior in self.learned.items():
            if name == "mass" and isinstance(prior, Gamma):
                log_rates = log_column_rates(current.concentration, n_rows, self.rounds)
                rate = prior.rate + expected_columns(log_rates)
                value = rng.gamma(prior.shape + len(counts)) / rate
            else:
                value = slice_sample_positive(current._target(name, prior, counts, n_rows), getattr(current, name), rng)
            current = current.updated(**{name: float(value)})
        return current

    def init_weights(self, n_rows: int) -> Weights:
        """The prior of each atom when atoms are in the order of their rounds."""
        mass, concentration = ScalarFactor.of(self, "mass"), ScalarFactor.of(self, "concentration")
        n_rounds = self.rounds or min(enough(mass.mean, concentration.mean, n_rows, _LEFT_OUT), _MOST_CHOSEN)
        n_atoms = self.truncation or _enough_atoms(mass.mean * n_rounds)
        self._check_exact(n_atoms)
        return prior_atoms(n_atoms, n_rounds, mass, concentration)

    def reorder_weights(self, q: Weights, order: Array) -> Weights:
        return q.with_atoms(field[order] for field in q.atoms)

    def grow_weights(self, q: Weights, n_features: int) -> Weights:
        """The new atoms come after the others, in the rounds that they have as the last ones in order."""
        check_growth(self, len(q.a), n_features, self.truncation, _MOST)
        self._check_exact(n_features)
        last = prior_atoms(n_features, q.rounds.shape[1], q.mass, q.concentration)
        return q.with_atoms(
            np.concatenate([old, new[len(q.a) :]]) for old, new in zip(q.atoms, last.atoms, strict=True)
        )

    def _check_exact(self, n_atoms: int) -> None:
        if self.round_penalty == "exact" and n_atoms > _MOST_EXACT:
            raise InvalidParameterError(
                f'BetaProcess with round_penalty="exact" takes at most {_MOST_EXACT} atoms. Got truncation={n_atoms}; '
                'use fewer, or round_penalty="none".'
            )

    def expected_log_odds(self, q: Weights) -> Array:
        both = digamma(q.a + q.b)
        log_rest = expected_log_rest(q.a, q.b, q.u, q.v)
        # eq: PCB11.log-odds
        log_weight = digamma(q.a) - both - q.later * q.u / q.v
        return log_weight - q.rounds[:, 0] * (digamma(q.b) - both) - q.later * log_rest

    def expected_weights(self, q: Weights) -> Array:
        shrink = np.exp(-q.u * np.log1p(1 / q.v))
        return q.a / (q.a + q.b) * (q.rounds[:, 0] + q.later * shrink)  # eq: PCB11.mean-weight

    def update_weights(self, q: Weights, counts: Array, n_rows: int) -> Weights:
        """One pass: q(d) atom by atom, q(V) and q(T) by a damped natural-gradient step, then mass and concentration."""
        theta = np.stack([q.a, q.b, q.u, q.v])
        rest = log_rest_gradient(*theta)
        terms = atom_terms(q, counts, n_rows)
        q = q._replace(rounds=update_rounds(q, terms, rest[0], self._penalty(q)))
        a, b, u, v = ascend(theta, atom_terms(q, counts, n_rows), rest)
        return update_scalars(q._replace(a=a, b=b, u=u, v=v))

    def _penalty(self, q: Weights) -> RoundPenalty:
        return PENALTIES[self.round_penalty](q.rounds)

    def weights_bound(self, q: Weights, counts: Array, n_rows: int) -> float:
        return bound(q, counts, n_rows, self._penalty(q))


def _enough_atoms(rate: float) -> int:
    """The smallest K with P(Poisson(rate) <= K) >= 0.99."""
    counts = np.arange(1, _MOST_CHOSEN)
    return 1 + int((gammaincc(counts + 1, rate) < 1 - _LEFT_OUT).sum())
