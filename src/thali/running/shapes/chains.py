"""Chains of draws, compared with each other."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.data.row_digests import row_digests
from thali.inference.starts.searching_chain import SearchOver
from thali.posteriors.draws import Draws
from thali.running.shapes.shape import Job, Shape, StartGivenUp
from thali.running.stopping import Clock, Target
from thali.storage.fit import Outcome
from thali.storage.integrity import check_state
from thali.storage.tasks import Task
from thali.verdicts.chains import diagnose


def iterate(
    rng: np.random.Generator,
    inference: Any,
    model: Model,
    data: Any,
    n_rows: int,
    *,
    state: Any = None,
    tick: Callable[[], None] | None = None,
) -> Iterator[Any]:
    """Yield (state, info) after every step, for ever. Stopping, thinning and storage belong to the consumer.

    It begins at `state`, or finds a start; `tick` is called now and then meanwhile, and may raise to give up.
    """
    if state is None:
        state = inference.init(rng, model, data, n_rows, tick)
    while True:
        state, info = inference.step(rng, state, model, data)
        yield state, info


class Chains(Shape):
    """A step is one of the sampler, the first one after a search for a start.

    Of a run that was stopped all chains keep the same number of draws, those that lag far behind left out; if the time
    is over before any has a draw, the state in which each of them is.
    """

    word = "chain"
    turn = 1.0

    def __init__(self, job: Job, tasks: list[Task]) -> None:
        super().__init__(job, tasks)
        self._target = None if job.target_ess is None else Target(job.target_ess, self.model)
        self._sizes = [""] * len(tasks)  # for the progress

    def check(self, task: Task) -> None:
        for info in task.infos:
            float(info.log_joint), int(info.n_features)
        if task.state is not None:
            check_state(task.state, self.about, self.job.X)

    def advance(self, task: Task, clock: Clock) -> None:
        inference, model = self.inference, self.model
        if task.data is None:
            task.data = model.observation.engine(ChainRows).prepare(self.job.X)
        if task.state is None:
            n_rows = model.observation.n_owners(self.job.X.shape)
            task.state = inference.init(task.rng, model, task.data, n_rows, partial(_tick, task, clock))
        task.state, info = inference.step(task.rng, task.state, model, task.data)
        task.infos.append(info)
        past = len(task.infos) - inference.n_warmup
        if past > 0 and past % inference.thin == 0:
            task.kept.append(inference.record(task.state, info, task.data))

    def is_done(self, task: Task) -> bool:
        return len(task.kept) >= self.inference.n_draws

    def is_owed(self, task: Task, clock: Clock) -> bool:
        return not clock.interrupted and not any(chain.infos for chain in self.tasks)  # some state there must be

    def n_kept(self) -> int:
        return sum(len(task.kept) for task in self.tasks)

    def has_enough(self) -> bool:
        return self._target is not None and self._target.length(self.tasks) is not None

    def outcome(self, stopped_by: str | None) -> Outcome:
        inference, n_draws = self.inference, self.inference.n_draws
        chains, length = self.tasks, n_draws
        if stopped_by == "target_ess":
            assert self._target is not None
            length = self._target.length(chains) or n_draws
        elif not all(map(self.is_done, chains)):
            chains = most_draws(chains)
            length = min((len(chain.kept) for chain in chains), default=0)
        if chains:
            n_steps, kept = inference.n_warmup + length * inference.thin, [chain.kept[:length] for chain in chains]
        elif stopped_by == "interrupt":
            raise KeyboardInterrupt("interrupted before the first draw")
        else:
            chains = [chain for chain in self.tasks if chain.infos]
            n_steps, kept = min(len(chain.infos) for chain in chains), [[self._where(chain)] for chain in chains]
        posterior = Draws.from_chains(self.model, kept)
        posterior.row_digests = row_digests(self.job.X)
        words = f"Interrupted: kept {len(chains)} of {len(self.tasks)} chains with {length} draws each, of {n_draws}."
        return Outcome(
            self.about, posterior, _history(chains, n_steps), stopped_by,
            words=words if stopped_by == "interrupt" else "",
        )  # fmt: skip

    def _where(self, chain: Task) -> Any:
        """Where a chain stands that has not begun to draw: better than nothing, and the verdict says what it is."""
        data = chain.data
        if data is None:
            data = self.model.observation.engine(ChainRows).prepare(self.job.X)
        return self.inference.record(chain.state, chain.infos[-1], data)

    # ---- for the progress

    def n_steps(self) -> int:
        return int(self.inference.n_warmup + self.inference.n_draws * self.inference.thin)

    def note(self, task: Task, *, thorough: bool) -> str:
        if not task.infos:
            return "finding a start"
        if thorough:
            self._sizes[task.number] = self._size(task)
        info = task.infos[-1]
        return f"K={info.n_features}  log p {info.log_joint:.1f}{self._sizes[task.number]}"

    def _size(self, task: Task) -> str:
        """Effective number of draws of K so far, and the held-out score of the last one."""
        first, thin = self.inference.n_warmup + self.inference.thin - 1, self.inference.thin
        numbers = np.array([[info.n_features for info in task.infos[first::thin]]])
        ess = diagnose({"K": numbers})["K"].ess if numbers.size else np.nan
        size = "" if np.isnan(ess) else f"  ESS(K) {ess:.0f}"
        score = self.job.score
        return size if score is None or not task.kept else f"  held-out {score(task.kept[-1]):.3f}{size}"


def _tick(task: Task, clock: Clock) -> None:
    if clock.interrupted or clock.has_ended:
        raise StartGivenUp
    if Shape.cuts_start(task, clock):
        raise SearchOver


def most_draws(chains: Sequence[Task]) -> list[Task]:
    """Those chains that have most draws together when all are as long as the shortest; those that lag are left out."""
    longest = sorted((len(chain.kept) for chain in chains), reverse=True)
    totals = [n_chains * length for n_chains, length in enumerate(longest, start=1)]
    least = longest[max(range(len(longest)), key=lambda i: (totals[i], i))]
    return [chain for chain in chains if chain.kept and len(chain.kept) >= least]


def _history(chains: Sequence[Task], n_steps: int) -> dict[str, np.ndarray]:
    """Remarks on the first steps of each chain."""
    return {
        name: np.array([[getattr(info, name) for info in chain.infos[:n_steps]] for chain in chains])
        for name in ("log_joint", "n_features")
    }
