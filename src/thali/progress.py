"""Progress of a run on standard error: bars on a terminal, a plain line every few seconds elsewhere.

Nothing is shown in the first two seconds, so that quick fits stay silent.
"""

import sys
import threading
import time
from typing import Any

_QUIET = 2.0  # seconds before anything is shown
_EVERY = 5.0  # seconds between plain lines


class Progress:
    """Called by several threads as on_step(chain, iteration, info)."""

    def __init__(self, n_chains: int, n_steps: int, verbose: bool | None) -> None:
        self.n_chains, self.n_steps = n_chains, n_steps
        terminal = sys.stderr.isatty()
        self._mode = "off" if verbose is False or (verbose is None and not terminal) else "bar" if terminal else "lines"
        self._begin = self._shown = time.monotonic()
        self._done = [0] * n_chains
        self._lock = threading.Lock()
        self._bars: Any = None
        self._tasks: list[Any] = []

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, chain: int, iteration: int, info: Any) -> None:
        if self._mode == "off":
            return
        self._done[chain] = iteration
        now = time.monotonic()
        if now - self._begin < _QUIET:
            return
        with self._lock:
            if self._mode == "bar":
                self._update_bar(chain, iteration, info)
            elif now - self._shown > _EVERY:
                self._shown = now
                share = sum(self._done) / (self.n_chains * self.n_steps)
                left = (now - self._begin) * (1 - share) / max(share, 1e-9)
                text = f"{share:4.0%}  K={info.n_features}  log p {info.log_joint:.1f}  about {left:.0f} s left"
                print(text, file=sys.stderr, flush=True)

    def _update_bar(self, chain: int, iteration: int, info: Any) -> None:
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._tasks = [
                self._bars.add_task(f"chain {i + 1}", total=self.n_steps, note="") for i in range(self.n_chains)
            ]
            self._bars.start()
        note = f"K={info.n_features}  log p {info.log_joint:.1f}"
        self._bars.update(self._tasks[chain], completed=iteration, note=note)
