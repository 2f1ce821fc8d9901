"""Twins of `thali.kernels.links.owner_shift`: probabilities of whole sets of rows, links summed out."""

import numpy as np

from reference.links.column_part import change_rows, column_gain, forget_change, weigh_rows
from reference.links.trees import row_of


def weigh_links(graph, tree):
    for i in range(len(tree.state)):
        targets, probs = row_of(graph, i)
        ways = (targets != i) & (tree.state[targets] == 1) & (probs > 0)
        tree.mass[i], tree.n_ways[i] = probs[ways].sum(), ways.sum()


def log_set(graph, state, but):
    """log p(S) without the factors of the rows `but`."""
    total = 0.0
    first = int(np.argmax(state == 1))
    for i in range(len(state)):
        targets, probs = row_of(graph, i)
        into = probs[(state[targets] == 1) & (targets != i)].sum()
        if i in but:
            continue
        if i == first and state[i] == 1:
            total -= np.log(graph.totals[i])
        else:
            with np.errstate(divide="ignore"):
                total += np.log(into if state[i] == 1 else 1 - into)
    return total


def log_shift(graph, tree, row, owner, sign):
    changed = tree.state.copy()
    changed[row] = sign > 0
    return log_set(graph, changed, (row, owner)) - log_set(graph, tree.state, (row, owner))


def shift_mass(graph, tree, row, sign):
    tree.state[row] = sign > 0
    weigh_links(graph, tree)


def shift_owner(graph, columns, part, tree, K, k, visit, noise_var, ridge, rng):
    has = np.flatnonzero(tree.state == 1)
    sign = -1 if rng.random() < 0.5 else 1
    if sign < 0 and len(has) == 1:
        return False
    owner = has[1] if sign < 0 else has[0]
    targets, probs = row_of(graph, owner)
    to_others = (targets != owner) & (probs > 0)
    others = probs[to_others].sum()
    if others == 0:
        return False
    row = has[0]
    if sign > 0:
        u = rng.random() * others
        row = targets[to_others][min(np.searchsorted(np.cumsum(probs[to_others]), u, "right"), to_others.sum() - 1)]
    changed = tree.state.copy()
    changed[row] = sign > 0
    link = probs[targets == row][0]
    ratio = log_set(graph, changed, ()) - log_set(graph, tree.state, ()) - sign * np.log(link / others)
    tree.stack[0] = row
    n_touched = weigh_rows(columns, part, K, tree.stack, 1, float(sign), visit)
    ratio += column_gain(part.new_forms, columns.X.shape[1], noise_var, ridge)
    ratio -= column_gain(part.forms, columns.X.shape[1], noise_var, ridge)
    accepted = np.log(1.0 - rng.random()) < ratio
    if accepted:
        change_rows(columns, part, K, k, tree.stack, 1, float(sign), n_touched)
        shift_mass(graph, tree, row, sign)
    forget_change(part, n_touched)
    return accepted
