"""The sweep of a linear-Gaussian model with features and weights drawn beside Z, on several threads.

Given both, rows are independent, except that with infinitely many features a column in use must keep an owner. So the
rows are split into two halves at random. While one is updated, the bits of columns that have an owner in the other are
free; columns whose owners, two or more, all lie in this half stay as they are; columns that one row alone has are drawn
anew. What a column is cannot change meanwhile, so that every row of the half is drawn from its conditional.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from thali.kernels.parallel_rows import BLOCK, chunk_sums, count_owners, update_rows
from thali.observations._gaussian import GaussianData, GaussianRows
from thali.threads import in_spans

Array = np.ndarray

_LEAST_ROWS = 8 * BLOCK  # for a thread: with fewer it takes longer to wake it than to draw them
_CHUNK = 1024  # rows whose statistics are one product: sums have the same bits on any number of threads
_MOST_BORN = 2_000  # columns of single rows; where there are more, `room_for` says what is wrong


class Roles(NamedTuple):
    """Columns by what the update of a half may do to them."""

    free: Array  # each row has them or not, as its data say
    fixed: Array  # all owners, two or more, are of this half
    own: Array  # the one owner is of this half


def column_roles(outside: Array, inside: Array) -> Roles:
    """From the numbers of owners in the other half and in this one."""
    # eq: own.column-roles
    alone = outside == 0
    return Roles(*map(np.flatnonzero, (~alone, alone & (inside > 1), alone & (inside == 1))))


class ParallelGaussian:
    """ParallelRows of a model with `units`, `offset`, `feature_var`, `room_for` and `drawn_features`."""

    if TYPE_CHECKING:
        units: Any
        offset: Any
        feature_var: Any
        room_for: Any
        drawn_features: Any

    def parallel_sweep(
        self,
        rng: np.random.Generator,
        data: GaussianData,
        local: GaussianRows,
        draw_weights: Callable[[Array], Array],
        new_rate: float,
        n_threads: int | None = None,
    ) -> GaussianRows:
        Z, A, filled = local.z.copy(), self.drawn_features(rng, local), np.empty_like(local.filled)
        key = rng.integers(2**64, dtype=np.uint64)
        if new_rate == 0:  # finitely many columns, used or not
            counts, none = np.diag(local.gram), np.zeros(0, np.int64)
            roles, rows = Roles(np.arange(len(counts)), none, none), np.arange(data.n_rows)
            self._update(rng, key, data, filled, Z, A, rows, roles, draw_weights(counts), new_rate, n_threads)
            return _statistics(data, Z, filled, n_threads)
        first = np.frombuffer(rng.bytes(data.n_rows), np.uint8) < 128
        for half in (first, ~first):
            owners = np.zeros((2, Z.shape[1]), np.int64)
            count_owners(Z, half, owners)
            roles, rows = column_roles(*owners), np.flatnonzero(half)
            weights = draw_weights(owners.sum(axis=0)[roles.free])
            n_new, born = self._update(rng, key, data, filled, Z, A, rows, roles, weights, new_rate, n_threads)
            kept = np.sort(np.concatenate(roles[:2]))
            if len(born) or len(kept) < len(A):
                A, wide = np.vstack([A[kept], born]), np.zeros((len(Z), len(kept) + len(born)), np.uint8)
                wide[:, : len(kept)] = Z[:, kept]
                wide[np.repeat(rows, n_new), len(kept) + np.arange(len(born))] = 1
                Z = wide
        return _statistics(data, Z, filled, n_threads)

    def _update(
        self,
        rng: np.random.Generator,
        key: np.uint64,
        data: GaussianData,
        filled: Array,
        Z: Array,
        A: Array,
        rows: Array,
        roles: Roles,
        weights: Array,
        new_rate: float,
        n_threads: int | None,
    ) -> tuple[Array, Array]:
        """(how many own columns each row has, their features); Z and the missing cells change in place."""
        noise, scale = self.units
        offset = np.zeros(data.n_dims) if self.offset is None else np.array(self.offset, dtype=float)
        scale = np.ones(data.n_dims) if scale is None else scale
        with np.errstate(divide="ignore"):  # a weight that rounds to 0 or 1
            odds = np.log(weights) - np.log1p(-weights)
        order = rng.permutation(len(odds))  # of the bits, whatever the columns' own order tells about them
        columns, odds = np.concatenate([roles.free[order], roles.fixed]), odds[order]
        A = A[columns]
        gram, features = A @ A.T, np.ascontiguousarray(A.T)
        n_new = np.zeros(len(rows), np.int64)

        def work(span: slice) -> Array:
            return update_rows(
                data.X, offset, scale, data.missing_start, data.missing_dim, filled, Z, rows[span], columns, len(odds),
                roles.own, features, gram, odds, new_rate, noise, float(self.feature_var), key, _MOST_BORN, n_new[span],
            )  # fmt: skip

        born = in_spans(work, len(rows), BLOCK, _LEAST_ROWS, n_threads)
        if n_new.any():
            self.room_for(len(columns) + int(n_new.sum()), data, new_rate)
        return n_new, np.vstack(born)


def _statistics(data: GaussianData, Z: Array, filled: Array, n_threads: int | None) -> GaussianRows:
    """Row variables with z'z and z'X, summed over chunks of rows."""
    n_chunks, K = -(-data.n_rows // _CHUNK), Z.shape[1]
    grams, crosses = np.empty((n_chunks, K, K)), np.empty((n_chunks, K, data.n_dims))

    def work(chunks: slice) -> None:
        chunk_sums(
            data.X, data.missing_start, data.missing_dim, filled, Z, _CHUNK, chunks.start, grams[chunks],
            crosses[chunks],
        )  # fmt: skip

    in_spans(work, n_chunks, 1, 1, n_threads)
    return GaussianRows(Z, np.sum(grams, axis=0), np.sum(crosses, axis=0), filled)
