"""What the runner has to know of an inference: what one step of it is, when it is done, and what it gives."""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from thali.errors import InvalidParameterError
from thali.rng import spawn
from thali.running.stopping import Clock
from thali.storage.fit import About, Outcome
from thali.storage.tasks import Task


class StartGivenUp(Exception):  # noqa: N818 (not an error)
    """Raised within a step: the run is to end, and the task has nothing to show yet."""


class Job(NamedTuple):
    """What is to be done."""

    about: About
    X: Any  # checked; blocks of rows, or batches, for an inference that takes those
    target_ess: float | None = None
    score: Any = None  # gives the held-out score of a draw, for the progress
    given: Any = None  # the model as it was before it was adapted to X


class Shape(ABC):
    """The tasks of one run, from wherever they are."""

    word: ClassVar[str]  # for a task
    turn: ClassVar[float] = math.inf  # seconds for which a task keeps its thread while others wait
    in_step: ClassVar[bool] = False  # whether no task may go further than the others
    share_at_end: ClassVar[float] = 0.0  # of the time, for making an outcome of what the tasks found
    useless: ClassVar[tuple[str, ...]] = ()  # settings that it has no use for,
    why_useless: ClassVar[str] = ""  # and why

    def __init__(self, job: Job, tasks: list[Task]) -> None:
        self.job, self.about, self.tasks = job, job.about, tasks
        self.model, self.inference = job.about.model, job.about.choice.inference

    @classmethod
    def begin(cls, job: Job, rng: np.random.Generator, n_chains: int) -> Self:
        """The tasks before their first step."""
        return cls(job, cls.first_tasks(job, rng, n_chains))

    @classmethod
    def first_tasks(cls, job: Job, rng: np.random.Generator, n_chains: int) -> list[Task]:
        """As many as there are chains, each with a stream of its own."""
        return [Task(number, stream) for number, stream in enumerate(spawn(rng, n_chains))]

    @classmethod
    def refuse(cls, inference: Any, **settings: Any) -> None:
        """An error for a setting that it has no use for."""
        for name, value in settings.items():
            if value is not None and name in cls.useless:
                why = cls.why_useless.format(type(inference).__name__)
                raise InvalidParameterError(f"{name} {why}. Got {value!r}; leave it out.")

    @abstractmethod
    def check(self, task: Task) -> None:
        """A ValueError if the state of the task, which comes from a file, is none that it can have on these data."""

    def prepare(self) -> None:  # noqa: B027 (most have nothing to prepare)
        """Make what all tasks share."""

    @abstractmethod
    def advance(self, task: Task, clock: Clock) -> None:
        """One step."""

    @staticmethod
    def cuts_start(task: Task, clock: Clock) -> bool:
        """Whether the task should take the start that it has found so far, which is then not the one that it would have
        had with more time."""
        task.cut |= clock.ends_starts()
        return task.cut

    @abstractmethod
    def is_done(self, task: Task) -> bool:
        """Whether the task has come to its end."""

    @abstractmethod
    def is_owed(self, task: Task, clock: Clock) -> bool:
        """Whether the task has to go on, though the time is over: there would be no answer without it."""

    @abstractmethod
    def n_kept(self) -> int:
        """How much there is to keep."""

    def has_enough(self) -> bool:
        """Whether the run can end before its tasks are done. Asked in the main thread."""
        return False

    @abstractmethod
    def outcome(self, stopped_by: str | None) -> Outcome:
        """What was found, once the runner has ended."""

    # ---- for the progress

    @abstractmethod
    def n_steps(self) -> int | None:
        """How many steps a task has in all; None if nobody knows."""

    def n_made(self, task: Task) -> int:
        """How many of them were made."""
        return len(task.infos)

    @abstractmethod
    def note(self, task: Task, *, thorough: bool) -> str:
        """Where the task stands, in a few words; more of them when it is asked `thorough`ly, every few seconds."""
