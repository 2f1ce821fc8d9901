"""The loops: one chain as a generator, several chains in threads.

Each chain has its own stream and its own work space, so its bits do not depend on how many threads there are. Threads
suffice because a kernel releases the interpreter lock for a whole sweep; a process would pay seconds to start.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from thali.errors import InvalidParameterError
from thali.model import Model
from thali.posterior import Draw, Draws
from thali.rng import spawn

OnStep = Callable[[int, int, Any], None]  # (chain, iteration, info)


class Result(NamedTuple):
    """What running several chains gives."""

    posterior: Draws
    history: dict[str, np.ndarray]  # (chain, iteration) arrays, warm-up included
    interrupted: bool


def iterate(rng: np.random.Generator, inference: Any, model: Model, data: Any, n_rows: int) -> Iterator[Any]:
    """Yield (state, info) after every step, for ever. Stopping, thinning and storage belong to the consumer."""
    state = inference.init(rng, model, data, n_rows)
    while True:
        state, info = inference.step(rng, state, model, data)
        yield state, info


def resolve_n_jobs(n_jobs: int | None, n_chains: int) -> int:
    """Number of threads: None or -1 for as many as cores and chains allow."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None or n_jobs == -1:
        n_jobs = cores
    if not isinstance(n_jobs, int | np.integer) or isinstance(n_jobs, bool) or n_jobs < 1:
        raise InvalidParameterError(f"n_jobs must be None, -1 or a positive integer. Got {n_jobs!r}.")
    return min(int(n_jobs), n_chains)


def run_chains(
    rng: np.random.Generator,
    inference: Any,
    model: Model,
    X: np.ndarray,
    *,
    n_chains: int,
    n_jobs: int | None = None,
    on_step: OnStep | None = None,
) -> Result:
    """Sample `n_chains` chains. Ctrl-C ends them after the current step and keeps what was drawn."""
    n_jobs = resolve_n_jobs(n_jobs, n_chains)
    stop = threading.Event()
    model = Model(model.prior, model.observation.adapt(X))

    def one(chain: int, stream: np.random.Generator) -> tuple[list[Draw], list[Any]]:
        if stop.is_set():
            return [], []
        data = model.observation.prepare(X)
        kept: list[Draw] = []
        infos: list[Any] = []
        for iteration, (state, info) in enumerate(iterate(stream, inference, model, data, len(X))):
            infos.append(info)
            past = iteration + 1 - inference.n_warmup
            if past > 0 and past % inference.thin == 0:
                kept.append(inference.record(state, info, data))
            if on_step is not None:
                on_step(chain, iteration + 1, info)
            if len(kept) == inference.n_draws or stop.is_set():
                break
        return kept, infos

    interrupted = False
    # one BLAS thread: the products inside a sweep are small, and the bits must not depend on the machine's load
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(n_jobs) as pool:
        futures = [pool.submit(one, i, stream) for i, stream in enumerate(spawn(rng, n_chains))]
        while True:
            try:
                wait(futures, return_when="FIRST_EXCEPTION")
                break
            except KeyboardInterrupt:  # once or twice: the current step is always finished
                interrupted = True
                stop.set()
        stop.set()
        results = [future.result() for future in futures]
    if interrupted:  # chains that had not begun to draw are left out
        results = [(kept, infos) for kept, infos in results if kept]
    if not results:
        raise KeyboardInterrupt("interrupted before the first draw")
    length = min(len(kept) for kept, _ in results)
    steps = min(len(infos) for _, infos in results)
    names = ("log_joint", "n_features")
    history = {name: np.array([[getattr(i, name) for i in infos[:steps]] for _, infos in results]) for name in names}
    return Result(Draws.from_chains(model, [kept[:length] for kept, _ in results]), history, interrupted)
