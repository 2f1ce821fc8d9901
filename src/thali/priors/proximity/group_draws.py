"""Draws of what a chain over the bits of a dependent hierarchical beta process keeps beside them.

Given the bits, the groups that rows follow and the sizes p of features know nothing of the data. The weights p* of
features in groups are drawn for a sweep over the bits, together with the unused features above a slice, and forgotten.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from thali.core.registry import stored

if TYPE_CHECKING:  # which builds on this module
    from thali.priors.proximity.hierarchical import HierarchicalBetaProcess

Array = np.ndarray
Generator = np.random.Generator

LEAST, BELOW_ONE = 1e-300, float(np.nextafter(1.0, 0.0))  # a beta draw can round to an end of (0, 1)
_EXACT = 2_000  # assignments of rows to groups, of which one is drawn from their exact law
_BEGINNING = 20  # sweeps over groups and sizes to begin with, where there are more
_MOST_UNUSED = 2_000  # unused features, expected at the level of a slice


@stored("GroupMarks")
class GroupMarks(NamedTuple):
    """Of the features in use: the groups that rows follow, (n_rows, 1) for all features or (n_rows, n_features), and
    sizes p (n_features,)."""

    groups: Array
    sizes: Array


class GroupSlice(NamedTuple):
    """What a sweep over the bits asks: the features in use, then unused ones whose size is above the level."""

    chances: Array  # (n_kinds, n_columns)
    kinds: Array  # (n_rows,)
    marks: GroupMarks
    level: float


class Urns(NamedTuple):
    """Rows of each group, and those of them that have the feature, (n_features, n_groups)."""

    seen: Array
    held: Array

    @classmethod
    def of(cls, Z: Array, groups: Array, n_groups: int) -> "Urns":
        n_features = Z.shape[1]
        index = (groups + n_groups * np.arange(n_features)).ravel()
        seen = np.bincount(index, minlength=n_groups * n_features)
        held = np.bincount(index, Z.ravel(), minlength=n_groups * n_features)
        shape = n_features, n_groups
        return cls(seen.astype(float).reshape(shape), held.reshape(shape))


def log_urns(p: Array, c1: float, urns: Urns) -> Array:
    """log p(bits of each feature | its size, groups of rows), p* integrated out."""
    k, m = np.nonzero(urns.seen)
    seen, held, size = urns.seen[k, m], urns.held[k, m], p[k]
    a, b = c1 * size, np.maximum(c1 * (1.0 - size), LEAST)
    # eq: own.dhbp-urns
    parts = gammaln(a + held) - gammaln(a) + gammaln(b + (seen - held)) - gammaln(b) + gammaln(c1) - gammaln(c1 + seen)
    return np.bincount(k, parts, minlength=len(p))


# ---- sizes


def draw_sizes(rng: Generator, prior: "HierarchicalBetaProcess", urns: Urns, p: Array) -> Array:
    """Sizes given bits and groups, by a step from p: in each urn the rows that have a feature sit at tables, as in a
    Chinese restaurant, and so do the others."""
    c0, c1 = prior.concentration, prior.group_concentration
    with_it = _draw_tables(rng, c1 * p[:, None], urns.held)
    without = _draw_tables(rng, np.maximum(c1 * (1.0 - p[:, None]), LEAST), urns.seen - urns.held)
    # eq: own.dhbp-size
    return np.clip(rng.beta(with_it, c0 + without), LEAST, BELOW_ONE)


def _draw_tables(rng: Generator, amount: Array, customers: Array) -> Array:
    """Number of tables of each feature, over its urns: customer j + 1 opens one with probability a / (a + j)."""
    k, m = np.nonzero(customers)
    n, a = customers[k, m], np.broadcast_to(amount, customers.shape)[k, m]
    total = np.bincount(k, minlength=len(customers)).astype(float)  # the first of each urn opens one
    j = 1
    while len(k := k[(on := n > j)]):
        n, a = n[on], a[on]
        opened = rng.random(len(k)) * (a + j) < a
        total += np.bincount(k, opened, minlength=len(customers))
        j += 1
    return total


def _exact_size(rng: Generator, prior: "HierarchicalBetaProcess", seen: Array, held: Array) -> float:
    """A size from its law given the urns of one feature: a mixture of beta laws over the numbers of tables."""
    c1 = prior.group_concentration
    with_it, without = _table_weights(held), _table_weights(seen - held)
    s, t = np.arange(len(with_it))[:, None], np.arange(len(without))
    with np.errstate(divide="ignore"):
        log_weights = np.log(with_it)[:, None] + np.log(without) + (s + t) * math.log(c1)
    a, b = np.maximum(s, 1), prior.concentration + t  # no table with it has no weight
    log_weights = log_weights + gammaln(a) + gammaln(b) - gammaln(a + b)
    chances = np.exp(log_weights - log_weights.max()).ravel()
    place = int(rng.choice(len(chances), p=chances / chances.sum()))
    return float(rng.beta(a.ravel()[place // len(t)], b[place % len(t)]))


def _table_weights(customers: Array) -> Array:
    """Coefficients of the product over urns of x (x + 1) ... (x + n - 1): of x^s for s tables."""
    weights = np.ones(1)
    for n in customers:
        for j in range(int(n)):
            weights = np.append(0.0, weights) + j * np.append(weights, 0.0)
    return weights


# ---- groups


def begin_marks(rng: Generator, prior: "HierarchicalBetaProcess", Z: Array) -> GroupMarks:
    """Groups and sizes given bits: from their exact law where there are few rows, else after some sweeps."""
    by_row = prior.mixing == "row"
    if prior.n_assignments <= _EXACT:
        groups = _exact_groups(rng, prior, Z)
        urns = Urns.of(Z, groups, prior.n_groups)
        sizes = [_exact_size(rng, prior, *urn) for urn in zip(*urns, strict=True)]
        return GroupMarks(groups, np.clip(np.array(sizes), LEAST, BELOW_ONE))
    groups = prior.draw_paths(rng, 1 if by_row else Z.shape[1]).T
    marks = GroupMarks(groups, np.clip(Z.mean(axis=0), LEAST, BELOW_ONE))
    for _ in range(_BEGINNING):
        marks = redraw_marks(rng, prior, Z, marks)
    return marks


def _exact_groups(rng: Generator, prior: "HierarchicalBetaProcess", Z: Array) -> Array:
    """Groups given bits, by enumeration."""
    assignments = prior.assignments
    log_prior = np.log(assignments.probability)
    log_rates = [np.log(prior.history_rates(column)) for column in Z.T]
    if prior.mixing == "row":
        log_rates = [sum(log_rates, -prior.total_rates)]
    picked = []
    for given in log_rates:
        chances = np.exp(given + log_prior - (given + log_prior).max())
        picked.append(assignments.groups[rng.choice(len(chances), p=chances / chances.sum())])
    return np.array(picked, dtype=np.int64).reshape(-1, len(Z)).T.copy()


def redraw_marks(rng: Generator, prior: "HierarchicalBetaProcess", Z: Array, marks: GroupMarks) -> GroupMarks:
    """A Gibbs sweep over the groups and one over the sizes, given bits."""
    from thali.kernels.groups import group_draws as kernels  # numba is slow to import

    groups, p, c1, M = marks.groups.copy(), marks.sizes, prior.group_concentration, prior.n_groups
    urns, table = Urns.of(Z, groups, M), prior.group_table
    starts, targets = table.indptr.astype(np.int64), table.indices.astype(np.int64)
    if prior.mixing == "row":
        seen = np.bincount(groups[:, 0], minlength=M).astype(float)
        nodes = prior.void_nodes
        log_none = prior.log_none(seen)
        kernels.row_groups(
            Z, groups[:, 0], seen, urns.held, p, c1, starts, targets, np.log(table.data), prior.mass, log_none, *nodes,
            rng,
        )  # fmt: skip
        urns = urns._replace(seen=np.tile(seen, (len(p), 1)))
    else:
        kernels.feature_groups(Z, groups, urns.seen, urns.held, p, c1, starts, targets, table.data, rng)
    return GroupMarks(groups, draw_sizes(rng, prior, urns, p))


def fits(prior: "HierarchicalBetaProcess", marks: GroupMarks, Z: Array) -> bool:
    """Whether these can be groups and sizes of a chain with these bits."""
    groups, sizes = marks
    width = 1 if prior.mixing == "row" else Z.shape[1]
    if groups.dtype != np.int64 or groups.shape != (len(Z), width):
        return False
    if sizes.dtype != np.float64 or sizes.shape != Z.shape[1:] or not ((sizes >= LEAST) & (sizes <= BELOW_ONE)).all():
        return False
    if groups.size and (groups.min() < 0 or groups.max() >= prior.n_groups):
        return False
    return bool((prior.group_probs[np.arange(len(Z))[:, None], groups] > 0).all())


# ---- what a sweep over the bits asks


def draw_slice(rng: Generator, prior: "HierarchicalBetaProcess", Z: Array, marks: GroupMarks) -> GroupSlice:
    """Weights p* of the features in use and of all unused ones above a level below the smallest size in use."""
    c1, M = prior.group_concentration, prior.n_groups
    # eq: own.dhbp-slice
    level = min(max(rng.random() * marks.sizes.min(initial=1.0), LEAST, _least_level(prior)), BELOW_ONE)
    unused = draw_unused(rng, prior, level, marks.groups)
    p = np.concatenate([marks.sizes, unused.sizes])
    bits = np.hstack([Z, np.zeros((len(Z), len(unused.sizes)), dtype=Z.dtype)])
    by_row = prior.mixing == "row"
    groups = marks.groups if by_row else np.hstack([marks.groups, unused.groups])
    urns = Urns.of(bits, groups, M)
    k, m = np.nonzero(urns.seen)
    held, size = urns.held[k, m], p[k]
    weights = np.full((M, len(p)), 0.5)  # of groups that no row follows, which nobody asks
    # eq: own.dhbp-weights
    a, b = c1 * size, np.maximum(c1 * (1.0 - size), LEAST)
    drawn = rng.beta(np.maximum(a, LEAST) + held, b + (urns.seen[k, m] - held))
    weights[m, k] = np.clip(drawn, LEAST, BELOW_ONE)
    kinds = groups[:, 0].copy() if by_row else np.arange(len(Z))
    chances = weights if by_row else np.take_along_axis(weights, groups, axis=0)
    return GroupSlice(np.ascontiguousarray(chances), kinds, GroupMarks(groups, p), level)


def _least_level(prior: "HierarchicalBetaProcess") -> float:
    """A level above which few enough unused features are expected to hold in memory."""
    log_level = 1.0 - _MOST_UNUSED / prior.mass
    return math.exp(min(max(log_level / prior.concentration, -700.0), 0.0))


def draw_unused(rng: Generator, prior: "HierarchicalBetaProcess", level: float, groups: Array) -> GroupMarks:
    """The features above the level that no row has, in random order: thinned from all above it.

    Their density mass c0 p^-1 q^(c0 - 1), q = 1 - p, is mass c0 (q^(c0 - 1) + q^c0 / p): the first part is drawn by
    inversion, the second from p^-1 and thinned.
    """
    mass, c0 = prior.mass, prior.concentration
    n_first = int(rng.poisson(mass * (1.0 - level) ** c0))
    first = -np.expm1(np.log1p(-level) + np.log1p(-rng.random(n_first)) / c0)
    n_second = int(rng.poisson(-mass * c0 * math.log(level)))
    second = level ** rng.random(n_second)
    second = second[rng.random(n_second) < np.exp(c0 * np.log1p(-np.minimum(second, BELOW_ONE)))]
    p = np.clip(np.concatenate([first, second]), LEAST, BELOW_ONE)
    paths = groups if prior.mixing == "row" else prior.draw_paths(rng, len(p)).T
    urns = Urns.of(np.zeros((len(groups), len(p)), np.uint8), paths, prior.n_groups)
    # eq: own.dhbp-unused
    unused = rng.random(len(p)) < np.exp(log_urns(p, prior.group_concentration, urns))
    return GroupMarks(paths if prior.mixing == "row" else paths[:, unused], p[unused])


def log_joint(prior: "HierarchicalBetaProcess", Z: Array, groups: Array) -> float:
    """log p(Z, groups), sizes integrated out by quadrature.

    If groups are mixed by feature, without the probability that no further feature is in use, which depends on
    neither of them.
    """
    node_p, weights = prior.void_nodes
    node_q = np.maximum(1.0 - node_p, LEAST)
    c1, n_features = prior.group_concentration, Z.shape[1]
    log_rates = np.zeros((n_features, len(node_p)))
    M = prior.n_groups
    seen, held = np.zeros((n_features, M)), np.zeros((n_features, M))
    each = np.arange(n_features)
    for row, bits in zip(np.broadcast_to(groups, Z.shape), Z, strict=True):
        with_it, so_far = held[each, row][:, None], seen[each, row][:, None]
        on = bits[:, None] == 1
        log_rates += np.log(np.where(on, c1 * node_p + with_it, c1 * node_q + so_far - with_it)) - np.log(c1 + so_far)
        seen[each, row] += 1.0
        held[each, row] += bits
    # eq: own.dhbp-history
    total = float(logsumexp(log_rates - np.log(node_p), b=weights, axis=1).sum()) + n_features * math.log(prior.mass)
    total += float(np.log(prior.group_probs[np.arange(len(Z))[:, None], groups]).sum())
    total -= sum(math.lgamma(count + 1) for count in _repeats(Z, groups if groups.shape[1] > 1 else groups[:, :0]))
    if prior.mixing == "row":
        total -= prior.mass * prior.expected_found(groups[:, 0])
    return total


def _repeats(Z: Array, groups: Array) -> list[int]:
    """How often each feature, its bits and groups, is there."""
    marks = np.vstack([Z, groups]) if groups.size else Z
    return np.unique(marks, axis=1, return_counts=True)[1].tolist() if Z.shape[1] else []
