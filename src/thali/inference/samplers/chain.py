"""Chains over Z and the learned hyperparameters, with the features integrated out of their state.

What differs from sampler to sampler is how a sweep draws the rows. One step: a sweep over all rows, perhaps a move of
whole columns, then the hyperparameters.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thali.core.binary import check_binary, n_non_empty
from thali.core.model import Model
from thali.core.odds import exchangeable_odds, row_odds
from thali.core.protocols.engines.chains import BitEntropy, ChainRows, ColumnMoves, FreshRows, ShownRows
from thali.core.protocols.prior import AuxiliaryPrior, NearRows, provides
from thali.core.registry import stored
from thali.core.spec import Spec, at_least, setting, share
from thali.inference.samplers.column_moves import column_weight, metropolis, random_move
from thali.inference.starts.given import start_domain
from thali.inference.starts.search import KINDS, find_start
from thali.posteriors.base import Draw


@stored("ChainState")
class ZState(NamedTuple):
    """All that the next step needs: the current hyperparameters, Z and its statistics."""

    prior: Any  # concrete
    observation: Any  # concrete
    local: Any  # the observation's row variables; its first field is z


@stored("StepRemarks")
class SweepInfo(NamedTuple):
    """Remarks about one step."""

    log_joint: float
    n_features: int
    drift: float


@dataclass(frozen=True, eq=False)
class ZChain(Spec):
    """What such samplers share; start and moves are explained in `CollapsedGibbs`."""

    n_warmup: int = setting(500, at_least(0))
    n_draws: int = setting(500, at_least(1))
    thin: int = setting(1, at_least(1))
    start: Any = setting("search", start_domain(*KINDS))
    moves: float = setting(0.1, share)

    shape = "chains"

    @abstractmethod
    def sweep(self, rng: np.random.Generator, prior: Any, observation: Any, data: Any, local: Any) -> tuple[Any, float]:
        """(row variables after a sweep that leaves their posterior invariant, drift of what was kept in step)."""

    def init(
        self,
        rng: np.random.Generator,
        model: Model,
        data: Any,
        n_rows: int,
        tick: Callable[[], None] | None = None,
    ) -> ZState:
        """The end of a search for the right mode. `tick` is called after every sweep of it and may raise to end it."""
        return ZState(*find_start(rng, model, data, self.start, self.n_warmup, tick))

    def at(self, prior: Any, observation: Any, data: Any, codes: np.ndarray, X: np.ndarray) -> ZState:
        """The state with these values; X is complete."""
        return ZState(prior, observation, observation.engine(ChainRows).place(data, codes, X))

    def step(self, rng: np.random.Generator, state: ZState, model: Model, data: Any) -> tuple[ZState, SweepInfo]:
        prior, observation, local = state
        local, drift = self.sweep(rng, prior, observation, data, local)
        if self.moves > 0 and _can_move(prior, observation) and rng.random() < self.moves:
            log_odds, new_rate = row_odds(rng, prior, local.z).table()
            move = random_move(rng, grows=new_rate > 0)
            local, _ = metropolis(
                rng, move, observation.engine(ColumnMoves), data, local, column_weight(log_odds, new_rate)
            )
        prior = model.prior.resample(rng, prior, local.z)
        observation = observation.engine(ChainRows).resample(rng, model.observation, data, local)
        if observation.has(FreshRows):
            local = observation.engine(FreshRows).refresh(rng, data, local)
        state = ZState(prior, observation, local)
        return state, SweepInfo(log_joint(state, model, data), n_non_empty(local.z), drift)

    def check_sound(self, state: Any, data: Any, n_rows: int) -> None:
        """Raise a ValueError unless a chain on these data can be in this state: files are not to be trusted."""
        if not isinstance(state, ZState):
            raise ValueError("it is the state of another sampler")
        z = state.local.z
        n_features = state.prior.n_features
        if check_binary(z).shape[0] != n_rows or z.dtype != np.uint8:
            raise ValueError("its bits are those of another number of rows")
        if n_features not in (None, z.shape[1]):
            raise ValueError("its bits are those of another number of features")
        state.observation.engine(ChainRows).check(data, state.local)

    def record(self, state: ZState, info: SweepInfo, data: Any) -> Draw:
        return as_draw(state, info.log_joint, data)


def _can_move(prior: Any, observation: Any) -> bool:
    """Whether whole columns can be moved: their weights follow from a table by counts."""
    return observation.has(ColumnMoves) and not provides(prior, AuxiliaryPrior)


def log_joint(state: ZState, model: Model, data: Any) -> float:
    """log p(X, Z, hyperparameters), with the features integrated out and missing cells at their current values."""
    prior, observation, local = state
    return (
        prior.log_prob(local.z)
        + observation.engine(ChainRows).log_evidence(data, local)
        + model.prior.log_hyper(prior)
        + model.observation.log_hyper(observation)
    )


def as_draw(state: ZState, log_joint: float, data: Any) -> Draw:
    """What a posterior keeps of a state."""
    free_energy = log_joint
    by_row = provides(state.prior, AuxiliaryPrior) or provides(state.prior, NearRows)
    if state.observation.has(BitEntropy) and not by_row:
        odds = exchangeable_odds(state.prior, len(state.local.z))
        free_energy += state.observation.engine(BitEntropy).bit_entropy(data, state.local, odds)
    local = state.local
    if state.observation.has(ShownRows):
        local = state.observation.engine(ShownRows).shown(local)
    return Draw(
        z=local.z,
        log_joint=log_joint,
        free_energy=free_energy,
        prior=state.prior,
        observation=state.observation,
        codebook=state.observation.engine(ChainRows).codebook(data, local),
    )
