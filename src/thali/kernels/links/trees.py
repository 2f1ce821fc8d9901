"""Draws of the links of one feature given which rows have it.

Rows that lack it link to any row that lacks it, themselves included. Rows that have it form a tree into the owner. If
rows link only to themselves and to earlier rows, the owner is the first, and each later one links to any earlier one
that has it. In general the tree is drawn by Wilson's algorithm, the owner being given.
"""

import numpy as np

from thali.kernels._jit import jit

_TRIES = 8  # of a link from anywhere, before those that fit are looked through


def _pick(graph, i, u):
    """The place in `targets` of a link of row i, by the uniform number u."""
    low = graph.starts[i]
    high = graph.starts[i + 1] - 1
    while low < high:
        middle = (low + high) // 2
        if graph.cumulative[middle] > u:
            high = middle
        else:
            low = middle + 1
    return low


def _draw_target(graph, i, state, among, rng):
    """A link of row i, given that it leads to a row whose state is 1 (`among`) or is not; -1 if there is none."""
    for _ in range(_TRIES):
        t = pick(graph, i, rng.random())
        if (state[graph.targets[t]] == 1) == among and graph.probs[t] > 0.0:
            return graph.targets[t]
    total = 0.0
    for t in range(graph.starts[i], graph.starts[i + 1]):
        if (state[graph.targets[t]] == 1) == among:
            total += graph.probs[t]
    u = rng.random() * total
    found = -1
    for t in range(graph.starts[i], graph.starts[i + 1]):
        if (state[graph.targets[t]] == 1) == among and graph.probs[t] > 0.0:
            found = graph.targets[t]
            u -= graph.probs[t]
            if u < 0.0:
                break
    return found


def _draw_ordered(graph, tree, rng):
    """The owner, and links of all rows that have the feature, where rows link only to earlier ones. eq: own.dd-links"""
    owner = -1
    for i in range(tree.link.size):
        if tree.state[i] == 1:
            if owner < 0:
                owner = i
                tree.link[i] = i
            else:
                tree.state[i] = 2
                tree.link[i] = draw_target(graph, i, tree.state, True, rng)
                tree.state[i] = 1
    return owner


def _draw_wilson(graph, owner, tree, n_steps, rng):
    """Links of all rows that have the feature: a tree into the owner, in proportion to the product of its link
    probabilities (Wilson 1996). eq: own.dd-links

    Walks along random links until they meet the tree; circles are forgotten. Returns whether n_steps were enough. The
    tree does not depend on how many steps it takes, since that is decided by the circles.
    """
    n_rows = tree.link.size
    for i in range(n_rows):
        tree.after[i] = 0  # 1 in the tree
    tree.link[owner] = owner
    tree.after[owner] = 1
    for i in range(n_rows):
        if tree.state[i] != 1:
            continue
        j = i
        while tree.after[j] == 0:
            if n_steps == 0:
                return False
            n_steps -= 1
            tree.state[j] = 2
            tree.link[j] = draw_target(graph, j, tree.state, True, rng)
            tree.state[j] = 1
            if tree.link[j] < 0:
                return False
            j = tree.link[j]
        j = i
        while tree.after[j] == 0:
            tree.after[j] = 1
            j = tree.link[j]
    return True


def _strongest_tree(graph, owner, tree):
    """Links of all rows that have the feature: from the owner outwards, each the most probable one into the tree so
    far. Returns how many rows that is; those that cannot reach the owner stay in state 1, the others get 2."""
    n_rows = tree.link.size
    best = np.zeros(n_rows)
    tree.link[owner] = owner
    tree.state[owner] = 2
    j = owner
    n_found = 1
    while j >= 0:
        for t in range(graph.into_starts[j], graph.into_starts[j + 1]):
            i = graph.into_rows[t]
            if tree.state[i] == 1 and graph.into_probs[t] > best[i]:
                best[i] = graph.into_probs[t]
                tree.link[i] = j
        j = -1
        for i in range(n_rows):
            if tree.state[i] == 1 and best[i] > 0.0 and (j < 0 or best[i] > best[j]):
                j = i
        if j >= 0:
            tree.state[j] = 2
            n_found += 1
    return n_found


def _link_back(tree, i):
    """Enter row i among those that link to its target."""
    j = tree.link[i]
    tree.before[i] = -1
    tree.after[i] = tree.head[j]
    if tree.head[j] >= 0:
        tree.before[tree.head[j]] = i
    tree.head[j] = i


def _unlink(tree, i):
    """Take row i from those that link to its target."""
    if tree.before[i] >= 0:
        tree.after[tree.before[i]] = tree.after[i]
    else:
        tree.head[tree.link[i]] = tree.after[i]
    if tree.after[i] >= 0:
        tree.before[tree.after[i]] = tree.before[i]


def _subtree(tree, i):
    """All rows whose links lead to row i, itself first, into `stack`; the link of row i is cut. Their state is 2 from
    here on. Returns how many there are. eq: DD.subtree. Cost: their number."""
    tree.stack[0] = i
    tree.state[i] = 2
    n = 1
    read = 0
    while read < n:
        j = tree.head[tree.stack[read]]
        read += 1
        while j >= 0:
            if tree.state[j] != 2:  # else it is row i, which closed a circle
                tree.state[j] = 2
                tree.stack[n] = j
                n += 1
            j = tree.after[j]
    return n


def _probability(graph, i, j):
    """That row i links to row j."""
    low = graph.starts[i]
    high = graph.starts[i + 1]
    while low < high:
        middle = (low + high) // 2
        if graph.targets[middle] < j:
            low = middle + 1
        else:
            high = middle
    return graph.probs[low] if low < graph.starts[i + 1] and graph.targets[low] == j else 0.0


def _turn_path(graph, tree, owner, heir, u):
    """Make `heir`, one of the rows that have the feature, its owner, by turning the links on its path around; with the
    Metropolis probability of that, which is one where proximities are symmetric. Returns the owner.

    eq: own.dd-heir. Cost: the length of the path.
    """
    ratio = graph.totals[owner] / graph.totals[heir]
    i = heir
    while i != owner:
        j = tree.link[i]
        ratio *= probability(graph, j, i) / probability(graph, i, j)
        i = j
    if u >= ratio:
        return owner
    i = heir
    target = heir
    while True:
        j = tree.link[i]
        tree.link[i] = target
        if i == owner:
            return heir
        target = i
        i = j


pick = jit(_pick)
draw_target = jit(_draw_target)
draw_ordered = jit(_draw_ordered)
draw_wilson = jit(_draw_wilson)
strongest_tree = jit(_strongest_tree)
link_back = jit(_link_back)
unlink = jit(_unlink)
subtree = jit(_subtree)
probability = jit(_probability)
turn_path = jit(_turn_path)
