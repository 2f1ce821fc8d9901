"""The variational distribution of the weights of a beta process: its bound and its coordinate ascent.

Atom k comes in round d_k; its weight is V_k in round 1 and V_k exp(-T_k) later. q(d_k) is a table, q(V_k) = Beta(a, b),
q(T_k | d_k > 1) = Gamma(u, v); mass and concentration are numbers or have Gamma factors. `n_on`, `n_off` are expected
numbers of rows with and without the feature. Paisley, Carin & Blei (2011), with the corrections of docs/equations.md.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammainc, gammaln, xlogy

from thali.core.registry import stored
from thali.numerics.entropies import gamma_entropy
from thali.priors.beta_process.atoms import AtomTerms, atom_bound, expected_log_rest
from thali.priors.beta_process.round_penalties import RoundPenalty
from thali.priors.gamma_factor import ScalarFactor

Array = np.ndarray


@stored("AtomWeights")
class Weights(NamedTuple):
    """q(d) as a table (n_atoms, n_rounds), q(V) = Beta(a, b), q(T | d > 1) = Gamma(u, v), q(mass), q(concentration)."""

    rounds: Array
    a: Array
    b: Array
    u: Array
    v: Array
    mass: ScalarFactor
    concentration: ScalarFactor

    @property
    def later(self) -> Array:
        """q(d > 1)."""
        return self.rounds[:, 1:].sum(axis=1)

    @property
    def atoms(self) -> tuple[Array, Array, Array, Array, Array]:
        """The fields with an entry per atom, which are the first ones."""
        return self.rounds, self.a, self.b, self.u, self.v

    def with_atoms(self, atoms: Iterable[Array]) -> "Weights":
        rounds, a, b, u, v = atoms
        return self._replace(rounds=rounds, a=a, b=b, u=u, v=v)


def prior_atoms(n_atoms: int, n_rounds: int, mass: ScalarFactor, concentration: ScalarFactor) -> Weights:
    """The prior of each atom when atoms are in the order of their rounds."""
    # so many atoms must fit into the rounds
    arrivals = max(mass.mean, n_atoms / n_rounds) * np.arange(n_rounds + 1)
    rounds = np.diff(gammainc(np.arange(1, n_atoms + 1)[:, None], arrivals), axis=1)  # eq: PCB11.order
    rounds /= rounds.sum(axis=1, keepdims=True)
    breaks = rounds @ np.arange(n_rounds) / np.maximum(rounds[:, 1:].sum(axis=1), 1e-300)
    ones = np.ones(n_atoms)
    return Weights(
        rounds=rounds,
        a=ones,
        b=concentration.mean * ones,
        u=np.maximum(breaks, 1.0),
        v=concentration.mean * ones,
        mass=mass,
        concentration=concentration,
    )


def atom_terms(q: Weights, counts: Array, n_rows: int) -> AtomTerms:
    counts = np.asarray(counts, dtype=float)
    extra = q.rounds[:, 1:] @ np.arange(q.rounds.shape[1] - 1.0)
    concentration = np.full(len(counts), q.concentration.mean)
    return AtomTerms(counts, n_rows - counts, q.rounds[:, 0], q.later, extra, concentration)


def update_rounds(q: Weights, terms: AtomTerms, log_rest: Array, penalty: RoundPenalty) -> Array:
    """q(d_k) for k = 0, 1, ... in turn, each at its optimum given the others."""
    later = np.arange(2.0, q.rounds.shape[1] + 1)
    log_first = terms.n_off * (digamma(q.b) - digamma(q.a + q.b))
    log_late = terms.n_off * log_rest - (terms.n_on + terms.concentration) * q.u / q.v + gamma_entropy(q.u, q.v)
    table = np.empty(q.rounds.shape)
    table[:, 0] = log_first
    table[:, 1:] = log_late[:, None] + (digamma(q.u) - np.log(q.v))[:, None] * (later - 2)
    table[:, 1:] += (later - 1) * q.concentration.mean_log - gammaln(later - 1)
    # P(no other atom comes later than in round r), by products from both ends, without a division
    by_then = np.cumsum(q.rounds[:, :-1], axis=1)
    after = np.ones((len(table) + 1, by_then.shape[1]))
    after[:-1] = np.cumprod(by_then[::-1], axis=0)[::-1]
    before = np.ones(by_then.shape[1])
    rounds = np.empty_like(q.rounds)
    for k, row in enumerate(table):
        # eq: PCB11.round-update
        row[1:] -= q.mass.mean * np.cumsum(before * after[k + 1])
        row += penalty.pull(k)
        rounds[k] = np.exp(row - row.max())
        rounds[k] /= rounds[k].sum()
        penalty.put(k, rounds[k])
        before = before * np.cumsum(rounds[k, :-1])
    return rounds


def rounds_in_use(rounds: Array) -> float:
    """Expected number of rounds up to the last one with an atom."""
    return float(1 + (1 - np.prod(np.cumsum(rounds[:, :-1], axis=1), axis=0)).sum())  # eq: PCB11.rounds-in-use


def update_scalars(q: Weights) -> Weights:
    """q(mass) and q(concentration) at their optimum."""
    breaks = float((q.rounds @ np.arange(q.rounds.shape[1])).sum())
    lost = float((digamma(q.a + q.b) - digamma(q.b)).sum() + (q.later * q.u / q.v).sum())
    # eq: PCB11.scalars
    return q._replace(
        mass=q.mass.updated(len(q.a), rounds_in_use(q.rounds)),
        concentration=q.concentration.updated(len(q.a) + breaks, lost),
    )


def bound(q: Weights, counts: Array, n_rows: int, penalty: RoundPenalty) -> float:
    """E_q[log p(Z, d, V, T, mass, concentration) - log q]."""
    n_atoms, n_rounds = q.rounds.shape
    theta = np.stack([q.a, q.b, q.u, q.v])
    later = np.arange(2.0, n_rounds + 1)
    atoms = atom_bound(theta, atom_terms(q, counts, n_rows), expected_log_rest(*theta)).sum()
    breaks = (q.rounds[:, 1:] @ ((later - 1) * q.concentration.mean_log - gammaln(later - 1))).sum()
    scalars = q.mass.bound() + q.concentration.bound()
    # eq: PCB11.bound
    placed = n_atoms * q.mass.mean_log - q.mass.mean * rounds_in_use(q.rounds) - penalty.cost()
    entropy = -xlogy(q.rounds, q.rounds).sum()
    return float(atoms + breaks + n_atoms * q.concentration.mean_log + placed + entropy + scalars)
