"""Progress of a run on standard error: a bar for each task on a terminal, a plain line every few seconds elsewhere.

Nothing is shown in the first two seconds, so that quick fits stay silent.
"""

import sys
import time
from typing import Any

from thali.running.shapes.shape import Shape

_QUIET = 2.0  # seconds before anything is shown
_EVERY = 5.0  # seconds between plain lines, and between two thorough looks


def _mode(verbose: bool | None) -> str:
    """Where progress goes: nowhere, on bars of a terminal, or in plain lines. 0 is False; None asks for a terminal."""
    terminal = sys.stderr.isatty()
    wanted = terminal if verbose is None else bool(verbose)
    return "off" if not wanted else "bar" if terminal else "lines"


class Progress:
    """Looks at the tasks of a run whenever it is called."""

    def __init__(self, shape: Shape, verbose: bool | None) -> None:
        self.shape = shape
        self._mode = _mode(verbose)
        self._begin = self._shown = time.monotonic()
        self._since, self._at_first = self._begin, self._n_made()  # from when on the pace is measured
        self._bars: Any = None
        self._tasks: list[Any] = []

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self) -> None:
        now = time.monotonic()
        if self._mode == "off":
            return
        if not all(map(self.shape.n_made, self.shape.tasks)):  # a start takes as long as many steps, and comes once
            self._since, self._at_first = now, self._n_made()
        if now - self._begin < _QUIET:
            return
        is_time = now - self._shown > _EVERY
        if is_time:
            self._shown = now
        if self._mode == "bar":
            self._update_bars(thorough=is_time)
        elif is_time:
            shape = self.shape
            notes = [f"{shape.word} {task.number} {shape.note(task, thorough=True)}" for task in shape.tasks]
            print(f"{self._share(now - self._since)}{';  '.join(notes)}", file=sys.stderr, flush=True)

    def _n_made(self) -> int:
        return sum(self.shape.n_made(task) for task in self.shape.tasks)

    def _share(self, seconds: float) -> str:
        """How much is done, and the time that is left, once all have begun and a hundredth tells the pace."""
        n_steps = self.shape.n_steps()
        if n_steps is None:
            return ""
        done, total = self._n_made(), len(self.shape.tasks) * n_steps
        new = done - self._at_first
        left = f"  about {seconds * (total - done) / new:.0f} s left" if new > total / 100 else ""
        return f"{done / total:4.0%}{left}  "

    def _update_bars(self, *, thorough: bool) -> None:
        shape = self.shape
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
                self._bars.add_task(f"{shape.word} {task.number}", total=shape.n_steps(), note="")
                for task in shape.tasks
            ]
            self._bars.start()
        for task, bar in zip(shape.tasks, self._tasks, strict=True):
            note = shape.note(task, thorough=thorough)
            self._bars.update(bar, completed=shape.n_made(task), note=note)
