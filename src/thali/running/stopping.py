"""When a run ends before its last step: by a signal, by the clock, or because its draws suffice."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.numerics.blas import one_blas_thread
from thali.posteriors.draws import Draws
from thali.verdicts.chains import R_HAT_LIMIT, diagnose

_LONGEST = 10.0  # seconds that are kept for the end


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


class Clock:
    """The time that a fit may take, from its first moment on, and the signals that end it.

    patient: a start that is being looked for is found, however little time there is.
    """

    def __init__(self, max_time: float | None, *, patient: bool = False) -> None:
        self.max_time, self.patient = max_time, patient
        self._begin, self._set_aside = time.monotonic(), 0.0
        self.interrupted = False
        self.at_once = False  # whether the signal came before there was anything to keep
        self.has_ended = False  # by the runner itself

    def _is_past(self, seconds: float) -> bool:
        return self.max_time is not None and time.monotonic() - self._begin > seconds

    def set_aside(self, share: float) -> None:
        """Keep a share of the time, or some seconds, for what has to be done with what was found."""
        self._set_aside = min(share * (self.max_time or 0.0), _LONGEST)

    @property
    def is_late(self) -> bool:
        return self._is_past((self.max_time or 0.0) - self._set_aside)

    def is_late_to_calibrate(self) -> bool:
        """Whether a third of the time is over, which is all that there is for calibration."""
        return self._is_past((self.max_time or 0.0) / 3)

    def is_over(self) -> bool:
        """Whether nothing should be begun that can be left out."""
        return self.interrupted or self.has_ended or self.is_late

    def ends_starts(self) -> bool:
        """Whether a search for a start should end where it has come to."""
        return self.interrupted or self.has_ended or (self.is_late and not self.patient)

    def end(self) -> None:
        """There is enough, or something went wrong elsewhere."""
        self.has_ended = True

    @property
    def reason(self) -> str:
        """Why a run ended that had not come to its end."""
        return "interrupt" if self.interrupted else "max_time"

    @contextmanager
    def listening(self, nothing_yet: Callable[[], bool]) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the run; `nothing_yet()` tells whether there is something to keep by then.

        Meanwhile BLAS has one thread: the products inside a step are small, and the bits must not depend on the load.
        """

        def interrupt() -> None:
            self.at_once |= nothing_yet()
            self.interrupted = True

        with on_stop_signal(interrupt), one_blas_thread():
            yield


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
