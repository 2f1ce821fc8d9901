"""Slice sampling of features whose rows follow groups, in which features have weights of their own.

Given the weights of features in groups, rows are independent, and a slice below the smallest size in use leaves
finitely many features (as in `SliceSampler`): nothing is truncated. Weights are forgotten after the sweep over the
bits; the groups of rows and the sizes of features are then drawn with the weights integrated out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thali.core.binary import check_binary, n_non_empty
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows, FreshRows, GroupedRows, StartRows
from thali.core.protocols.prior import Groups
from thali.core.registry import stored
from thali.core.spec import Spec, at_least, setting
from thali.inference.samplers.chain import ZState, as_draw
from thali.inference.starts.given import start_domain
from thali.inference.starts.search import KINDS, find_start
from thali.posteriors.base import Draw

Array = np.ndarray


@stored("GroupedChainState")
class GroupedState(NamedTuple):
    """All that the next step needs. `marks` are those of `thali.core.protocols.prior.Groups`; None stands for marks
    that are still to be drawn."""

    prior: Any  # concrete
    observation: Any  # concrete
    local: Any  # the observation's row variables; its first field is z
    marks: Any


@stored("GroupedStepRemarks")
class GroupedInfo(NamedTuple):
    """Remarks about one step: how many unused features were there for its time, and how many rows changed group (of
    some feature)."""

    log_joint: float
    n_features: int
    unused: int
    moved: int


@stored("HierarchicalGibbs")
@dataclass(frozen=True, eq=False)
class HierarchicalGibbs(Spec):
    """Exact sampling with a `HierarchicalBetaProcess`: groups that rows follow, features of groups, bits.

    One step: bits of all rows given what groups make of features, then groups, sizes of features, hyperparameters.

    Parameters
    ----------
    n_warmup : int
        Steps that are not kept.
    n_draws : int
        Draws that are kept of each chain.
    thin : int
        Steps from one draw that is kept to the next.
    start : str or array of shape (n_rows, n_features)
        As for `CollapsedGibbs`, found with a prior of exchangeable rows.
    """

    n_warmup: int = setting(500, at_least(0))
    n_draws: int = setting(500, at_least(1))
    thin: int = setting(1, at_least(1))
    start: Any = setting("search", start_domain(*KINDS))

    shape = "chains"
    needs_prior = (Groups,)
    needs_observation = (ChainRows, StartRows, GroupedRows)

    def init(
        self,
        rng: np.random.Generator,
        model: Model,
        data: Any,
        n_rows: int,
        tick: Callable[[], None] | None = None,
    ) -> GroupedState:
        """The end of a search with exchangeable rows."""
        model.prior.check_rows(n_rows)
        alike = Model(model.prior.exchangeable(), model.observation)
        _, observation, local = find_start(rng, alike, data, self.start, self.n_warmup, tick)
        kept = local.z.any(axis=0)
        if not kept.all():
            rows = observation.engine(ChainRows)
            local = rows.place(data, rows.codes(local)[:, kept], rows.completed(data, local))
        prior = model.prior.draw(rng)
        marks = prior.begin_marks(rng, local.z)
        prior = model.prior.resample_grouped(rng, prior, local.z, marks)
        return GroupedState(prior, observation, local, marks)

    def at(self, prior: Any, observation: Any, data: Any, codes: Array, X: Array) -> GroupedState:
        """The state with these values; X is complete. The next step begins with a draw of the marks."""
        local = observation.engine(ChainRows).place(data, codes, X)
        return GroupedState(prior, observation, local, None)

    def step(
        self, rng: np.random.Generator, state: GroupedState, model: Model, data: Any
    ) -> tuple[GroupedState, GroupedInfo]:
        prior, observation, local, marks = state
        if marks is None:
            marks = prior.begin_marks(rng, local.z)
        n_used = local.z.shape[1]
        chances, kinds, marks, level = prior.draw_slice(rng, local.z, marks)
        local, kept = observation.engine(GroupedRows).grouped_sweep(
            rng, data, local, chances, kinds, marks.sizes, level
        )
        marks = prior.kept_marks(marks, kept)
        before = marks.groups
        marks = prior.redraw_marks(rng, local.z, marks)
        moved = int((marks.groups != before).any(axis=1).sum())
        prior = model.prior.resample_grouped(rng, prior, local.z, marks)
        observation = observation.engine(ChainRows).resample(rng, model.observation, data, local)
        if observation.has(FreshRows):
            local = observation.engine(FreshRows).refresh(rng, data, local)
        state = GroupedState(prior, observation, local, marks)
        info = GroupedInfo(log_joint(state, model, data), n_non_empty(local.z), chances.shape[1] - n_used, moved)
        return state, info

    def check_sound(self, state: Any, data: Any, n_rows: int) -> None:
        """Raise a ValueError unless a chain on these data can be in this state: files are not to be trusted."""
        if not isinstance(state, GroupedState):
            raise ValueError("it is the state of another sampler")
        z = state.local.z
        if check_binary(z).shape[0] != n_rows or z.dtype != np.uint8 or state.prior.n_rows != n_rows:
            raise ValueError("its bits are those of another number of rows")
        if not z.any(axis=0).all():
            raise ValueError("it has features that no row has")
        if state.marks is not None and not state.prior.fits(state.marks, z):
            raise ValueError("its groups are those of other bits")
        state.observation.engine(ChainRows).check(data, state.local)

    def record(self, state: GroupedState, info: GroupedInfo, data: Any) -> Draw:
        return as_draw(ZState(state.prior, state.observation, state.local), info.log_joint, data)


def log_joint(state: GroupedState, model: Model, data: Any) -> float:
    """log p(X, Z, groups, hyperparameters), with the features integrated out, as the prior has it, and missing cells at
    their current values."""
    return (
        state.prior.log_joint(state.local.z, state.marks)
        + state.observation.engine(ChainRows).log_evidence(data, state.local)
        + model.prior.log_hyper(state.prior)
        + model.observation.log_hyper(state.observation)
    )
