"""What happens to features in a stream of rows."""

from typing import NamedTuple

from thali.core.registry import stored

KINDS = ("born", "faded", "merged", "drifted")
MOST = 10_000  # that are kept of one call


class Event(NamedTuple):
    """Features have numbers, in order of birth, that are never given again."""

    row: int  # of the stream, from 0
    kind: str  # one of KINDS
    feature: int
    value: float  # born: P(the row has it); faded: its share of the rows; merged: with which; drifted: how far, in sds


@stored("EventNote")
class EventNote(NamedTuple):
    """An event as it is kept."""

    row: int
    kind: int  # of KINDS
    feature: int
    value: float

    def told(self) -> Event:
        return Event(int(self.row), KINDS[int(self.kind)], int(self.feature), float(self.value))


def add_notes(notes: list[EventNote], new: list[EventNote]) -> None:
    """The first `MOST` are kept."""
    notes += new[: max(MOST - len(notes), 0)]


def check_notes(notes: list[EventNote]) -> None:
    """A ValueError unless these, which come from a file, are notes."""
    if len(notes) > MOST or not all(isinstance(note, EventNote) and 0 <= note.kind < len(KINDS) for note in notes):
        raise ValueError("its events are none")
