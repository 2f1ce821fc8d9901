"""The loop of an optimiser: restarts in threads, each until nothing changes; the best one is kept.

Each restart has its own stream, so its bits do not depend on how many threads there are.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.errors import InvalidParameterError
from thali.inference.restart import Restart, climb
from thali.running.chains import Result, resolve_n_jobs
from thali.running.progress import RestartProgress
from thali.running.stopping import Watch

_LOOK = 0.2  # seconds between two looks of the main thread: a signal is heard then


def optimise(
    streams: Sequence[np.random.Generator],
    inference: Any,
    model: Model,
    X: np.ndarray,
    *,
    n_jobs: int | None = None,
    max_time: float | None = None,
    verbose: bool | None = None,
) -> Result:
    """Run a restart for each stream; `model` is adapted to X.

    Ctrl-C, SIGTERM and `max_time` end each restart after its current pass; those that have not begun are left out, but
    for the first. The history has the objective and the number of features by (restart,
    pass), the last value repeated, and whether each restart settled.
    """

    at_once: list[bool] = []  # whether a signal came before the end of the first pass of all

    def passed(number: int, state: Any) -> None:
        at_once.append(watch.interrupted)
        progress.passed(number, state)

    def run(number: int) -> Restart | None:
        found = climb(streams[number], inference, model, data, number, watch.is_over, passed)
        if found is not None:
            progress.ended(number, found.state, settled=found.settled)
        return found

    progress = RestartProgress(len(streams), verbose)
    with Watch(max_time) as watch:
        data = inference.prepare(model, X)
        with ThreadPoolExecutor(resolve_n_jobs(n_jobs, len(streams))) as pool:
            futures = [pool.submit(run, number) for number in range(len(streams))]
            while wait(futures, _LOOK).not_done:
                progress()
            progress.close()
        restarts = [found for future in futures if (found := future.result()) is not None]
        best = min(restarts, key=lambda restart: restart.state.objective)
        posterior = inference.posterior(streams[best.number], best.state, model, data)
    cut_short = len(restarts) < len(streams) or not all(restart.settled for restart in restarts)
    return Result(posterior, _history(restarts, inference.remarks(data)), watch.reason if cut_short else None)


def refuse_for_samplers(inference: Any, **settings: Any) -> None:
    """An error for a setting that only samplers have a use for."""
    for name, value in settings.items():
        if value is not None:
            raise InvalidParameterError(
                f"{name} is for samplers and must be None with {type(inference).__name__}. Got {value!r}; leave it out."
            )


def _history(restarts: Sequence[Restart], remarks: dict[str, float]) -> dict[str, np.ndarray]:
    longest = max(len(restart.objective) for restart in restarts)

    def padded(values: list[Any]) -> list[Any]:
        return values + values[-1:] * (longest - len(values))

    return {
        "objective": np.array([padded(restart.objective) for restart in restarts]),
        "n_features": np.array([padded(restart.n_features) for restart in restarts]),
        "n_passes": np.array([len(restart.objective) - 1 for restart in restarts]),
        "settled": np.array([restart.settled for restart in restarts]),
    } | {name: np.array([value]) for name, value in remarks.items()}
