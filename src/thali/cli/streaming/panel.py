"""How a stream stands: a few lines that are written anew on a terminal; plain messages elsewhere."""

import sys
import time
from collections import deque
from typing import Any, NamedTuple

from thali.cli.console import count, say

_EVERY = 0.2  # seconds between two looks
_SHOWN = 5  # last events


class Status(NamedTuple):
    """Where a stream is."""

    n_rows: int  # seen, of all runs
    n_new: int  # in this one
    n_bad: int
    n_features: int | None
    n_waiting: int
    saved: int | None  # rows of the last checkpoint


class Panel:
    """Talks on standard error; `quiet` leaves warnings and bad rows."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live: Any = None
        self._begin = self._shown = time.monotonic()
        self._events: deque[str] = deque(maxlen=_SHOWN)
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> "Panel":
        if self._is_terminal and not self._quiet:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str, *, style: str | None = None, talk: bool = False) -> None:
        """One message above the panel; `talk` is left out if it is to be quiet."""
        if talk and self._quiet:
            return
        if self._live is None:
            say(text, style=style)
        else:
            self._live.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True, emoji=False)

    def note(self, event: str) -> None:
        """An event, which is shown for a while."""
        self._events.append(event)

    def show(self, status: Status) -> None:
        """Unless it was just shown."""
        now = time.monotonic()
        if self._live is None or now - self._shown < _EVERY:
            return
        from rich.text import Text

        self._shown = now
        rate = status.n_new / (now - self._begin)
        found = "no features yet" if status.n_features is None else count(status.n_features, "feature")
        saved = "" if status.saved is None else f"   saved at row {status.saved:,}".replace(",", " ")
        lines = [
            f"{count(status.n_rows, 'row')}   {rate:.0f} a second   {count(status.n_waiting, 'row')} waiting",
            f"{found}   {count(status.n_bad, 'bad row')}{saved}",
            *self._events,
        ]
        self._live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)
