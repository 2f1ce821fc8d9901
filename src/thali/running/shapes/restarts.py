"""Restarts of an optimiser, each until nothing changes; the best one is kept."""

from functools import partial
from typing import Any

import numpy as np

from thali.data.row_digests import row_digests
from thali.inference import restart
from thali.rng import spawn
from thali.running.shapes.shape import Job, Shape
from thali.running.stopping import Clock
from thali.storage.fit import Outcome
from thali.storage.tasks import Task


class Restarts(Shape):
    """The first step finds a start, each other one is a pass. Restarts that have not begun when the time is over are
    left out, but for the first."""

    word = "restart"
    useless = ("target_ess", "heldout")
    why_useless = "is for samplers and must be None with {}"

    _data: Any = None

    @classmethod
    def first_tasks(cls, job: Job, rng: np.random.Generator, n_chains: int) -> list[Task]:
        streams = spawn(rng, job.about.choice.inference.n_restarts)
        return [Task(number, stream) for number, stream in enumerate(streams)]

    def prepare(self) -> None:
        if self._data is None:
            self._data = self.inference.prepare(self.model, self.job.X)

    def check(self, task: Task) -> None:
        if task.state is None:
            return
        if not all(isinstance(info, restart.PassInfo) for info in task.infos) or not task.infos:
            raise ValueError("its remarks are none of an optimiser")
        self.prepare()
        self.inference.check_sound(task.state, self.model, self._data)
        last = task.infos[-1]
        if (last.objective, last.n_features) != (task.state.objective, task.state.n_features):
            raise ValueError("its last remark is not on its state")

    def advance(self, task: Task, clock: Clock) -> None:
        inference, model, data = self.inference, self.model, self._data
        if task.state is None:
            is_over = partial(self.cuts_start, task, clock)
            task.state, info = restart.begin(task.rng, inference, model, data, task.number, is_over)
        else:
            task.state, info = restart.advance(task.rng, inference, model, data, task.state, task.infos[-1])
        task.infos.append(info)

    def is_done(self, task: Task) -> bool:
        return bool(task.infos) and restart.is_at_end(self.inference, task.infos)

    def is_owed(self, task: Task, clock: Clock) -> bool:
        return task.number == 0 and not task.infos

    def n_kept(self) -> int:
        return sum(len(task.infos) for task in self.tasks)

    def outcome(self, stopped_by: str | None) -> Outcome:
        begun = [task for task in self.tasks if task.infos]
        best = min(begun, key=lambda task: task.state.objective)
        posterior = self.inference.posterior(best.rng, best.state, self.model, self._data)
        posterior.row_digests = row_digests(self.job.X)
        words = f"Interrupted: kept the best of {len(begun)} restarts." if stopped_by == "interrupt" else ""
        return Outcome(self.about, posterior, self._history(begun), stopped_by, words=words)

    def _history(self, restarts: list[Task]) -> dict[str, np.ndarray]:
        """The objective and the number of features by (restart, pass), the last value repeated, and how each ended."""
        longest = max(len(task.infos) for task in restarts)

        def padded(name: str) -> np.ndarray:
            values = [[getattr(info, name) for info in task.infos] for task in restarts]
            return np.array([mine + mine[-1:] * (longest - len(mine)) for mine in values])

        return {
            "objective": padded("objective"),
            "n_features": padded("n_features"),
            "n_passes": np.array([len(task.infos) - 1 for task in restarts]),
            "settled": np.array([task.infos[-1].settled for task in restarts]),
        } | {name: np.array([value]) for name, value in self.inference.remarks(self._data).items()}

    # ---- for the progress

    def n_steps(self) -> None:
        return None

    def note(self, task: Task, *, thorough: bool) -> str:
        if not task.infos:
            return "at its start"
        info = task.infos[-1]
        ended = ", settled" if info.settled else ""
        return f"K={info.n_features}  objective {info.objective:.6g}{ended}"
