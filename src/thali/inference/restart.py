"""One restart of an optimiser, from its start until nothing changes, a pass at a time."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from thali.core.model import Model
from thali.core.registry import stored

Generator = np.random.Generator


@stored("PassRemarks")
class PassInfo(NamedTuple):
    """Where a restart is after its start or a pass."""

    objective: float
    n_features: int
    settled: bool  # rather than on its way


def begin(
    rng: Generator, inference: Any, model: Model, data: Any, number: int, is_over: Callable[[], bool]
) -> tuple[Any, PassInfo]:
    """(the state before the first pass of restart `number`, a remark)."""
    state = inference.init(rng, model, data, number, is_over)
    return state, PassInfo(state.objective, state.n_features, False)


def advance(
    rng: Generator, inference: Any, model: Model, data: Any, state: Any, last: PassInfo
) -> tuple[Any, PassInfo]:
    """(the state after one more pass, a remark)."""
    state, changed = inference.step(rng, state, model, data)
    drop = last.objective - state.objective
    settled = not changed or not drop > inference.tol * abs(last.objective)
    return state, PassInfo(state.objective, state.n_features, settled)


def is_at_end(inference: Any, infos: Sequence[PassInfo]) -> bool:
    """Whether a restart with these remarks has settled, or has no more passes."""
    return infos[-1].settled or len(infos) > inference.max_iter


def climb(rng: Generator, inference: Any, model: Model, data: Any, number: int, is_over: Callable[[], bool]) -> Any:
    """The last state of restart `number`, which ends after its current pass once the time is over."""
    state, info = begin(rng, inference, model, data, number, is_over)
    infos = [info]
    while not is_at_end(inference, infos) and not is_over():
        state, info = advance(rng, inference, model, data, state, infos[-1])
        infos.append(info)
    return state
