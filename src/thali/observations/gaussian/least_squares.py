"""Least squares of X on Z over the observed cells, dim by dim; dims that the same rows observe share their matrices."""

from typing import NamedTuple, Self

import numpy as np

Array = np.ndarray

_SINGULAR = 1e-10  # relative eigenvalue of Z'Z below which it counts as zero: columns may repeat each other


class Pattern(NamedTuple):
    """Dims that are observed in the same rows."""

    rows: Array  # (n_rows,) 1.0 where observed
    dims: Array


class PointData(NamedTuple):
    """Data as the error sees them: without a fixed offset (or the mean, if it is learned), each dim in its unit.

    A learned offset is a last feature that every row has: it is not in Z, but the last row of the features.
    """

    X: Array  # zero where missing
    seen: Array | None  # 1.0 where observed; None if every cell is
    missing_start: Array
    missing_dim: Array
    patterns: list[Pattern]
    unit: Array  # (n_dims,) by which the data were divided
    offset: Array  # (n_dims,) which was subtracted before
    has_offset: bool  # whether there is a learned one besides

    @classmethod
    def of(cls, X: Array, offset: Array, unit: Array, has_offset: bool) -> Self:
        missing = np.isnan(X)
        clean = np.ascontiguousarray(np.where(missing, 0.0, (X - offset) / unit))
        start = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64)
        kinds, kind = np.unique(~missing, axis=1, return_inverse=True)
        patterns = [Pattern(rows.astype(float), np.flatnonzero(kind.ravel() == g)) for g, rows in enumerate(kinds.T)]
        seen = (~missing).astype(float) if missing.any() else None
        dims = np.nonzero(missing)[1].astype(np.int64)
        return cls(clean, seen, start, dims, patterns, unit, offset, has_offset)

    def dense(self, Z: Array) -> Array:
        """Z as the features need it: with a column for a learned offset."""
        return np.hstack([Z, np.ones((len(Z), int(self.has_offset)))])

    def split(self, features: Array) -> tuple[Array, Array]:
        """(features of which Z knows, X without a learned offset)."""
        if not self.has_offset:
            return features, self.X
        return features[:-1], self._where_seen(self.X - features[-1])

    def residual(self, Z: Array, features: Array) -> Array:
        """X - Z A, zero where missing."""
        return self._where_seen(self.X - self.dense(Z) @ features)

    def _where_seen(self, values: Array) -> Array:
        return values if self.seen is None else values * self.seen


class Statistics:
    """Z'Z of each pattern of missing cells, and Z'X: enough to fit the features and to judge a row or a column.

    Z is here as `PointData.dense` gives it.
    """

    def __init__(self, data: PointData, Z: Array) -> None:
        self.data = data
        dense = data.dense(Z)
        self.cross = dense.T @ data.X
        if data.seen is None:
            self.grams = (dense.T @ dense)[None]
        else:  # all patterns in one product
            one, other = np.triu_indices(dense.shape[1])
            sums = np.stack([p.rows for p in data.patterns]) @ (dense[:, one] * dense[:, other])
            self.grams = np.zeros((len(sums), dense.shape[1], dense.shape[1]))
            self.grams[:, one, other] = self.grams[:, other, one] = sums
        self._inverses: Array | None = None

    def change_row(self, n: int, old: Array, new: Array) -> None:
        """Row n becomes `new`."""
        change = np.outer(new, new) - np.outer(old, old)
        for gram, pattern in zip(self.grams, self.data.patterns, strict=True):
            gram += pattern.rows[n] * change
        self.cross += np.outer(new - old, self.data.X[n])
        self._inverses = None

    @property
    def inverses(self) -> Array:
        """Pseudo-inverses of the matrices Z'Z: whole numbers, but columns may depend on each other."""
        if self._inverses is None:
            self._inverses = _inverse(self.grams)
        return self._inverses

    def features(self) -> Array:
        """(Z'Z)^+ Z'X."""
        result = np.zeros_like(self.cross)
        for inverse, pattern in zip(self.inverses, self.data.patterns, strict=True):
            # eq: BKJ13.feature-update
            result[:, pattern.dims] = inverse @ self.cross[:, pattern.dims]
        return result

    def gain_of_own(self, n: int, z: Array) -> float:
        """By how much the least squared error falls when row n, which is z, gets a feature of its own."""
        gain = 0.0
        for inverse, pattern in zip(self.inverses, self.data.patterns, strict=True):
            if pattern.rows[n]:
                weights = z @ inverse
                leverage = float(weights @ z)
                if leverage < 1.0 - 1e-9:  # else the row is fitted exactly already
                    left = self.data.X[n, pattern.dims] - weights @ self.cross[:, pattern.dims]
                    # eq: own.refit-gain
                    gain += float(left @ left) / (1.0 - leverage)
        return gain

    def worth(self) -> Array:
        """By how much the least squared error rises when each feature is dropped and the others are fitted anew."""
        total = np.zeros(len(self.cross))
        for gram, inverse, pattern in zip(self.grams, self.inverses, self.data.patterns, strict=True):
            needed = np.einsum("kj,jk->k", gram, inverse) > 1.0 - 1e-6  # else the others can do all that it does
            values = inverse @ self.cross[:, pattern.dims]
            size = np.einsum("kd,kd->k", values, values)
            # eq: own.worth-of-feature
            total += np.where(needed, size / np.maximum(np.diag(inverse), 1e-300), 0.0)
        return total


def _inverse(grams: Array) -> Array:
    """Of each matrix; the pseudo-inverse, which takes ten times as long, of those that have none."""
    try:
        result = np.linalg.inv(grams)
        off = np.abs(grams @ result - np.eye(grams.shape[1])).max(axis=(1, 2), initial=0.0)
    except np.linalg.LinAlgError:
        result, off = np.empty_like(grams), np.full(len(grams), np.inf)
    singular = ~(off < 1e-8)
    if singular.any():
        result[singular] = np.linalg.pinv(grams[singular], rcond=_SINGULAR, hermitian=True)
    return result
