"""What is kept of a fit that goes on with more rows, in memory and in a file."""

import copy
from typing import Any, NamedTuple

import numpy as np

from thali.core.registry import stored
from thali.data.far_rows import Seen
from thali.data.young_rows import YoungRows
from thali.rng import freeze, thaw
from thali.storage.packing import pack, unpack
from thali.storage.tasks import Task

Array = np.ndarray


class Stream(NamedTuple):
    """Its tasks, which have come to the end of the rows so far, and the range of those rows."""

    tasks: list[Task]
    seen: Seen

    def copied(self) -> "Stream":
        """One that can go on while this one stays as it is; states may change in place."""
        return Stream([copy.deepcopy(task) for task in self.tasks], self.seen)

    def to_file(self, arrays: dict[str, Array]) -> dict[str, Any]:
        """As JSON; the arrays go into `arrays`."""
        forms = []
        for task in self.tasks:
            name = f"stream/{task.number}"
            forms.append(
                {
                    "rng": pack([freeze(task.rng)], f"{name}/rng", arrays),
                    "state": pack([task.state], f"{name}/state", arrays),
                    "infos": pack(task.infos, f"{name}/infos", arrays) if task.infos else {"value": None},
                    "n_infos": len(task.infos),
                }
            )
        return {"tasks": forms, "seen": pack([self.seen], "stream/seen", arrays)}

    @classmethod
    def from_file(cls, form: Any, arrays: dict[str, Array], n_dims: int) -> "Stream":
        """Whether the tasks suit a model is another question. Older versions had other forms, one for each shape."""
        if isinstance(form, list):
            return _filters_of_old(form, arrays)
        if "tasks" not in form:
            return _blocks_of_old(form, arrays, n_dims)
        tasks = [_task(number, one, arrays, int(one["n_infos"])) for number, one in enumerate(form["tasks"])]
        return cls(tasks, _checked_seen(unpack(form["seen"], arrays, 1)[0]))


@stored("BlockStream")
class BlockStream(NamedTuple):
    """The state of a fit by blocks of rows that goes on with batches."""

    state: Any  # the inference's; None before any row
    young: YoungRows | None = None  # all rows so far, as long as they are few
    given: Any = None  # the model as it was before it was adapted to any rows; None once they are many
    n_begun: int = 0  # rows with which the features began
    in_stream: bool = False  # rather than after passes over data that can be read again
    settled: bool = False  # whether those passes ended because nothing changed


@stored("RowStream")
class RowStream(NamedTuple):
    """The state of a stream of rows that are not kept."""

    state: Any  # the inference's
    young: YoungRows | None = None  # all rows so far, as long as they are few and something refers to them
    given: Any = None  # the model as it was before it was adapted to any rows; None once they are many
    n_begun: int = 0  # rows with which it began


@stored("BlockRemarks")
class BlockInfo(NamedTuple):
    """Where a fit by blocks is after a pass or a batch."""

    bound: float
    n_features: int
    n_rows: int  # that the bound is of

    @classmethod
    def of(cls, state: Any) -> "BlockInfo":
        """The remark on a state of the inference."""
        return cls(float(state.bound), int(state.n_features), int(state.n_rows))


def _task(number: int, form: Any, arrays: dict[str, Array], n_infos: int) -> Task:
    state = unpack(form["state"], arrays, 1)[0]
    rng = thaw(unpack(form["rng"], arrays, 1)[0])
    return Task(number, rng, state, infos=unpack(form["infos"], arrays, n_infos))


def _checked_seen(seen: Any) -> Seen:
    if not isinstance(seen, Seen) or any(np.shape(part) != seen.low.shape for part in seen[:3]) or seen.low.ndim != 1:
        raise ValueError("the ranges of its dims are none")
    return seen


def _filters_of_old(forms: list[Any], arrays: dict[str, Array]) -> Stream:
    """A remark on every row, and the rows in the state."""
    tasks = []
    for number, form in enumerate(forms):
        n_rows = unpack(form["state"], arrays, 1)[0].n_rows
        tasks.append(_task(number, form, arrays, int(n_rows)))
    rows = tasks[0].state.X
    return Stream(tasks, Seen.nothing(rows.shape[1]).after(rows))


def _blocks_of_old(form: Any, arrays: dict[str, Array], n_dims: int) -> Stream:
    state = unpack(form["state"], arrays, 1)[0]
    young = given = None
    if form.get("young") is not None:
        given = unpack(form["given"], arrays, 1)[0]
        young = YoungRows.of_old_file(form["young"], arrays)
    stream = BlockStream(
        state, young, given, int(form.get("n_begun", 0)), bool(form["in_stream"]), bool(form.get("settled", False))
    )
    infos = [BlockInfo(float(bound), int(k), int(n)) for bound, k, n in form["trace"]]
    task = Task(0, thaw(unpack(form["rng"], arrays, 1)[0]), stream, infos=infos)
    seen = Seen.nothing(n_dims) if form.get("seen") is None else unpack(form["seen"], arrays, 1)[0]
    return Stream([task], _checked_seen(seen))
