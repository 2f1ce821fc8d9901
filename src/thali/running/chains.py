"""The loops: one chain as a generator, several chains in threads.

Each chain has its own stream and its own work space, so its bits do not depend on how many threads there are. Threads
suffice because a kernel releases the interpreter lock for a whole sweep; a process would pay seconds to start. Chains
take turns, so that with few threads, too, all of them have draws when a run is stopped.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.errors import InvalidParameterError
from thali.inference.starts.searching_chain import SearchOver
from thali.numerics.blas import one_blas_thread
from thali.numerics.threads import n_cores
from thali.posteriors.base import Draw
from thali.posteriors.draws import Draws
from thali.running.stopping import Target, Watch, on_stop_signal

_TURN = 1.0  # seconds for which a chain keeps its thread while others wait
_LOOK = 0.2  # seconds between two looks of the main thread


class Chain:
    """One chain: its stream, its state, the draws it kept and a remark on every step. A step changes them together."""

    def __init__(
        self, number: int, rng: np.random.Generator, state: Any = None, kept: Sequence[Draw] = (), infos: Any = ()
    ) -> None:
        self.number, self.rng, self.state = number, rng, state
        self.kept, self.infos = list(kept), list(infos)
        self.data: Any = None  # the working form of X, made when the chain begins
        self.steps: Iterator[Any] | None = None
        self.cut = False  # whether the search for a start ended with the time: another run would begin elsewhere


class Result(NamedTuple):
    """What running several chains gives."""

    posterior: Draws
    history: dict[str, np.ndarray]  # (chain, iteration) arrays, warm-up included
    stopped_by: str | None  # "interrupt", "max_time", "target_ess"; None if all draws were made


class _Stopped(Exception):  # noqa: N818 (not an error)
    """Ends the search for a start."""


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


def resolve_n_jobs(n_jobs: int | None, n_chains: int) -> int:
    """Number of threads: None or -1 for as many as cores and chains allow."""
    if n_jobs is None or (isinstance(n_jobs, int | np.integer) and n_jobs == -1):
        n_jobs = n_cores()
    if not isinstance(n_jobs, int | np.integer) or isinstance(n_jobs, bool) or n_jobs < 1:
        raise InvalidParameterError(f"n_jobs must be None, -1 or a positive integer. Got {n_jobs!r}.")
    return min(int(n_jobs), n_chains)


def run_chains(
    chains: Sequence[Chain],
    inference: Any,
    model: Model,
    X: np.ndarray,
    *,
    n_jobs: int | None = None,
    max_time: float | None = None,
    target_ess: float | None = None,
    keep: Callable[[Chain, bool], None] | None = None,
    watch: Sequence[Callable[[], None]] = (),
    patient: bool = False,
) -> Result:
    """Sample until every chain has its draws; `model` is adapted to X.

    Ctrl-C and SIGTERM end the sampling after the current step, so do `max_time` seconds, and `target_ess` as soon as
    the draws are worth that many. What was drawn is kept, of all chains the same number, chains that lag far behind
    left out; if the time is over before any has a draw, the state in which each of them is. A signal before the first
    draw counts as an interruption even if that draw was the last: kernels may have been compiled for a minute.

    A search for a start that the time cuts short is not kept: a run that goes on begins it anew, to the bits of one
    that was never stopped. With `patient` such a search comes to its end, however little time there is: a run that goes
    on gets somewhere each time.

    `keep(chain, is_last)` sees a chain after every step, in the chain's thread, and once more when all have stopped;
    those in `watch` are called a few times a second in this thread, and once at the end.
    """
    n_jobs = resolve_n_jobs(n_jobs, len(chains))
    target = None if target_ess is None else Target(target_ess, model)
    deadline = float("inf") if max_time is None else time.monotonic() + max_time
    turn = _TURN if max_time is None else min(_TURN, max_time / (4 * len(chains)))
    waiting = deque(chains)
    stop: list[str] = []  # reasons; a list, since a signal handler must not wait for a lock
    at_first = sum(len(chain.kept) for chain in chains)

    def interrupt() -> None:
        nothing_yet = sum(len(chain.kept) for chain in chains) == at_first
        stop.append("interrupt at once" if nothing_yet else "interrupt")

    def is_late() -> bool:
        return time.monotonic() > deadline

    def tick(chain: Chain) -> None:
        if stop:
            raise _Stopped
        if is_late() and not patient:
            chain.cut = True
            raise SearchOver

    def has_more(chain: Chain) -> bool:
        late = is_late() and any(chain.infos for chain in chains)  # some state there must be
        return len(chain.kept) < inference.n_draws and not late and not stop

    def take_turn(chain: Chain) -> None:
        if chain.steps is None:
            chain.data = model.observation.engine(ChainRows).prepare(X)
            rng, n_rows = chain.rng, X.shape[0]
            chain.steps = iterate(
                rng, inference, model, chain.data, n_rows, state=chain.state, tick=partial(tick, chain)
            )
        end = time.monotonic() + turn
        while True:
            chain.state, info = next(chain.steps)
            chain.infos.append(info)
            past = len(chain.infos) - inference.n_warmup
            if past > 0 and past % inference.thin == 0:
                chain.kept.append(inference.record(chain.state, info, chain.data))
            more = has_more(chain)
            if keep is not None and not chain.cut:
                keep(chain, not more)
            if not more or time.monotonic() > end:
                return

    def work() -> None:
        while waiting:
            try:
                chain = waiting.popleft()
            except IndexError:  # another thread was quicker
                return
            if has_more(chain):
                with suppress(_Stopped):
                    take_turn(chain)
                waiting.append(chain)

    def look() -> None:
        for watcher in watch:
            watcher()

    with on_stop_signal(interrupt):
        # one BLAS thread: the products inside a sweep are small, and the bits must not depend on the machine's load
        with one_blas_thread(), ThreadPoolExecutor(n_jobs) as pool:
            futures = [pool.submit(work) for _ in range(n_jobs)]
            try:
                while wait(futures, _LOOK).not_done and not any(f.done() and f.exception() for f in futures):
                    look()
                    if target and target.length(chains):
                        break
            finally:
                interrupted = bool(stop)
                stop.append("over")
        for future in futures:
            future.result()
        if keep is not None:
            for chain in chains:
                if not chain.cut:
                    keep(chain, True)
        look()
    length = target.length(chains) if target else None
    if length:
        return _result(chains, inference, model, length, "target_ess")
    if all(len(chain.kept) == inference.n_draws for chain in chains):
        at_once = "interrupt at once" in stop
        return _result(chains, inference, model, inference.n_draws, "interrupt" if at_once else None)
    begun = _most_draws(chains)
    if begun:
        shortest = min(len(chain.kept) for chain in begun)
        return _result(begun, inference, model, shortest, "interrupt" if interrupted else "max_time")
    if interrupted:
        raise KeyboardInterrupt("interrupted before the first draw")
    return _in_warm_up([chain for chain in chains if chain.infos], inference, model, X)


def _most_draws(chains: Sequence[Chain]) -> list[Chain]:
    """Those chains that have most draws together when all are as long as the shortest; those that lag are left out."""
    longest = sorted((len(chain.kept) for chain in chains), reverse=True)
    totals = [n_chains * length for n_chains, length in enumerate(longest, start=1)]
    least = longest[max(range(len(longest)), key=lambda i: (totals[i], i))]
    return [chain for chain in chains if chain.kept and len(chain.kept) >= least]


def _in_warm_up(chains: Sequence[Chain], inference: Any, model: Model, X: np.ndarray) -> Result:
    """Where chains stand that have not begun to draw: better than nothing, and the verdict says what it is."""
    kept = []
    for chain in chains:
        data = chain.data if chain.steps is not None else model.observation.engine(ChainRows).prepare(X)
        kept.append([inference.record(chain.state, chain.infos[-1], data)])
    n_steps = min(len(chain.infos) for chain in chains)
    return Result(Draws.from_chains(model, kept), _history(chains, n_steps), "max_time")


def _result(chains: Sequence[Chain], inference: Any, model: Model, length: int, stopped_by: str | None) -> Result:
    """The first `length` draws of these chains, and the steps that led to them."""
    history = _history(chains, inference.n_warmup + length * inference.thin)
    return Result(Draws.from_chains(model, [chain.kept[:length] for chain in chains]), history, stopped_by)


def _history(chains: Sequence[Chain], n_steps: int) -> dict[str, np.ndarray]:
    """Remarks on the first steps of each chain."""
    return {
        name: np.array([[getattr(info, name) for info in chain.infos[:n_steps]] for chain in chains])
        for name in ("log_joint", "n_features")
    }


def run_stream(
    chains: Sequence[Chain],
    inference: Any,
    model: Model,
    X: np.ndarray,
    *,
    n_jobs: int | None = None,
    max_time: float | None = None,
    watch: Callable[[], None] = lambda: None,
) -> tuple[int, str | None]:
    """Let every chain take in the rows of X: (how many of them, why no more).

    Chains go in step, a block of rows at a time, so that they have seen the same rows when Ctrl-C, SIGTERM or
    `max_time` end it. How rows are blocked depends on the clock, and the result does not depend on it.
    """
    row, size = 0, 4
    at_once = False  # a signal came before the first rows were taken in

    def absorb(chain: Chain, rows: np.ndarray) -> None:
        if chain.state is None:
            chain.state = inference.begin(chain.rng, model, X.shape[1])
        chain.state, infos = inference.absorb(chain.rng, chain.state, model, rows)
        chain.infos += infos

    n_jobs = resolve_n_jobs(n_jobs, len(chains))
    with Watch(max_time) as clock, ThreadPoolExecutor(n_jobs) as pool:
        while row < len(X) and not (row and clock.is_over()):
            begin = time.monotonic()
            futures = [pool.submit(absorb, chain, X[row : row + size]) for chain in chains]
            while wait(futures, _LOOK).not_done:
                watch()
            for future in futures:
                future.result()
            at_once |= row == 0 and clock.interrupted
            row = min(row + size, len(X))
            size = int(np.clip(size * _LOOK / max(time.monotonic() - begin, 1e-6), 1, 4 * size))
        return row, clock.reason if row < len(X) or at_once else None
