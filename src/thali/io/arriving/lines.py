"""Whole lines from pieces of bytes that end anywhere, with their numbers. What is kept of a line is bounded."""

from typing import NamedTuple

__all__ = ["Lines", "NoLine", "WholeLines"]


class WholeLines(NamedTuple):
    """Some lines, one after the other."""

    text: bytes  # each of them ends in a newline
    first: int  # number of the first of them, from 1


class NoLine(NamedTuple):
    """A line that is not kept, since it is too long, or one that has no end."""

    number: int
    text: bytes  # of a line without end, as much as there is
    length: int  # bytes that came


class Lines:
    """Cuts what is fed to it."""

    def __init__(self, longest: int) -> None:
        """longest: bytes of a line; what is longer is not kept."""
        self._longest = longest
        self._next = 1  # number of the line that comes next, or has begun
        self._begun: list[bytes] = []  # the beginning of that line; nothing of one that is too long
        self._length = 0  # of that beginning

    def feed(self, piece: bytes) -> list[WholeLines | NoLine]:
        """The lines that end in this piece; one that is too long is told of when it ends."""
        found: list[WholeLines | NoLine] = []
        end = piece.rfind(b"\n") + 1
        if end:
            first = piece.find(b"\n") + 1
            length = self._length + first
            if length > self._longest:
                found.append(NoLine(self._next, b"", length - 1))
                self._next += 1
                self._begun, whole = [], piece[first:end]
            else:
                whole = b"".join([*self._begun, piece[:end]])
            found += self._checked(whole)
            self._begun, self._length = [], 0
        rest = piece[end:]
        self._length += len(rest)
        if self._length > self._longest:
            self._begun = []
        elif rest:
            self._begun.append(rest)
        return found

    def end(self) -> NoLine | None:
        """The last line, if nothing ended it."""
        if not self._length:
            return None
        last = NoLine(self._next, b"".join(self._begun), self._length)
        self._begun, self._length = [], 0
        return last

    def _checked(self, text: bytes) -> list[WholeLines | NoLine]:
        """Whole lines without those that are too long."""
        found: list[WholeLines | NoLine] = []
        if len(text) > self._longest:  # else none of them can be
            begin = at = 0
            while (end := text.find(b"\n", at) + 1) > 0:
                if end - at > self._longest:
                    if at > begin:
                        found += self._as_they_are(text[begin:at])
                    found.append(NoLine(self._next, b"", end - at - 1))
                    self._next += 1
                    begin = end
                at = end
            text = text[begin:]
        return [*found, *self._as_they_are(text)]

    def _as_they_are(self, text: bytes) -> list[WholeLines | NoLine]:
        if not text:
            return []
        lines = WholeLines(text, self._next)
        self._next += text.count(b"\n")
        return [lines]
