"""What a draw keeps of its features, so that rows can be predicted by it, and what it says of new rows."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

Array = np.ndarray

# Names of axes. Ones are those of Z, row by row; a pair is two numbers.
FEATURES, DIMS, ROWS, ONES, PAIR = "features", "dims", "rows", "ones", "pair"
_OF_ROWS = (ROWS, ONES)
Axes = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Codebook:
    """Arrays that say what the features are; each likelihood has its own kind.

    A field with the axis of rows or of ones belongs to the fitted rows and may be None.
    """

    features: Array  # (n_features, n_dims) their means
    counts: Array  # (n_features,) how many of the fitted rows have each, or are expected to

    axes: ClassVar[Axes] = MappingProxyType({"features": (FEATURES, DIMS), "counts": (FEATURES,)})

    positive: ClassVar[tuple[str, ...]] = ()  # fields whose numbers must be

    def arrays(self) -> dict[str, Array]:
        """The fields that are there, by name."""
        return {name: values for name in self.axes if (values := getattr(self, name)) is not None}

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def summaries(self) -> dict[str, float]:
        """What else of this draw does not depend on labels, for traces and diagnostics."""
        return {}

    def columns(self, columns: Array) -> Self:
        """Of these features only, in this order, without what belongs to the fitted rows."""
        changes = {}
        for name, axes in self.axes.items():
            values = getattr(self, name)
            for axis, what in enumerate(axes):
                values = np.take(values, columns, axis) if what == FEATURES else values
            changes[name] = None if of_rows(axes) else values
        return self.replace(**changes)

    def rows(self, rows: Array) -> Self:
        """Of these fitted rows only; without what belongs to the ones of Z."""
        changes: dict[str, Any] = {}
        for name, axes in self.axes.items():
            values = getattr(self, name)
            if ONES in axes:
                changes[name] = None
            elif ROWS in axes and values is not None:
                changes[name] = np.take(values, rows, axes.index(ROWS))
        return self.replace(**changes)

    def check(self, n_features: int, n_dims: int) -> None:
        """Raise a ValueError unless the arrays are finite and have the shapes of so many features and dims."""
        lengths = {FEATURES: n_features, DIMS: n_dims, PAIR: 2}
        for name, axes in self.axes.items():
            values = getattr(self, name)
            if values is None and of_rows(axes):
                continue
            shape = tuple(lengths.get(what, np.shape(values)[axis]) for axis, what in enumerate(axes))
            if np.shape(values) != shape or values.dtype.kind not in "if" or not np.isfinite(values).all():
                raise ValueError(f"{name} does not fit the rest")
            if name in self.positive and not (values > 0).all():
                raise ValueError(f"{name} is not positive")


def of_rows(axes: tuple[str, ...]) -> bool:
    """Whether a field with these axes belongs to the fitted rows."""
    return any(what in _OF_ROWS for what in axes)


def with_weights(Z: Array, weights: Array) -> Array:
    """Codes of rows with these bits: the weights, row by row, where they are on."""
    codes = np.zeros(Z.shape)
    codes[Z != 0] = weights
    return codes


class Encoded(NamedTuple):
    """What a draw says of new rows, each on its own."""

    presence: Array  # (n_rows, n_features) P(row has feature)
    codes: Array  # (n_rows, n_features) expected codes
    log_density: Array  # (n_rows,)
    draws: Array | None = None  # (n_rows, n_draws, n_features) codes from their posterior, where they are kept
    noise: Array | None = None  # (n_rows, n_draws) variances that go with them, where each row has its own

    def sample(self, rng: np.random.Generator, owner: Array) -> Array:
        """One of the draws of each of the rows `owner`."""
        assert self.draws is not None
        return np.asarray(self.draws[owner, rng.integers(self.draws.shape[1], size=len(owner))])
