"""What a draw keeps of its features, so that rows can be predicted by it, and what it says of new rows."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

Array = np.ndarray

FEATURES, DIMS, ONES = "features", "dims", "ones"  # names of axes; ones are those of Z, row by row
Axes = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Codebook:
    """Arrays that say what the features are; each likelihood has its own kind.

    A field with the axis of ones belongs to the fitted rows and may be None.
    """

    features: Array  # (n_features, n_dims) their means
    counts: Array  # (n_features,) how many of the fitted rows have each, or are expected to

    axes: ClassVar[Axes] = MappingProxyType({"features": (FEATURES, DIMS), "counts": (FEATURES,)})

    def arrays(self) -> dict[str, Array]:
        """The fields that are there, by name."""
        return {name: values for name in self.axes if (values := getattr(self, name)) is not None}

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def columns(self, columns: Array) -> Self:
        """Of these features only, in this order, without what belongs to the fitted rows."""
        changes = {}
        for name, axes in self.axes.items():
            values = getattr(self, name)
            for axis, what in enumerate(axes):
                values = np.take(values, columns, axis) if what == FEATURES else values
            changes[name] = None if ONES in axes else values
        return self.replace(**changes)

    def check(self, n_features: int, n_dims: int) -> None:
        """Raise a ValueError unless the arrays are finite and have the shapes of so many features and dims."""
        lengths = {FEATURES: n_features, DIMS: n_dims}
        for name, axes in self.axes.items():
            values = getattr(self, name)
            if values is None and ONES in axes:
                continue
            shape = tuple(lengths.get(what, np.shape(values)[axis]) for axis, what in enumerate(axes))
            if np.shape(values) != shape or values.dtype.kind not in "if" or not np.isfinite(values).all():
                raise ValueError(f"{name} does not fit the rest")


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

    def sample(self, rng: np.random.Generator, owner: Array) -> Array:
        """One of the draws of each of the rows `owner`."""
        assert self.draws is not None
        return np.asarray(self.draws[owner, rng.integers(self.draws.shape[1], size=len(owner))])
