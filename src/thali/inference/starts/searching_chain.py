"""A chain on its way to a good start: sweeps with or without learning, groups of like columns, and a score.

Modes are scored by free energy, E[log joint] + entropy, and never by the log joint: at high noise a wrong mode can have
the higher density and far less mass.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from thali.core.binary import non_empty
from thali.core.model import Model
from thali.core.odds import exchangeable_odds
from thali.core.protocols.engines.chains import BitEntropy, ChainRows, CollapsedRows, ColumnMoves

Array = np.ndarray

_ALIKE = 0.7  # how often groups are made of columns with like features


class SearchOver(Exception):  # noqa: N818 (not an error)
    """Raised by a `tick`: there is no more time to look for a start."""


class Walk:
    """Current values, and ways to change them. `tick` is called after every sweep; an error it raises ends the walk."""

    def __init__(
        self, rng: np.random.Generator, model: Model, data: Any, state: Any, tick: Callable[[], None] | None
    ) -> None:
        self.rng, self.model, self.data, self.tick = rng, model, data, tick
        self.prior, self.observation, self.local = state
        self.n_sweeps = 0
        self._refresh_tables()

    def _refresh_tables(self) -> None:
        self.odds = exchangeable_odds(self.prior, len(self.local.z))

    @property
    def state(self) -> tuple[Any, Any, Any]:
        """Concrete prior, concrete observation model, and row variables."""
        return self.prior, self.observation, self.local

    @property
    def n_features(self) -> int:
        return int(self.local.z.shape[1])

    def sweep(self, *, group: int = 1, births: bool = True, observation: Any = None) -> None:
        """`observation` takes the place of the current one, for instance with more noise."""
        keys = self._keys(group) if group > 1 else None
        observation = self.observation if observation is None else observation
        odds = self.odds if births else self.odds._replace(new_rate=0.0)
        sweeps = observation.engine(CollapsedRows)
        self.local, _ = sweeps.sweep(self.rng, self.data, self.local, odds, group, keys)
        self.n_sweeps += 1
        if self.tick is not None:
            self.tick()

    def _keys(self, group: int) -> Array | None:
        """An order of the columns in which neighbours are alike, or None for a random one."""
        n_features = self.n_features
        if n_features <= group or self.rng.random() > _ALIKE:
            return None
        likeness = self.observation.engine(ColumnMoves).likeness(self.local)
        likeness = likeness + 0.3 * self.rng.random((n_features, n_features))
        left = list(self.rng.permutation(n_features))
        keys = np.empty(n_features)
        rank = 0
        while left:
            seed = left.pop(0)
            partners = sorted(left, key=lambda k: -likeness[seed, k])[: group - 1]
            for k in (seed, *partners):
                keys[k] = rank
                rank += 1
            left = [k for k in left if k not in partners]
        return keys / n_features

    def learn(self) -> None:
        """Draw the learned hyperparameters."""
        self.prior = self.model.prior.resample(self.rng, self.prior, self.local.z)
        rows = self.observation.engine(ChainRows)
        self.observation = rows.resample(self.rng, self.model.observation, self.data, self.local)
        self._refresh_tables()

    def settle(self, n_rounds: int, *, learn: bool = False, births: bool = True) -> None:
        for _ in range(n_rounds):
            self.sweep(group=3, births=births)
            if learn:
                self.learn()

    def log_joint(self) -> float:
        return float(
            self.prior.log_prob(self.local.z)
            + self.observation.engine(ChainRows).log_evidence(self.data, self.local)
            + self.model.prior.log_hyper(self.prior)
            + self.model.observation.log_hyper(self.observation)
        )

    def free_energy(self) -> float:
        """log joint + sum of the entropies of the bits given the rest."""
        entropy = self.observation.engine(BitEntropy).bit_entropy(self.data, self.local, self.odds)
        return self.log_joint() + float(entropy)

    def score(self, n_sweeps: int) -> float:
        """Mean free energy over some sweeps."""
        total = 0.0
        for _ in range(n_sweeps):
            self.sweep()
            total += self.free_energy()
        return total / n_sweeps

    def place(self, Z: Array) -> None:
        """Take these bits in place of the current ones. Columns without a member go, unless their number is fixed."""
        if self.odds.infinite:
            Z = non_empty(Z)
        rows = self.observation.engine(ChainRows)
        completed = rows.completed(self.data, self.local)
        self.local = rows.place(self.data, np.ascontiguousarray(Z), completed)
