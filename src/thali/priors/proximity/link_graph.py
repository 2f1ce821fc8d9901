"""The random links between rows: probabilities of who reaches whom, without the mass and without the data.

Row i links to one row j (perhaps itself) with probability a_ij, for each feature anew. A feature belongs to an owner n,
and row i has it when the links lead from i to n. Rows link once, so a path that meets itself never arrives.
"""

import math
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from thali.kernels.links.layout import Graph

Array = np.ndarray
EXACT_ROWS = 12  # with circles, exact probabilities sum over all sets of rows
_COLUMNS = 256  # histories looked at together


class LinkGraph:
    """Made of proximities f_ij. `totals` are h_i = sum_j f_ij, the row's own proximity included."""

    def __init__(self, proximities: sp.csr_array) -> None:
        self.n_rows = proximities.shape[0]
        # eq: DD.link-probs
        self.totals = np.asarray(proximities.sum(axis=1)).ravel()
        self.probs = sp.csr_array(sp.diags_array(1.0 / self.totals) @ proximities)
        self.probs.sort_indices()
        self._row_of = np.repeat(np.arange(self.n_rows), np.diff(self.probs.indptr))

    @cached_property
    def has_order(self) -> bool:
        """Whether each row links only to itself or to earlier rows, so that there are no circles."""
        return bool((self.probs.indices <= self._row_of).all())

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether f_ij = f_ji, to rounding."""
        f = sp.csr_array(sp.diags_array(self.totals) @ self.probs)
        difference = abs(f - f.T)
        return bool(difference.nnz == 0 or difference.max() <= 1e-12 * f.max())

    @cached_property
    def _keys(self) -> Array:
        """Pairs of rows as single numbers, in increasing order."""
        return self._row_of * self.n_rows + self.probs.indices

    def log_prob_of(self, rows: Array, targets: Array) -> Array:
        """log P(row links to target), of possible links."""
        keys = rows * self.n_rows + targets
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        with np.errstate(divide="ignore"):
            return np.where(self._keys[at] == keys, np.log(self.probs.data[at]), -np.inf)

    @cached_property
    def _to_others(self) -> sp.csr_array:
        """Link probabilities with those to oneself left out."""
        keep = self.probs.indices != self._row_of
        pairs = (self._row_of[keep], self.probs.indices[keep])
        return sp.csr_array((self.probs.data[keep], pairs), shape=self.probs.shape)

    # --- draws ------------------------------------------------------------------------------------

    @cached_property
    def _cumulative(self) -> Array:
        """Running sums of each row's probabilities, in the order of `probs.data`."""
        running = np.concatenate([[0.0], np.cumsum(self.probs.data)])
        starts = self.probs.indptr
        return running[1:] - np.repeat(running[starts[:-1]], np.diff(starts))

    @cached_property
    def for_kernels(self) -> Graph:
        into = self.probs.tocsc()
        whole = [self.probs.indptr, self.probs.indices, into.indptr, into.indices]
        starts, targets, into_starts, into_rows = (part.astype(np.int64) for part in whole)
        return Graph(
            starts, targets, self.probs.data, self._cumulative, into_starts, into_rows, into.data, self.totals,
            self.has_order,
        )  # fmt: skip

    def draw_links(self, rng: np.random.Generator, n_features: int) -> Array:
        """One link of every row for every feature, (n_features, n_rows)."""
        rows = np.arange(self.n_rows)
        # each row's running sums lie in its own unit interval, so one sorted search serves all rows
        at = np.searchsorted(self._cumulative + self._row_of, rows + rng.random((n_features, self.n_rows)), "right")
        starts = self.probs.indptr
        return self.probs.indices[np.clip(at, starts[:-1], starts[1:] - 1)].astype(np.int64)

    def draw_holders(self, rng: np.random.Generator, owners: Array) -> Array:
        """Z of features with these owners; links that cannot lead to an owner are never drawn."""
        from thali.kernels.links.reach import draw_holders  # numba is slow to import

        g = self.for_kernels
        return draw_holders(owners, g.starts, g.targets, g.cumulative, g.into_starts, g.into_rows, rng)

    # --- probabilities of histories ---------------------------------------------------------------

    def log_history_rates(self, Z: Array) -> Array:
        """log sum_n P(exactly these rows have a feature | owner n) / h_n for each column of Z, none of them empty."""
        if self.has_order:
            blocks = [self._log_ordered_rates(Z[:, k : k + _COLUMNS]) for k in range(0, Z.shape[1], _COLUMNS)]
            return np.concatenate(blocks) if blocks else np.zeros(0)
        rates = np.zeros(Z.shape[1])
        for k in range(Z.shape[1]):
            by_owner, log_scale = self.history_by_owner(Z[:, k] == 1)
            rate = float(by_owner @ (1.0 / self.totals))
            rates[k] = math.log(rate) + log_scale if rate > 0 else -math.inf
        return rates

    def _log_ordered_rates(self, Z: Array) -> Array:
        """The owner is the first row that has the feature; each later row has it if it links to one that does."""
        dense = Z.astype(float)
        with np.errstate(divide="ignore"):
            # eq: own.dd-history-sequential
            logs = np.log(np.where(Z == 1, self._to_others @ dense, self.probs @ (1.0 - dense)))
        first, columns = Z.argmax(axis=0), np.arange(Z.shape[1])
        logs[first, columns] = -np.log(self.totals[first])
        return logs.sum(axis=0)

    def history_by_owner(self, has: Array) -> tuple[Array, float]:
        """(p, log_scale): P(exactly the rows in `has` have the feature | owner n) = p[n] exp(log_scale).

        The others link among themselves; the owner's own link is free; the rest of `has` forms a tree into the owner.
        """
        # eq: own.dd-history
        by_owner = np.zeros(self.n_rows)
        by_owner[has], log_trees = tree_weights(self.probs[has][:, has].toarray())
        apart = (self.probs @ (~has).astype(float))[~has]
        return by_owner, log_trees + float(np.log(apart).sum())

    # --- who reaches whom -------------------------------------------------------------------------

    @property
    def is_exact(self) -> bool:
        return self.has_order or self.n_rows <= EXACT_ROWS

    def reach(self) -> Array:
        """P(row i reaches row n), exactly."""
        if self.has_order:
            # eq: DD.reach-sequential
            reach = np.eye(self.n_rows)
            for i in range(self.n_rows):
                targets, probs = self._links_of(i)
                reach[i] += probs @ reach[targets]
            return reach
        reach = np.zeros((self.n_rows, self.n_rows))
        for has in _all_sets(self.n_rows):
            by_owner, log_scale = self.history_by_owner(has)
            reach += np.outer(has, by_owner * math.exp(log_scale))
        return reach

    def shared(self) -> Array:
        """sum_n P(rows i and j both reach n) / h_n, exactly."""
        shared = np.zeros((self.n_rows, self.n_rows))
        if self.has_order:
            for i in range(self.n_rows):
                targets, probs = self._links_of(i)
                # eq: own.dd-shared-sequential
                shared[i, :i] = shared[:i, i] = probs @ shared[targets, :i]
                shared[i, i] = 1.0 / self.totals[i] + probs @ shared[targets, targets]
            return shared
        for has in _all_sets(self.n_rows):
            rate = math.exp(self.log_history_rates(has[:, None].astype(np.uint8))[0])
            shared += rate * np.outer(has, has)
        return shared

    def _links_of(self, i: int) -> tuple[Array, Array]:
        """The other rows that row i may link to, and the probabilities."""
        part = slice(*self._to_others.indptr[i : i + 2])
        return self._to_others.indices[part], self._to_others.data[part]

    def simulated_paths(self, rng: np.random.Generator) -> Array:
        """on_path[i, n] = 1 where row n is on the path from row i, for one draw of all links: i would reach owner n."""
        links = self.draw_links(rng, 1)[0]
        rows = np.arange(self.n_rows)
        on_path = np.eye(self.n_rows, dtype=bool)
        at = links
        while not on_path[rows, at].all():
            on_path[rows, at] = True
            at = links[at]
        return on_path.astype(float)


