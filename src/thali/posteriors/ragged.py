"""Lists of arrays of different shapes, as two flat arrays: what files and posteriors hold."""

from collections.abc import Iterable
from typing import Self

import numpy as np

Array = np.ndarray


class Ragged:
    """A read-only list of arrays with the same number of axes and dtype. Binary arrays take one bit per cell."""

    def __init__(self, values: Array, shapes: Array) -> None:
        if values.ndim != 1 or shapes.ndim != 2 or shapes.dtype.kind not in "iu":
            raise ValueError("a ragged list has a vector of values and a matrix of shapes")
        self.values, self.shapes = values, shapes
        sizes = shapes.prod(axis=1, dtype=np.int64) if shapes.shape[1] else np.ones(len(shapes), dtype=np.int64)
        self._stored = (sizes + 7) // 8 if self.is_binary else sizes
        self._start = np.concatenate([[0], np.cumsum(self._stored)])

    @classmethod
    def pack(cls, arrays: Iterable[Array]) -> Self:
        arrays = list(arrays)
        shapes = np.array([a.shape for a in arrays], dtype=np.int64).reshape(len(arrays), -1)
        if arrays and arrays[0].dtype == np.uint8:
            return cls(np.concatenate([np.packbits(a.ravel()) for a in arrays]), shapes)
        return cls(np.concatenate([a.ravel() for a in arrays]), shapes)

    @property
    def is_binary(self) -> bool:
        return self.values.dtype == np.uint8

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, i: int) -> Array:
        stored = self.values[self._start[i] : self._start[i + 1]]
        shape = tuple(int(n) for n in self.shapes[i])
        if self.is_binary:
            return np.unpackbits(stored, count=int(np.prod(shape))).reshape(shape)
        return stored.reshape(shape).copy()

    def is_sound(self) -> bool:
        """Whether the flat values are as long as the shapes say."""
        sizes = self.shapes.astype(float).prod(axis=1)  # whole numbers may wrap around
        fits = (self.shapes >= 0).all() and (sizes <= 8.0 * len(self.values)).all()
        stored = np.ceil(sizes / 8) if self.is_binary else sizes
        return bool(fits) and float(stored.sum()) == len(self.values)  # the running sum in `_start` may wrap, too
