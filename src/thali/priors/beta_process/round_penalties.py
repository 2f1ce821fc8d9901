"""E log prod_r C_r!, where C_r is the number of atoms in round r under independent q(d_k): exact, or two upper bounds.

Each penalty knows its cost, and what it adds to log q(d_k = r) when q(d_k) is updated given the others, k = 0, 1, ...
in turn: `pull(k)` before the update, `put(k, row)` after it.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy.special import gammaln

Array = np.ndarray

_MARKOV = 0.93754825431584375  # sum over l of log(l) / l^2
_FACTORIAL = 1.25774688694436962  # sum over l > 1 of log(l) / (l (l - 1))


class RoundPenalty(Protocol):
    def cost(self) -> float: ...

    def pull(self, k: int) -> Array: ...

    def put(self, k: int, row: Array) -> None: ...


class Unordered:
    """Atoms without order: K!/prod C_r! vectors d have the same counts, so the factorials of the rounds cancel."""

    def __init__(self, rounds: Array) -> None:
        self.shape = rounds.shape

    def cost(self) -> float:
        return float(gammaln(self.shape[0] + 1))

    def pull(self, k: int) -> Array:
        return np.zeros(self.shape[1])

    def put(self, k: int, row: Array) -> None:
        pass


class _Pairs:
    """A bound by the second moment: cost `per_pair` E[C_r (C_r - 1)] + `per_atom` E[C_r]."""

    per_pair: float
    per_atom: float

    def __init__(self, rounds: Array) -> None:
        self.rounds = rounds.copy()
        self.sums = rounds.sum(axis=0)

    def cost(self) -> float:
        pairs = self.sums**2 - (self.rounds**2).sum(axis=0)
        return float((self.per_pair * pairs + self.per_atom * self.sums).sum())

    def pull(self, k: int) -> Array:
        # the pair (i, k) is counted twice, as (i, k) and (k, i): eq: PCB11.round-update
        return -2 * self.per_pair * (self.sums - self.rounds[k])

    def put(self, k: int, row: Array) -> None:
        self.sums = self.sums - self.rounds[k] + row
        self.rounds[k] = row


class Markov(_Pairs):
    """P(C >= l) <= E[C^2] / l^2, as printed."""

    per_pair = per_atom = _MARKOV  # eq: PCB11.markov


class Factorial(_Pairs):
    """P(C >= l) <= E[C (C - 1)] / (l (l - 1)): nothing for the first atom of a round, tighter up to three."""

    per_pair, per_atom = _FACTORIAL, 0.0  # eq: own.factorial-moment


class Exact:
    """The counts of independent bits, by their recursion from the first atom on and from the last one back."""

    def __init__(self, rounds: Array) -> None:
        n_atoms, n_rounds = rounds.shape
        self.before = np.zeros((n_rounds, n_atoms + 1))
        self.before[:, 0] = 1.0
        self.after = np.zeros((n_atoms + 1, n_rounds, n_atoms + 1))
        self.after[n_atoms, :, 0] = 1.0
        for k in reversed(range(n_atoms)):
            self.after[k] = _one_more(self.after[k + 1], rounds[k])
        count = np.arange(n_atoms + 1)
        self.log_next = np.log(count[:, None] + count + 1)

    def cost(self) -> float:
        """Before any `put`."""
        return float((self.after[0] @ gammaln(np.arange(self.before.shape[1]) + 1)).sum())

    def pull(self, k: int) -> Array:
        # -E log(1 + number of other atoms in the round): eq: own.exact-rounds
        return -((self.before @ self.log_next) * self.after[k + 1]).sum(axis=1)

    def put(self, k: int, row: Array) -> None:
        self.before = _one_more(self.before, row)


def _one_more(counts: Array, chance: Array) -> Array:
    """The law of each count after one more bit, which is one with this chance."""
    result = counts * (1 - chance)[:, None]
    result[:, 1:] += counts[:, :-1] * chance[:, None]
    return result


PENALTIES: dict[str, Callable[[Array], RoundPenalty]] = {
    "none": Unordered,
    "exact": Exact,
    "factorial": Factorial,
    "markov": Markov,
}
