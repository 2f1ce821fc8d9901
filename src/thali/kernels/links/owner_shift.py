"""Moves of the first row of a feature, where rows link only to themselves and to earlier rows.

That row owns the feature, so that no link can take the feature from it, or give it to a row before. Here the links are
summed out: with a_in the probability of a link from i to n,

    p(S) = mass / h_first  prod_{i in S, i > first} sum_{j in S, j < i} a_ij  prod_{i not in S} sum_{j not in S} a_ij.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.links.column_part import change_rows, column_gain, forget_change, weigh_rows


def _weigh_links(graph, tree):
    """mass and n_ways of all rows. Cost: the number of links that are possible."""
    for i in range(tree.link.size):
        total = 0.0
        n_ways = 0
        for t in range(graph.starts[i], graph.starts[i + 1]):
            j = graph.targets[t]
            if j != i and tree.state[j] == 1 and graph.probs[t] > 0.0:
                total += graph.probs[t]
                n_ways += 1
        tree.mass[i] = total
        tree.n_ways[i] = n_ways


def _log_shift(graph, tree, row, owner, sign):
    """The change of log p(S) but for the factors of `row`, which gets the feature (1) or loses it (-1), and of `owner`,
    the first of the others that have it. eq: own.dd-history-sequential. Cost: the rows that may link to it."""
    total = 0.0
    for t in range(graph.into_starts[row], graph.into_starts[row + 1]):
        i = graph.into_rows[t]
        p = graph.into_probs[t]
        if i != row and i != owner and p > 0.0:
            if tree.state[i] != 1:
                total += math.log1p(-sign * p / (1.0 - tree.mass[i]))
            elif sign < 0 and tree.n_ways[i] == 1:
                return -np.inf
            else:
                total += math.log1p(sign * p / tree.mass[i])
    return total


def _shift_mass(graph, tree, row, sign):
    """Keep state, mass and n_ways in step with a row that got the feature or lost it."""
    tree.state[row] = 1 if sign > 0 else 0
    for t in range(graph.into_starts[row], graph.into_starts[row + 1]):
        i = graph.into_rows[t]
        if i != row and graph.into_probs[t] > 0.0:
            tree.n_ways[i] += sign
            tree.mass[i] = tree.mass[i] + sign * graph.into_probs[t] if tree.n_ways[i] > 0 else 0.0


def _shift_owner(graph, columns, part, tree, K, k, visit, noise_var, ridge, rng):
    """Metropolis step: the first row with the feature loses it, or one before it gets it. Returns whether it was
    accepted.

    A row before the first is proposed by the first's link to other rows. That probability is a factor of p(S), too, and
    cancels: the ratio for getting it is h_owner / h_row (1 - a_own,own), and the change of the other rows' factors.
    """
    n_rows, n_dims = columns.X.shape
    first = 0
    while tree.state[first] != 1:
        first += 1
    sign = -1 if rng.random() < 0.5 else 1
    row = owner = first
    if sign < 0:
        owner = first + 1
        while owner < n_rows and tree.state[owner] != 1:
            owner += 1
        if owner == n_rows:
            return False
    others = 0.0  # probability that the owner's link leads to another row
    for t in range(graph.starts[owner], graph.starts[owner + 1]):
        if graph.targets[t] != owner:
            others += graph.probs[t]
    if others == 0.0:
        return False
    if sign > 0:
        u = rng.random() * others
        for t in range(graph.starts[owner], graph.starts[owner + 1]):
            if graph.targets[t] != owner and graph.probs[t] > 0.0:
                row = graph.targets[t]
                u -= graph.probs[t]
                if u < 0.0:
                    break
    tree.stack[0] = row
    n_touched = weigh_rows(columns, part, K, tree.stack, 1, float(sign), visit)
    gain = column_gain(part.new_forms, n_dims, noise_var, ridge) - column_gain(part.forms, n_dims, noise_var, ridge)
    # eq: own.dd-owner-shift
    ratio = gain + sign * math.log(graph.totals[owner] / graph.totals[row] * others)
    ratio += log_shift(graph, tree, row, owner, sign)
    accepted = math.log(1.0 - rng.random()) < ratio
    if accepted:
        change_rows(columns, part, K, k, tree.stack, 1, float(sign), n_touched)
        shift_mass(graph, tree, row, sign)
    forget_change(part, n_touched)
    return accepted


weigh_links = jit(_weigh_links)
log_shift = jit(_log_shift)
shift_mass = jit(_shift_mass)
shift_owner = jit(_shift_owner)
