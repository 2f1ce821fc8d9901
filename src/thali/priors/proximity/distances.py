"""Distances between rows in four forms, and the proximities f(d_ij) that a decay makes of them.

A square array, times, coordinates with a metric, or a sparse matrix in which what is absent is infinitely far. Infinite
distances are allowed (such rows never link); the distance of a row from itself is zero.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from thali.core.registry import stored
from thali.core.spec import Spec
from thali.data.sparse_input import check_coordinates, check_structure
from thali.errors import InvalidParameterError
from thali.priors.proximity.decays import Decay, as_decay, check_decay

Array = np.ndarray
Pairs = tuple[Array, Array, Array]  # rows i, rows j, distances d_ij
MAX_LINKS = 5 * 10**7  # pairs with positive proximity: about 1 GB of links and their indices
_BLOCK = 2_000_000  # distances looked at together


@stored("Times")
@dataclass(frozen=True, eq=False)
class Times(Spec):
    """d_ij = |times_i - times_j|.

    Parameters
    ----------
    times : array of shape (n_rows,)
        Of each row, in any order.
    """

    times: Any

    def __post_init__(self) -> None:
        times = _numbers("times", self.times)
        if times.ndim != 1 or times.size == 0:
            raise InvalidParameterError(
                f"times must be a list of finite numbers, one per row. Got an array of shape {times.shape}."
            )
        if not np.isfinite(times).all():
            row = int(np.flatnonzero(~np.isfinite(times))[0])
            raise InvalidParameterError(
                f"times must be finite numbers, one per row. Got {times[row]} for row {row} (from 0): fill it in, or "
                "leave such rows out."
            )
        object.__setattr__(self, "times", times)

    @property
    def n_rows(self) -> int:
        return len(self.times)

    @property
    def in_order(self) -> bool:
        return bool((np.diff(self.times) >= 0).all())

    def pairs(self, reach: float) -> Iterator[Pairs]:
        """Neighbours in sorted order: no pair farther apart than `reach` is looked at, but for rounding."""
        order = np.argsort(self.times, kind="stable")
        t = self.times[order]
        slack = reach + 1e-9 * reach + 4 * np.spacing(np.abs(t).max())
        first = np.searchsorted(t, t - slack, side="left")
        last = np.searchsorted(t, t + slack, side="right")
        widths = last - first
        for block in _blocks(widths):
            rows = np.repeat(np.arange(len(t))[block], widths[block])
            steps = np.arange(len(rows)) - np.repeat(np.cumsum(widths[block]) - widths[block], widths[block])
            columns = np.repeat(first[block], widths[block]) + steps
            yield order[rows], order[columns], np.abs(t[rows] - t[columns])


@stored("Coordinates")
@dataclass(frozen=True, eq=False)
class Coordinates(Spec):
    """d_ij = metric(points_i, points_j).

    Parameters
    ----------
    points : array of shape (n_rows, n_coordinates)
        Where each row is.
    metric : str or callable
        "euclidean", "cityblock", "cosine" or another that scipy's `cdist` knows, or a function of two points.
    """

    points: Any
    metric: Any = "euclidean"

    def __post_init__(self) -> None:
        points = _numbers("points", self.points)
        if points.ndim != 2 or 0 in points.shape or not np.isfinite(points).all():
            raise InvalidParameterError(
                f"points must be a matrix of finite numbers, one row per observation. Got shape {points.shape}"
                + (", not all of it finite." if points.ndim == 2 and points.size else ".")
            )
        object.__setattr__(self, "points", points)
        try:
            _cdist(points[:1], points[:1], self.metric)
        except (ValueError, TypeError) as error:
            raise InvalidParameterError(
                f"metric must be one that scipy.spatial.distance.cdist knows, or a function of two points. "
                f"Got {self.metric!r}: {error}"
            ) from error

    def _between(self, some: Array, others: Array) -> Array:
        from scipy.spatial.distance import cdist  # slow to import

        return cdist(some, others, self.metric)

    @property
    def n_rows(self) -> int:
        return len(self.points)

    def pairs(self, reach: float) -> Iterator[Pairs]:
        for block in _blocks(np.full(self.n_rows, self.n_rows)):
            d = _cdist(self.points[block], self.points, self.metric)
            d[np.arange(len(d)), np.arange(self.n_rows)[block]] = 0.0
            if np.isnan(d).any() or (d < 0).any():
                raise InvalidParameterError(f"The metric {self.metric!r} gave a distance that is negative or NaN.")
            yield _near(d, block.start, reach)


@stored("SparseDistances")
@dataclass(frozen=True, eq=False)
class SparseDistances(Spec):
    """The stored distances of a sparse matrix: of row rows[e] from row columns[e]; all others are infinite."""

    n_rows: int
    rows: Any
    columns: Any
    values: Any

    @classmethod
    def from_matrix(cls, matrix: Any) -> Self:
        """Stored zeros are kept, the diagonal is zero whether stored or not."""
        if matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
            raise InvalidParameterError(f"distances must be square, with at least one row. Got shape {matrix.shape}.")
        check_structure(matrix)
        table = sp.coo_array(matrix)
        return cls(
            int(matrix.shape[0]),
            table.row.astype(np.int64),
            table.col.astype(np.int64),
            _numbers("distances", table.data),
        )

    def __post_init__(self) -> None:
        check_coordinates(self.values, (self.rows, self.columns), self.n_rows, self.n_rows)
        _check_values(self.values, self.values[self.rows == self.columns])
        if len(np.unique(self.rows * self.n_rows + self.columns)) < len(self.rows):
            raise InvalidParameterError(
                "distances has two entries for the same pair of rows. Call its .sum_duplicates() if they add up."
            )

    def pairs(self, reach: float) -> Iterator[Pairs]:
        own = np.arange(self.n_rows)
        near = (self.rows != self.columns) & (self.values <= reach) & np.isfinite(self.values)
        yield (
            np.concatenate([own, self.rows[near]]),
            np.concatenate([own, self.columns[near]]),
            np.concatenate([np.zeros(self.n_rows), self.values[near]]),
        )


Distances = Times | Coordinates | SparseDistances | Array


def as_distances(given: Any) -> Distances:
    """What a spec keeps of the distances it was given: one of the forms above, checked."""
    if isinstance(given, Times | Coordinates | SparseDistances):
        return given
    if sp.issparse(given):
        return SparseDistances.from_matrix(given)
    d = _numbers("distances", given)
    if d.ndim != 2 or d.shape[0] != d.shape[1] or d.size == 0:
        raise InvalidParameterError(
            f"distances must be square, with as many rows as the data. Got shape {d.shape}; for times or points use "
            ".from_times or .from_coordinates."
        )
    _check_values(d, np.diagonal(d))
    return d


def check_proximity(distances: Any, decay: Any, sequential: bool) -> tuple[Distances, Decay]:
    """Both as a spec keeps them, or a clear error."""
    if distances is None:
        raise InvalidParameterError(
            "distances must be given: a square array, a scipy.sparse matrix, Times(times) or Coordinates(points)."
        )
    distances, decay = as_distances(distances), as_decay(decay)
    if sequential and isinstance(distances, Times) and not distances.in_order:
        raise InvalidParameterError(
            "With sequential=True rows link only to earlier ones, so times must not fall from one row to the next. "
            "Sort the rows of the data by time, or use sequential=False."
        )
    if not isinstance(decay, Spec):  # a function: it is tried on all the distances, together
        found = [np.unique(d) for _, _, d in near_pairs(distances, getattr(decay, "reach", math.inf))]
        check_decay(decay, np.concatenate(found))
    return distances, decay


def distances_between(new: Any, known: Distances) -> Array:
    """Distances of new rows from known ones, (n_new, n_known): of Times, of Coordinates, or these distances."""
    if isinstance(new, Times) and isinstance(known, Times):
        return np.abs(new.times[:, None] - known.times)
    if isinstance(new, Coordinates) and isinstance(known, Coordinates):
        if new.points.shape[1] != known.points.shape[1]:
            raise InvalidParameterError(
                f"coordinates must have as many columns as those of the fitted rows, {known.points.shape[1]}. "
                f"Got {new.points.shape[1]}."
            )
        return _cdist(new.points, known.points, known.metric)
    if isinstance(new, Times | Coordinates):
        raise InvalidParameterError(
            f"The fitted rows have {_WORDS.get(type(known), 'distances')}, so new rows must have them, too. Got "
            f"{_WORDS[type(new)]}; or give distances from each new row to each fitted one."
        )
    d, n_known = _numbers("distances", new), n_rows(known)
    if d.ndim != 2 or d.shape[1] != n_known:
        raise InvalidParameterError(
            f"distances of new rows must have a column for each of the {n_known} fitted rows. Got shape {d.shape}."
        )
    _check_values(d, np.zeros(0))
    return d


_WORDS = {Times: "times", Coordinates: "coordinates"}


def n_rows(distances: Distances) -> int:
    return len(distances) if isinstance(distances, np.ndarray) else distances.n_rows


def near_pairs(distances: Distances, reach: float) -> Iterator[Pairs]:
    """Every pair (i, j) at a finite distance of at most `reach`, in blocks; perhaps some that are farther apart."""
    if not isinstance(distances, np.ndarray):
        yield from distances.pairs(reach)
        return
    for block in _blocks(np.full(len(distances), len(distances))):
        yield _near(distances[block], block.start, reach)


def proximities(distances: Distances, decay: Decay, sequential: bool) -> sp.csr_array:
    """f(d_ij) where it is positive; with `sequential` only for j <= i."""
    return _gathered(distances, decay, getattr(decay, "reach", math.inf), sequential)


def finite_distances(distances: Distances, sequential: bool) -> sp.csr_array:
    """1 + d_ij where d_ij is finite, as `proximities` has them: for a decay whose parameters change."""
    return _gathered(distances, lambda d: 1.0 + d, math.inf, sequential)


def _gathered(distances: Distances, value: Decay, reach: float, sequential: bool) -> sp.csr_array:
    """value(d_ij) where it is positive."""
    parts: list[Pairs] = []
    n_links = 0
    for i, j, d in near_pairs(distances, reach):
        f = np.asarray(value(d), dtype=float)
        keep = (f > 0) & (j <= i) if sequential else f > 0
        parts.append((i[keep], j[keep], f[keep]))
        n_links += len(parts[-1][0])
        if n_links > MAX_LINKS:
            raise InvalidParameterError(
                f"More than {MAX_LINKS} pairs of rows are near each other, too many to keep. Use a decay with a "
                "shorter reach (such as WindowDecay), or a sparse matrix of the distances that matter."
            )
    i, j, f = (np.concatenate(part) for part in zip(*parts, strict=True))
    size = n_rows(distances)
    table = sp.csr_array((f, (i.astype(np.int64), j.astype(np.int64))), shape=(size, size))
    table.sort_indices()
    return table


def _cdist(points: Array, others: Array, metric: Any) -> Array:
    from scipy.spatial.distance import cdist  # slow to import

    return cdist(points, others, metric)


def _near(d: Array, first_row: int, reach: float) -> Pairs:
    i, j = np.nonzero((d <= reach) & (d < np.inf))
    return i + first_row, j, d[i, j]


def _blocks(widths: Array) -> Iterator[slice]:
    """Consecutive rows with about _BLOCK distances together."""
    block_of = np.cumsum(widths) // _BLOCK
    edges = np.flatnonzero(np.diff(block_of)) + 1
    for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(widths)], strict=True):
        yield slice(start, stop)


def _numbers(name: str, given: Any) -> Array:
    """A float array; one that is given as such stays the same object."""
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        array = np.empty(0, dtype=object)
    if array.dtype.kind in "mM":
        raise InvalidParameterError(
            f"{name} must be numbers, whose unit is that of the decay. Got dates: count, for example, the days, "
            "(dates - dates[0]) / np.timedelta64(1, 'D')."
        )
    if array.dtype.kind not in "buif":
        raise InvalidParameterError(f"{name} must be an array of numbers. Got {type(given).__name__}.")
    return array if array.dtype == float else array.astype(float)


def _check_values(values: Array, own: Array) -> None:
    bad = np.isnan(values) | (values < 0)
    if bad.any():
        raise InvalidParameterError(
            f"distances must be zero or more (inf for rows that never link). Got {values[bad][0]}."
        )
    if (own != 0).any():
        raise InvalidParameterError(
            f"The distance of a row from itself must be 0. Got {own[own != 0][0]} on the diagonal of distances."
        )
