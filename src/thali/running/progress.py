"""Progress of a run on standard error: a bar for each chain on a terminal, a plain line every few seconds elsewhere.

Nothing is shown in the first two seconds, so that quick fits stay silent.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from thali.verdicts.chains import diagnose

_QUIET = 2.0  # seconds before anything is shown
_EVERY = 5.0  # seconds between plain lines, and between two estimates of an effective sample size


def _mode(verbose: bool | None) -> str:
    """Where progress goes: nowhere, on bars of a terminal, or in plain lines. 0 is False; None asks for a terminal."""
    terminal = sys.stderr.isatty()
    wanted = terminal if verbose is None else bool(verbose)
    return "off" if not wanted else "bar" if terminal else "lines"


class PassProgress:
    """Passes over the data, or batches of a stream: with `verbose` a line for each; else, on a terminal, one line that
    is written anew."""

    def __init__(self, verbose: bool | None) -> None:
        self._verbose, self._mode = bool(verbose), _mode(verbose)
        self._begin = time.monotonic()
        self._width = 0

    def __enter__(self) -> "PassProgress":
        return self

    def __exit__(self, *_: object) -> None:
        _clean(self._width)

    def __call__(self, words: str) -> None:
        if self._verbose:
            print(words, file=sys.stderr, flush=True)
        elif self._mode == "bar" and time.monotonic() - self._begin >= _QUIET:
            print(f"\r{words:{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(words)


def _clean(width: int) -> None:
    """Leave an empty line behind, where one of this width was written."""
    if width:
        print(f"\r{'':{width}}\r", end="", file=sys.stderr, flush=True)


class RestartProgress:
    """How far the restarts of an optimiser are: a line every few seconds, and with `verbose` one for each at its end.

    Restarts run in threads and only tell it where they are; the main thread writes.
    """

    def __init__(self, n_restarts: int, verbose: bool | None) -> None:
        self._verbose, self._mode, self._n_restarts = bool(verbose), _mode(verbose), n_restarts
        self._begin = self._shown = time.monotonic()
        self._passes = [0] * n_restarts
        self._notes: dict[int, str] = {}
        self._n_ended = self._width = 0

    def passed(self, number: int, state: Any) -> None:
        self._passes[number] += 1
        self._notes[number] = f"K={state.n_features}  objective {state.objective:.6g}"

    def ended(self, number: int, state: Any, *, settled: bool) -> None:
        self._n_ended += 1
        self._notes.pop(number, None)
        if self._verbose:
            how = "settled" if settled else "stopped"
            end = f"{state.n_features} features, {how} after {self._passes[number]} passes"
            print(f"restart {number}: objective {state.objective:.6g}, {end}", file=sys.stderr, flush=True)

    def __call__(self) -> None:
        now = time.monotonic()
        if self._mode == "off" or now - self._begin < _QUIET or now - self._shown < (1.0 if self._width else _EVERY):
            return
        self._shown = now
        notes = [f"restart {i} pass {self._passes[i]}  {note}" for i, note in sorted(self._notes.items())]
        line = f"{self._n_ended}/{self._n_restarts} restarts done  {';  '.join(notes)}"
        if self._mode == "lines":
            print(line, file=sys.stderr, flush=True)
        else:
            print(f"\r{line:{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(line)

    def close(self) -> None:
        """Leave a clean line behind."""
        _clean(self._width)


class Progress:
    """Looks at the chains of a run whenever it is called. `score` gives the held-out score of a draw."""

    def __init__(
        self,
        chains: Sequence[Any],
        inference: Any,
        verbose: bool | None,
        score: Callable[[Any], float] | None = None,
    ) -> None:
        self.chains, self.inference, self.score = chains, inference, score
        self.n_steps = inference.n_warmup + inference.n_draws * inference.thin
        self._mode = _mode(verbose)
        self._begin = self._shown = time.monotonic()
        self._at_begin = sum(len(chain.infos) for chain in chains)
        self._sizes = [""] * len(chains)
        self._bars: Any = None
        self._tasks: list[Any] = []

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self) -> None:
        now = time.monotonic()
        if self._mode == "off" or now - self._begin < _QUIET:
            return
        is_time = now - self._shown > _EVERY
        if is_time:
            self._shown = now
            self._sizes = [self._size(chain) for chain in self.chains]
        if self._mode == "bar":
            self._update_bars()
        elif is_time:
            notes = [f"chain {i} {self._note(i)}" for i in range(len(self.chains))]
            print(f"{self._share(now - self._begin)}  {';  '.join(notes)}", file=sys.stderr, flush=True)

    def _share(self, seconds: float) -> str:
        """How much is done, and the time that the rest will take, once a hundredth tells how fast it goes."""
        done, total = sum(len(chain.infos) for chain in self.chains), len(self.chains) * self.n_steps
        new = done - self._at_begin
        return f"{done / total:4.0%}" + (
            f"  about {seconds * (total - done) / new:.0f} s left" if new > total / 100 else ""
        )

    def _note(self, i: int) -> str:
        infos = self.chains[i].infos
        if not infos:
            return "finding a start"
        return f"K={infos[-1].n_features}  log p {infos[-1].log_joint:.1f}{self._sizes[i]}"

    def _size(self, chain: Any) -> str:
        """Effective number of draws of K so far, and the held-out score of the last one."""
        first, thin = self.inference.n_warmup + self.inference.thin - 1, self.inference.thin
        numbers = np.array([[info.n_features for info in chain.infos[first::thin]]])
        ess = diagnose({"K": numbers})["K"].ess if numbers.size else np.nan
        size = "" if np.isnan(ess) else f"  ESS(K) {ess:.0f}"
        return size if self.score is None or not chain.kept else f"  held-out {self.score(chain.kept[-1]):.3f}{size}"

    def _update_bars(self) -> None:
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
                self._bars.add_task(f"chain {i}", total=self.n_steps, note="") for i in range(len(self.chains))
            ]
            self._bars.start()
        for i, task in enumerate(self._tasks):
            self._bars.update(task, completed=len(self.chains[i].infos), note=self._note(i))
