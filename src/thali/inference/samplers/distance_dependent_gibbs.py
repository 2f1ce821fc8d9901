"""Gibbs sampling of features that rows hand on along links, features and offset integrated out.

Gershman, Frazier & Blei (2015), corrected: a link moves all rows that lead to it, so that its conditional has the
likelihood of them all, and the features of an owner are an unordered set.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thali.core.binary import check_binary, n_non_empty
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows, FreshRows, LinkedRows, StartRows
from thali.core.protocols.prior import Links
from thali.core.registry import stored
from thali.core.spec import Spec, at_least, one_of, setting
from thali.inference.samplers.chain import ZState, as_draw
from thali.inference.starts.given import is_given, start_domain
from thali.inference.starts.linked_columns import gather_columns
from thali.inference.starts.search import KINDS, find_start
from thali.posteriors.base import Draw

Array = np.ndarray


@stored("LinkedChainState")
class LinkedState(NamedTuple):
    """All that the next step needs. `links` are those of `thali.core.protocols.prior.Links`; none at all, if Z has
    features, stands for links that are still to be drawn."""

    prior: Any  # concrete
    observation: Any  # concrete
    local: Any  # the observation's row variables; its first field is z
    links: Array


@stored("LinkedStepRemarks")
class LinkedInfo(NamedTuple):
    """Remarks about one step: how many draws of a link changed bits, how many moves of a feature's first row were
    accepted, and of numbers of owned features how many were proposed and accepted."""

    log_joint: float
    n_features: int
    flipped: int
    shifted: int
    proposed: int
    accepted: int


@stored("DistanceDependentGibbs")
@dataclass(frozen=True, eq=False)
class DistanceDependentGibbs(Spec):
    """Exact sampling with a `DistanceDependentIBP`.

    One step: new links for every row and feature, features that are born and die, then the hyperparameters. The log
    joint of its draws counts the links that it keeps.

    Parameters
    ----------
    n_warmup : int
        Steps that are not kept.
    n_draws : int
        Draws that are kept of each chain.
    thin : int
        Steps from one draw that is kept to the next.
    start : str or array of shape (n_rows, n_features)
        As for `CollapsedGibbs`, found with a prior of exchangeable rows; features that no links could hand on to all
        their rows are then split, and those that links hand on more easily once two are joined or taken apart are.
    ownership : "by row" or "joint"
        How many features each row owns is proposed for one row after another, or for all rows at once. The latter is
        the move of the paper; with many rows it is hardly ever accepted.
    """

    n_warmup: int = setting(500, at_least(0))
    n_draws: int = setting(500, at_least(1))
    thin: int = setting(1, at_least(1))
    start: Any = setting("search", start_domain(*KINDS))
    ownership: str = setting("by row", one_of("by row", "joint"))

    shape = "chains"
    needs_prior = (Links,)
    needs_observation = (ChainRows, StartRows, LinkedRows)

    def init(
        self,
        rng: np.random.Generator,
        model: Model,
        data: Any,
        n_rows: int,
        tick: Callable[[], None] | None = None,
    ) -> LinkedState:
        """The end of a search with exchangeable rows, taken apart where no links can lead to it."""
        model.prior.check_rows(n_rows)
        alike = Model(model.prior.exchangeable(), model.observation)
        _, observation, local = find_start(rng, alike, data, self.start, self.n_warmup, tick)
        rows = observation.engine(ChainRows)
        prior = model.prior.draw(rng)
        Z = prior.possible(local.z)
        if Z.shape != local.z.shape:
            local = rows.place(data, Z, rows.completed(data, local))
        links = prior.draw_links(rng, local.z)
        prior = model.prior.resample_linked(rng, prior, links)
        if not is_given(self.start) and self.n_warmup > 0:
            gathered = gather_columns(prior, observation, data, local)
            if gathered is not local:
                local, links = gathered, prior.draw_links(rng, gathered.z)
        return LinkedState(prior, observation, local, links)

    def at(self, prior: Any, observation: Any, data: Any, codes: Array, X: Array) -> LinkedState:
        """The state with these values; X is complete. The next step begins with a draw of the links."""
        local = observation.engine(ChainRows).place(data, codes, X)
        return LinkedState(prior, observation, local, np.zeros((0, len(X)), dtype=np.int64))

    def step(
        self, rng: np.random.Generator, state: LinkedState, model: Model, data: Any
    ) -> tuple[LinkedState, LinkedInfo]:
        prior, observation, local, links = state
        if len(links) < local.z.shape[1]:
            links = prior.draw_links(rng, local.z)
        local, links, remarks = observation.engine(LinkedRows).linked_sweep(
            rng, data, local, prior.kernel_graph(), links, prior.owner_rates(), self.ownership == "joint"
        )
        prior = model.prior.resample_linked(rng, prior, links)
        observation = observation.engine(ChainRows).resample(rng, model.observation, data, local)
        if observation.has(FreshRows):
            local = observation.engine(FreshRows).refresh(rng, data, local)
        state = LinkedState(prior, observation, local, links)
        return state, LinkedInfo(log_joint(state, model, data), n_non_empty(local.z), **remarks)

    def check_sound(self, state: Any, data: Any, n_rows: int) -> None:
        """Raise a ValueError unless a chain on these data can be in this state: files are not to be trusted."""
        if not isinstance(state, LinkedState):
            raise ValueError("it is the state of another sampler")
        z, links = state.local.z, state.links
        if check_binary(z).shape[0] != n_rows or z.dtype != np.uint8 or state.prior.n_rows != n_rows:
            raise ValueError("its bits are those of another number of rows")
        if links.dtype != np.int64 or links.shape not in ((z.shape[1], n_rows), (0, n_rows)):
            raise ValueError("its links are those of other bits")
        if len(links) and (links.min() < -1 or links.max() >= n_rows):
            raise ValueError("its links lead nowhere")
        if len(links) and not state.prior.leads_to(links, z):
            raise ValueError("its links do not lead to its bits")
        state.observation.engine(ChainRows).check(data, state.local)

    def record(self, state: LinkedState, info: LinkedInfo, data: Any) -> Draw:
        """The free energy has the links summed out: features with more rows have more ways to link these."""
        draw = as_draw(ZState(state.prior, state.observation, state.local), info.log_joint, data)
        return draw._replace(free_energy=draw.free_energy + state.prior.link_surprise(state.links))


def log_joint(state: LinkedState, model: Model, data: Any) -> float:
    """log p(X, links, hyperparameters), with the features integrated out and missing cells at their current values."""
    return (
        state.prior.log_joint(state.links)
        + state.observation.engine(ChainRows).log_evidence(data, state.local)
        + model.prior.log_hyper(state.prior)
        + model.observation.log_hyper(state.observation)
    )
