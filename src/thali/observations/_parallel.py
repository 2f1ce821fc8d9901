"""The sweep of a linear-Gaussian model with features and weights drawn beside Z, on several threads.

Given both, rows are independent, except that with infinitely many features a column in use must keep an owner. So the
rows are split into two halves at random. While one is updated, the bits of columns that have an owner in the other are
free; columns whose owners, two or more, all lie in this half stay as they are; columns that one row alone has are drawn
anew. What a column is cannot change meanwhile, so that every row of the half is drawn from its conditional.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from thali.kernels.parallel_rows import BLOCK, update_rows
from thali.observations._gaussian import GaussianData, GaussianRows
from thali.threads import in_spans

Array = np.ndarray

_MOST_BORN = 2_000  # columns of single rows; where there are more, `room_for` says what is wrong


class Roles(NamedTuple):
    """Columns by what the update of a half may do to them."""

    free: Array  # each row has them or not, as its data say
    fixed: Array  # all owners, two or more, are of this half
    own: Array  # the one owner is of this half


def column_roles(counts: Array, inside: Array, grows: bool) -> Roles:
    """From the numbers of owners, in all and of this half. With finitely many features all columns are free."""
    free = (counts > inside) | (not grows)
    return Roles(*map(np.flatnonzero, (free, ~free & (counts > 1), ~free & (counts == 1))))


class ParallelGaussian:
    """ParallelRows of a model with `units`, `offset`, `feature_var`, `room_for`, `_drawn_features` and `_rows`."""

    if TYPE_CHECKING:
        units: Any
        offset: Any
        feature_var: Any
        room_for: Any
        _drawn_features: Any
        _rows: Any

    def parallel_sweep(
        self,
        rng: np.random.Generator,
        data: GaussianData,
        local: GaussianRows,
        draw_weights: Callable[[Array], Array],
        new_rate: float,
        n_threads: int | None = None,
    ) -> GaussianRows:
        n_rows = data.n_rows
        Z, A, filled = local.z.copy(), self._drawn_features(rng, local), np.empty_like(local.filled)
        key = rng.integers(2**64, dtype=np.uint64)
        grows = new_rate > 0
        in_first = rng.random(n_rows) < 0.5
        for rows in map(np.flatnonzero, (in_first, ~in_first)) if grows else [np.arange(n_rows)]:
            counts, inside = _column_sums(Z), _column_sums(Z[rows]) if grows else 0
            roles = column_roles(counts, inside, grows)
            free = rng.permutation(roles.free)
            columns = np.concatenate([free, roles.fixed])
            with np.errstate(divide="ignore"):  # a weight that rounds to 0 or 1
                weights = draw_weights(counts[free])
                odds = np.log(weights) - np.log1p(-weights)
            n_new, born = self._update(
                data, filled, Z, rows, columns, roles.own, A[columns], odds, new_rate, key, n_threads
            )
            if grows:
                kept = np.sort(columns)
                A, Z = np.vstack([A[kept], born]), np.hstack([Z[:, kept], np.zeros((n_rows, len(born)), np.uint8)])
                Z[np.repeat(rows, n_new), len(kept) + np.arange(len(born))] = 1
        return self._rows(data, Z, filled)

    def _update(
        self,
        data: GaussianData,
        filled: Array,
        Z: Array,
        rows: Array,
        columns: Array,
        own: Array,
        A: Array,
        odds: Array,
        new_rate: float,
        key: np.uint64,
        n_threads: int | None,
    ) -> tuple[Array, Array]:
        """(how many own columns each row has, their features); Z and the missing cells change in place."""
        noise, scale = self.units
        offset = np.zeros(data.n_dims) if self.offset is None else np.asarray(self.offset)
        scale = np.ones(data.n_dims) if scale is None else scale
        gram, features = A @ A.T, np.ascontiguousarray(A.T)
        n_new = np.zeros(len(rows), np.int64)

        def work(span: slice) -> Array:
            return update_rows(
                data.X, offset, scale, data.missing_start, data.missing_dim, filled, Z, rows[span], columns, len(odds),
                own, features, gram, odds, new_rate, noise, float(self.feature_var), key, _MOST_BORN, n_new[span],
            )  # fmt: skip

        born = in_spans(work, len(rows), BLOCK, n_threads)
        self.room_for(len(columns) + int(n_new.sum()), data, new_rate)
        return n_new, np.vstack(born)


def _column_sums(Z: Array) -> Array:
    return Z.sum(axis=0, dtype=np.int64)