def tree_weights(a: Array) -> tuple[Array, float]:
    """(w, log_scale): the sum, over the trees in which all links lead to n, of the product of a is w[n] exp(log_scale).

    By the matrix-tree theorem that is the determinant of diag(row sums) - a without row and column n (diagonal of a
    aside). The elimination of Grassmann, Taksar and Heyman finds all of them without a subtraction, so that small
    weights keep their digits and impossible ones are exactly zero. Cost O(len(a)^3).
    """
    root = _common_target(a > 0)
    if root is None:
        return np.zeros(len(a)), -math.inf
    order = np.argsort(np.arange(len(a)) != root, kind="stable")  # then no row loses all its ways out
    a = a[np.ix_(order, order)]
    log_scale = 0.0
    for k in range(len(a) - 1, 0, -1):
        leaving = a[k, :k].sum()
        log_scale += math.log(leaving)
        a[:k, k] /= leaving
        a[:k, :k] += np.outer(a[:k, k], a[k, :k])
    w = np.zeros(len(a))
    w[order[0]] = 1.0
    for k in range(1, len(a)):
        w[order[k]] = w[order[:k]] @ a[:k, k]  # eq: own.dd-history
    return w, log_scale


def _common_target(linked: Array) -> int | None:
    """A row that all others reach, if there is one.

    One row after another that was not yet seen is asked which rows reach it. The one asked when such a target is first
    seen is reached by the target, hence by all: then nothing is left to see, so the last one asked is the answer.
    """
    seen = np.zeros(len(linked), dtype=bool)
    last = 0
    for row in range(len(linked)):
        if not seen[row]:
            seen |= _reaching(row, linked)
            last = row
    return last if _reaching(last, linked).all() else None


def _reaching(row: int, linked: Array) -> Array:
    found = np.arange(len(linked)) == row
    while True:
        grown = found | linked[:, found].any(axis=1)
        if (grown == found).all():
            return found
        found = grown


def _all_sets(n_rows: int) -> Array:
    """Every set of rows but the empty one, as boolean rows."""
    codes = np.arange(1, 2**n_rows)
    return (codes[:, None] >> np.arange(n_rows)) % 2 == 1
