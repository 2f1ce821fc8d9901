"""Metropolis-Hastings moves that change whole columns of Z: rebirth of a block, re-encoding of a pair.

A move proposes; `metropolis` accepts with probability min(1, exp(log ratio)). Columns are picked uniformly (to pick
them by likeness would need that choice's own ratio), and a type of move is as probable as its inverse.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from thali.core.protocols.engines.chains import ColumnMoves
from thali.kernels.bits.column_moves import pick_columns

Array = np.ndarray
Proposal = tuple[Any, float]  # (local, log ratio)


class Rebirth(NamedTuple):
    """Remove `n_old` columns and build `n_new` from what the others leave unexplained."""

    n_old: int
    n_new: int

    @property
    def n_columns(self) -> int:
        return self.n_old

    def propose(
        self, rng: np.random.Generator, engine: ColumnMoves, data: Any, local: Any, weight: Array, columns: Array
    ) -> Proposal:
        return engine.propose_rebirth(rng, data, local, weight, columns, self.n_new)


class Recoding(NamedTuple):
    """Column k gets the bits table[z_k, z_l] (written as a tuple by 2 z_k + z_l), then both are drawn anew."""

    table: tuple[int, int, int, int]

    @property
    def n_columns(self) -> int:
        return 2

    def propose(
        self, rng: np.random.Generator, engine: ColumnMoves, data: Any, local: Any, weight: Array, columns: Array
    ) -> Proposal:
        table = np.array(self.table, dtype=np.uint8).reshape(2, 2)
        return engine.propose_recoding(rng, data, local, weight, columns, table)


class ExclusiveOr(NamedTuple):
    """z_k <- z_k xor z_l. Turns features (a, b) of which one is part of the other into (a - b, b)."""

    @property
    def n_columns(self) -> int:
        return 2

    def propose(
        self, rng: np.random.Generator, engine: ColumnMoves, data: Any, local: Any, weight: Array, columns: Array
    ) -> Proposal:
        return engine.propose_exclusive_or(data, local, weight, columns)


XOR = Recoding((0, 1, 1, 0))
OR = Recoding((0, 1, 1, 1))
AND_NOT = Recoding((0, 0, 1, 0))
COMPLEMENT = Recoding((1, 1, 0, 0))

MOVES = (
    Rebirth(0, 1), Rebirth(1, 0), Rebirth(1, 1), Rebirth(1, 2), Rebirth(2, 1), Rebirth(2, 2),
    XOR, OR, AND_NOT, ExclusiveOr(),
)  # fmt: skip


def column_weight(log_odds: Array, new_rate: float) -> Array:
    """weight[m] of a column with m members: log p(Z) = sum_k weight[m_k] - log K! + const, columns in random order.

    It follows from a prior's predictive: weight[m + 1] - weight[m] = log_odds[m], and a column of one row has the
    Poisson rate exp(weight[1]). A finite prior's columns may be empty; its number of columns is fixed.
    """
    # eq: own.column-weight
    if np.isfinite(log_odds[0]):
        return np.concatenate([[0.0], np.cumsum(log_odds)])
    log_rate = np.log(max(new_rate, 1e-300))  # a tiny mass may round to none
    return np.concatenate([[-np.inf], log_rate + np.concatenate([[0.0], np.cumsum(log_odds[1:])])])


def random_move(rng: np.random.Generator, *, grows: bool) -> Any:
    """One of MOVES; if the number of columns is fixed, one that keeps it."""
    fitting = [m for m in MOVES if grows or not isinstance(m, Rebirth) or m.n_old == m.n_new]
    return fitting[int(rng.integers(len(fitting)))]


def metropolis(
    rng: np.random.Generator, move: Any, engine: ColumnMoves, data: Any, local: Any, weight: Array
) -> tuple[Any, bool]:
    """(local, whether the proposal was accepted)."""
    n_features = local.z.shape[1]
    if n_features < move.n_columns:
        return local, False
    columns = pick_columns(n_features, move.n_columns, rng)
    proposed, log_ratio = move.propose(rng, engine, data, local, weight, columns)
    if math.log(1.0 - rng.random()) < log_ratio:
        return proposed, True
    return local, False
