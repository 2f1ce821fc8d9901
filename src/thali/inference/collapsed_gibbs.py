"""Gibbs sampling of Z with the features integrated out (Griffiths & Ghahramani 2005; accelerated sweep of
Doshi-Velez & Ghahramani 2009), and of the learned hyperparameters.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thali.inference.starts import fit_columns, spectral_start
from thali.model import Model
from thali.posterior import Draw
from thali.protocols import CollapsedRows, Predictive
from thali.spec import Spec, at_least, setting


class CollapsedState(NamedTuple):
    """All that the next step needs: the current hyperparameters, Z and its statistics."""

    prior: Any  # concrete
    observation: Any  # concrete
    local: Any  # the observation's row variables; its first field is z


class SweepInfo(NamedTuple):
    """Remarks about one step."""

    log_joint: float
    n_features: int
    drift: float


@dataclass(frozen=True, eq=False)
class CollapsedGibbs(Spec):
    """Exact sampling for small and medium data. One step: a sweep over all rows, then the hyperparameters."""

    n_warmup: int = setting(500, at_least(0))
    n_draws: int = setting(500, at_least(1))
    thin: int = setting(1, at_least(1))

    needs_prior = (Predictive,)
    needs_observation = (CollapsedRows,)

    def init(self, rng: np.random.Generator, model: Model, data: Any, n_rows: int) -> CollapsedState:
        """Z from a spectral start, hyperparameters from what it leaves unexplained."""
        prior = model.prior.draw(rng)
        matrix, has_offset = model.observation.as_matrix(data)
        Z = spectral_start(rng, matrix, has_offset=has_offset)
        Z = fit_columns(Z, getattr(prior, "n_features", None))
        prior = model.prior.resample(rng, prior, Z)
        observation, local = model.observation.start(rng, data, Z)
        return CollapsedState(prior, observation, local)

    def at(self, prior: Any, observation: Any, data: Any, Z: np.ndarray, X: np.ndarray) -> CollapsedState:
        """The state with these values; X is complete."""
        return CollapsedState(prior, observation, observation.place(data, Z, X))

    def step(
        self, rng: np.random.Generator, state: CollapsedState, model: Model, data: Any
    ) -> tuple[CollapsedState, SweepInfo]:
        prior, observation, local = state
        n_rows = len(local.z)
        local, remarks = observation.sweep(rng, data, local, prior.log_odds(n_rows), prior.new_rate(n_rows))
        prior = model.prior.resample(rng, prior, local.z)
        observation = model.observation.resample(rng, observation, data, local)
        state = CollapsedState(prior, observation, local)
        n_features = int(local.z.any(axis=0).sum())
        return state, SweepInfo(self.log_joint(state, model, data), n_features, remarks["drift"])

    def log_joint(self, state: CollapsedState, model: Model, data: Any) -> float:
        """log p(X, Z, hyperparameters), with the features integrated out and missing cells at their current values."""
        prior, observation, local = state
        return (
            prior.log_prob(local.z)
            + observation.log_evidence(data, local)
            + model.prior.log_hyper(prior)
            + model.observation.log_hyper(observation)
        )

    def record(self, state: CollapsedState, info: SweepInfo, data: Any) -> Draw:
        """What a posterior keeps of a state."""
        return Draw(
            z=state.local.z,
            log_joint=info.log_joint,
            prior=state.prior,
            observation=state.observation,
            codebook=state.observation.codebook(data, state.local),
        )
