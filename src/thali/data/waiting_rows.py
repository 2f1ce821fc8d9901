"""Rows on their way into a fit that goes on: they wait until a batch is full, so that batches depend on how many rows
came, and not on when, or in which pieces."""

from collections.abc import Iterator

import numpy as np

Array = np.ndarray

MOST = 8192  # rows that are handed over at a time


class WaitingRows:
    """Rows that came and were not handed over yet, each with a tag."""

    def __init__(self, size: int, n_taken: int = 0, *, freely: bool) -> None:
        """size: rows of a batch; the first one sets the scale of the data. Batches end at multiples of it, counted from
        the first row of all; n_taken came before. freely: after the first one, batches of any size are as good."""
        self._size, self._n_taken, self._freely = size, n_taken, freely
        self._X: list[Array] = []
        self._tags: list[Array] = []
        self.n_waiting = 0

    def put(self, X: Array, tags: Array) -> None:
        """More rows."""
        self._X.append(X)
        self._tags.append(tags)
        self.n_waiting += len(X)

    @property
    def any_will_do(self) -> bool:
        """Whether a batch need not be full."""
        return self._freely and self._n_taken > 0

    def full(self) -> Iterator[tuple[Array, Array]]:
        """The batches that are full."""
        while True:
            n = MOST if self.any_will_do else self._size - self._n_taken % self._size
            if self.n_waiting < n:
                return
            yield self._first(n)

    def rest(self) -> Iterator[tuple[Array, Array]]:
        """All rows that wait, in a last batch that may not be full."""
        yield from self.full()
        while self.n_waiting:  # again, if some of the last ones were put back
            yield self._first(self.n_waiting)

    def put_back(self, X: Array, tags: Array, n_handed_over: int) -> None:
        """These rows of the batch that was just handed over were not taken in, nor were the others."""
        self._X.insert(0, X)
        self._tags.insert(0, tags)
        self.n_waiting += len(X)
        self._n_taken -= n_handed_over

    def leave_out(self) -> None:
        """All rows that wait."""
        self._X, self._tags, self.n_waiting = [], [], 0

    def _first(self, n: int) -> tuple[Array, Array]:
        X, tags = np.concatenate(self._X), np.concatenate(self._tags)
        self._X, self._tags = ([X[n:]], [tags[n:]]) if n < len(X) else ([], [])
        self.n_waiting -= n
        self._n_taken += n
        return X[:n], tags[:n]
