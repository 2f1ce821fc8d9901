"""What the kernels of linked features hand to each other."""

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Graph(NamedTuple):
    """Where rows may link to, and with which probabilities.

    Row i links to targets[t] with probability probs[t], starts[i] <= t < starts[i + 1], targets in increasing order;
    `cumulative` are their running sums. into_rows[t], into_starts[j] <= t < into_starts[j + 1], are the rows that may
    link to row j, with probability into_probs[t]. A feature that row i owns has the weight 1 / totals[i]. `is_ordered`
    if rows link only to themselves and to earlier rows.
    """

    starts: Array
    targets: Array
    probs: Array
    cumulative: Array
    into_starts: Array
    into_rows: Array
    into_probs: Array
    totals: Array
    is_ordered: bool


class Columns(NamedTuple):
    """Z with its links and statistics, X standardised. All but X have room for more columns than are in use.

    links[k, n] is the row to which row n links for feature k; n itself if it owns the feature, -1 if it lacks it.
    gram = Z'Z, cross = Z'X, P = (gram + ridge I)^-1 and mu = P cross.
    """

    X: Array
    Z: Array
    links: Array
    gram: Array
    cross: Array
    P: Array
    mu: Array


class Part(NamedTuple):
    """One column z, held apart from the others Z_, whose features have the inverse H^-1 and the mean B.

    u = Z_'z, Pu = H^-1 u, v = (X - Z_ B)'z; forms = (z'z, u'Pu, v'v). The others are the same with some rows
    changed, of which `touched` are the n_touched entries of `delta`, the change of u; dv that of v.
    """

    u: Array
    Pu: Array
    v: Array
    forms: Array
    delta: Array
    touched: Array
    dv: Array
    new_forms: Array
    residual: Array  # rows of X - Z_ B, as far as they are known
    known: Array  # the visit for which a row of it was computed


class Tree(NamedTuple):
    """The links of one feature, both ways, and what is known of its rows."""

    link: Array
    head: Array  # the first row that links to a row, -1 for none
    after: Array  # the next row that links to the same row
    before: Array
    state: Array  # 0 without the feature, 1 with it, 2 a row that is moved now
    stack: Array
    mass: Array  # probability of a link to another row that has the feature
    n_ways: Array  # the number of such rows


def work_space(columns: Columns) -> tuple[Part, Tree]:
    """Room for one column at a time."""
    n_rows, n_dims = columns.X.shape
    capacity = columns.Z.shape[1]
    part = Part(
        np.zeros(capacity), np.zeros(capacity), np.zeros(n_dims), np.zeros(3), np.zeros(capacity),
        np.zeros(capacity, np.int64), np.zeros(n_dims), np.zeros(3), np.zeros((n_rows, n_dims)),
        np.full(n_rows, -1, np.int64),
    )  # fmt: skip
    return part, tree_space(n_rows)


def tree_space(n_rows: int) -> Tree:
    """Room for the links of one feature."""
    link, head, after, before, stack = (np.full(n_rows, -1, np.int64) for _ in range(5))
    state, mass, n_ways = np.zeros(n_rows, np.int8), np.zeros(n_rows), np.zeros(n_rows, np.int64)
    return Tree(link, head, after, before, state, stack, mass, n_ways)
