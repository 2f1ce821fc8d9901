"""One restart of an optimiser, from its start until nothing changes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from thali.core.model import Model


class Restart(NamedTuple):
    """How one restart went: its last state, the objective and the number of features after its start and each pass."""

    number: int
    state: Any
    objective: list[float]
    n_features: list[int]
    settled: bool  # rather than out of passes or time


def climb(
    rng: np.random.Generator,
    inference: Any,
    model: Model,
    data: Any,
    number: int,
    is_over: Callable[[], bool],
    tell: Callable[[int, Any], None] = lambda number, state: None,
) -> Restart | None:
    """Restart `number`, which ends after its current pass once the time is over; None if it would begin only then.

    The first one always begins. `tell` hears of the state after each pass.
    """
    if number > 0 and is_over():
        return None
    state = inference.init(rng, model, data, number, is_over)
    objective, n_features = [state.objective], [state.n_features]
    changed = True
    while changed and len(objective) <= inference.max_iter and not is_over():
        state, changed = inference.step(rng, state, model, data)
        drop = objective[-1] - state.objective
        objective.append(state.objective)
        n_features.append(state.n_features)
        tell(number, state)
        changed = changed and drop > inference.tol * abs(objective[-2])
    return Restart(number, state, objective, n_features, not changed)
