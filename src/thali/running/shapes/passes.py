"""Passes over data that can be read again, a block of rows at a time."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from thali.core.registry import stored
from thali.data.far_rows import Seen
from thali.data.row_blocks import RowBlocks
from thali.data.row_digests import row_digests
from thali.data.young_rows import YoungRows
from thali.running.shapes.shape import Job, Shape
from thali.running.stopping import Clock
from thali.storage.fit import Outcome
from thali.storage.streams import BlockInfo, BlockStream, Stream
from thali.storage.tasks import Task

Array = np.ndarray

_TRIALS = 3  # other sets of features that are tried once a fit has settled
_TRIAL_PASSES = 2  # after which one must be better


@stored("PassesState")
class PassesState(NamedTuple):
    """Where a fit by passes is."""

    state: Any  # the inference's
    seen: Seen  # the ranges of the rows that the features began with
    n_trials: int  # that are left
    order: Array | None = None  # of the blocks in this pass
    position: int = 0  # in that order
    before: float | None = None  # the bound after the pass before
    n_passes: int = 0
    settled: bool = False
    trial_is_due: bool = False
    trial: Any = None  # the state with other features
    n_trial_passes: int = 0


class Passes(Shape):
    """The first step finds features in some of the rows; each other one is the visit of a block, or looks for other
    features to be tried."""

    word = "fit"
    in_step = True
    useless = ("target_ess", "heldout")
    why_useless = "is for samplers and must be None with {}"

    @classmethod
    def first_tasks(cls, job: Job, rng: np.random.Generator, n_chains: int) -> list[Task]:
        return [Task(0, rng)]

    @property
    def blocks(self) -> RowBlocks:
        return self.job.X

    def check(self, task: Task) -> None:
        at, inference, n_blocks = task.state, self.inference, self.blocks.n_blocks
        if at is None:
            return
        if not isinstance(at, PassesState) or not all(isinstance(info, BlockInfo) for info in task.infos):
            raise ValueError("its state is none of a fit by blocks")
        if at.order is not None and not np.array_equal(np.sort(at.order), np.arange(n_blocks)):
            raise ValueError("its blocks are not those of the data")
        if not 0 <= at.position < max(n_blocks, 1) or len(task.infos) != at.n_passes:
            raise ValueError("its passes are not those of its remarks")
        for state in (at.state, at.trial):
            if state is not None:
                inference.check_resumable(state, self.model, self.blocks)

    def advance(self, task: Task, clock: Clock) -> None:
        if task.state is None:
            task.state = self._begun(task, clock)
        elif task.state.trial_is_due:
            self._look_for_others(task, clock)
        else:
            self._visit(task)

    def _begun(self, task: Task, clock: Clock) -> PassesState:
        inference, blocks = self.inference, self.blocks
        X = blocks.some_rows(task.rng, inference.n_start)
        state = inference.begin(task.rng, self.model, X, blocks.n_rows, partial(self.cuts_start, task, clock))
        n_trials = _TRIALS if inference.moves and inference.memoised else 0
        return PassesState(state, Seen.nothing(blocks.n_dims).after(X), n_trials)

    def _visit(self, task: Task) -> None:
        inference, blocks, at = self.inference, self.blocks, task.state
        if at.order is None:
            order = np.arange(blocks.n_blocks)
            if not inference.memoised:  # neighbours may be alike
                order = task.rng.permutation(blocks.n_blocks)
            at = at._replace(order=order)
        index = int(at.order[at.position])
        state = at.state if at.trial is None else at.trial
        state = inference.visit(state, blocks.block(index), index, n_all=blocks.n_rows, keep=not blocks.on_disk)
        at = at._replace(position=at.position + 1)
        if at.position == blocks.n_blocks:
            state = inference.in_order(state)
            at = at._replace(order=None, position=0)
            at = self._after_pass(task, at, state) if at.trial is None else self._after_trial_pass(at, state)
        else:
            at = at._replace(state=state) if at.trial is None else at._replace(trial=state)
        task.state = at

    def _after_pass(self, task: Task, at: PassesState, state: Any) -> PassesState:
        inference = self.inference
        gain = np.inf if at.before is None else state.bound - at.before
        task.infos.append(BlockInfo.of(state))
        at = at._replace(state=state, before=state.bound, n_passes=at.n_passes + 1)
        if inference.memoised and gain <= inference.tol * abs(state.bound):
            return at._replace(trial_is_due=True) if at.n_trials else at._replace(settled=True)
        return at

    def _after_trial_pass(self, at: PassesState, trial: Any) -> PassesState:
        if at.n_trial_passes + 1 < _TRIAL_PASSES:
            return at._replace(trial=trial, n_trial_passes=at.n_trial_passes + 1)
        better = trial.bound - at.state.bound > self.inference.tol * abs(at.state.bound)
        at = at._replace(trial=None, n_trial_passes=0, settled=not better)
        if better and at.n_passes < self.inference.n_epochs:  # one that no pass would follow has no remark, nor counts
            return at._replace(state=trial, before=trial.bound)
        return at

    def _look_for_others(self, task: Task, clock: Clock) -> None:
        """Other features that some rows suggest; whether they are better all rows have to say."""
        at = task.state
        rows = self._telling(task, clock)
        if rows is None:
            return
        trial = self.inference.with_more(task.rng, at.state, rows)
        at = at._replace(trial_is_due=False, n_trials=at.n_trials - 1)
        task.state = at._replace(settled=True) if trial is None else at._replace(trial=trial)

    def _telling(self, task: Task, clock: Clock) -> Array | None:
        """Some rows, half of them those that are explained worst: rare features would not be seen in others. None if
        the time is over before they are found."""
        blocks, state = self.blocks, task.state.state
        n_some = min(self.inference.n_start, blocks.n_rows)
        rows, scores = np.zeros(0, dtype=np.int64), np.zeros(0)
        for index in range(blocks.n_blocks):
            if clock.is_over():
                return None
            new = self.inference.misfit(state, blocks.block(index))
            rows = np.concatenate([rows, index * blocks.batch_size + np.arange(len(new))])
            scores = np.concatenate([scores, new])
            worst = np.argsort(-scores, kind="stable")[: n_some // 2]
            rows, scores = rows[worst], scores[worst]
        others = task.rng.choice(blocks.n_rows, n_some, replace=False)
        others = others[~np.isin(others, rows)][: n_some - len(rows)]
        return blocks.rows(np.sort(np.concatenate([rows, others])))

    def is_done(self, task: Task) -> bool:
        at = task.state
        if at is None:
            return False
        is_last_pass = at.n_passes == self.inference.n_epochs
        return at.settled or (is_last_pass and at.trial is None and not at.trial_is_due)

    def is_owed(self, task: Task, clock: Clock) -> bool:
        return task.state is None or task.state.state.n_visits == 0

    def n_kept(self) -> int:
        at = self.tasks[0].state
        return 0 if at is None else at.n_passes * self.blocks.n_blocks + at.position

    def outcome(self, stopped_by: str | None) -> Outcome:
        task, blocks, about = self.tasks[0], self.blocks, self.about
        at, infos = task.state, list(task.infos)
        state = at.state
        if at.position and at.trial is None:  # in the middle of a pass
            state = self.inference.in_order(state)
            infos.append(BlockInfo.of(state))
        has_seen_all = at.n_passes > 0
        words = ""
        if not has_seen_all:
            words = f"Stopped by {stopped_by}: saw {state.n_seen} of {blocks.n_rows} rows."
        elif stopped_by == "interrupt":
            words = f"Interrupted: kept the state of pass {len(infos)}."
        keeps_rows = has_seen_all and not blocks.on_disk
        posterior = self.inference.posterior(state, blocks.n_blocks if keeps_rows else None)
        if keeps_rows:
            posterior.row_digests = row_digests(blocks.matrix)
        else:
            about = about._replace(data_fingerprint="")
        stream = Stream([Task(0, task.rng, self._stream(state, at), infos=infos)], at.seen)
        return Outcome(about, posterior, history(infos, settled=at.settled), stopped_by, stream, words)

    def _stream(self, state: Any, at: PassesState) -> BlockStream:
        """What goes on with batches. Blocks will not come again: their sums have no use, and those of all are kept."""
        state, n_rows = state._replace(sums={}, local={}, n_seen=state.n_rows), self.blocks.n_rows
        if at.n_passes == 0 or self.job.given is None or n_rows >= self.inference.n_start:
            return BlockStream(state, settled=at.settled)
        young = YoungRows.of(self.blocks.rows(np.arange(n_rows)))
        return BlockStream(state, young, self.job.given, n_rows, settled=at.settled)

    # ---- for the progress

    def n_steps(self) -> None:
        return None

    def note(self, task: Task, *, thorough: bool) -> str:
        at = task.state
        if at is None:
            return "finding a start"
        where = f"pass {at.n_passes + 1}, block {at.position} of {self.blocks.n_blocks}"
        if at.trial is not None or at.trial_is_due:
            where = "trying other features"
        return f"{where}  K={at.state.n_features}  bound {at.state.bound:.8g}"


def history(infos: list[BlockInfo], *, settled: bool = False, in_stream: bool = False) -> dict[str, Array]:
    """(1, pass or batch) arrays, and how it ended."""
    traces = {name: np.array([[getattr(info, name) for info in infos]]) for name in BlockInfo._fields}
    return traces | {"settled": np.array([settled]), "in_stream": np.array([in_stream])}
