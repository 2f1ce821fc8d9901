"""When a run ends before its last draw: by a signal, by the clock, or because its draws suffice."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.numerics.blas import one_blas_thread
from thali.posteriors.draws import Draws
from thali.verdicts.chains import R_HAT_LIMIT, diagnose


@contextmanager
def on_stop_signal(action: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM call `action`, unless they are ignored. Outside the main thread Python knows no signals."""
    before = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    before[number] = signal.signal(number, lambda *_: action())
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Allowance:
    """The time that a fit may take, from its first moment on."""

    def __init__(self, max_time: float | None) -> None:
        self._max_time, self._begin = max_time, time.monotonic()

    def left(self) -> float | None:
        """Seconds that are left; None without a limit."""
        return None if self._max_time is None else max(self._max_time - (time.monotonic() - self._begin), 1e-3)

    def is_late(self) -> bool:
        """Whether a third of the time is over, which is all that there is for calibration."""
        return self._max_time is not None and time.monotonic() - self._begin > self._max_time / 3


class Watch:
    """Ctrl-C, SIGTERM and the clock, for a run of at most `max_time` seconds; meanwhile BLAS has one thread.

    The products inside a step are small and are spread over threads already.
    """

    def __init__(self, max_time: float | None) -> None:
        self._deadline = float("inf") if max_time is None else time.monotonic() + max_time
        self.interrupted = False
        self._contexts = ExitStack()

    def __enter__(self) -> "Watch":
        self._contexts.enter_context(on_stop_signal(self._interrupt))
        self._contexts.enter_context(one_blas_thread())
        return self

    def __exit__(self, *error: Any) -> None:
        self._contexts.__exit__(*error)

    def _interrupt(self) -> None:
        self.interrupted = True

    def is_over(self) -> bool:
        return self.interrupted or time.monotonic() > self._deadline

    @property
    def reason(self) -> str | None:
        """Why it is over, if it is."""
        if self.interrupted:
            return "interrupt"
        return "max_time" if self.is_over() else None


class Target:
    """Enough draws: every label-free summary has an effective size of `ess`, and the chains agree.

    Only certain lengths are looked at, so that where a run ends depends on its draws and not on the clock.
    """

    def __init__(self, ess: float, model: Model) -> None:
        self._ess, self._model = ess, model
        self._next = 20  # the length to look at
        self._found: int | None = None
        self._seen: list[dict[str, np.ndarray]] = []  # summaries of successive blocks of draws

    def length(self, chains: Sequence[Any]) -> int | None:
        """The number of draws of each chain that suffice, once they have been made."""
        while self._found is None and all(len(chain.kept) >= self._next for chain in chains):
            begin = sum(block["n_features"].shape[1] for block in self._seen)
            block = [chain.kept[begin : self._next] for chain in chains]
            self._seen.append(Draws.from_chains(self._model, block).draws)
            summaries = {name: np.hstack([block[name] for block in self._seen]) for name in self._seen[0]}
            found = diagnose(summaries).values()
            if all(d.ess >= self._ess and d.r_hat <= R_HAT_LIMIT for d in found):
                self._found = self._next
            self._next += max(20, self._next // 10)
        return self._found
