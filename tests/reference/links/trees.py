"""Twins of `thali.kernels.links.trees`: the same uniforms, every path followed to its end."""

from itertools import pairwise

import numpy as np


def row_of(graph, i):
    """(targets, probabilities) of row i."""
    part = slice(graph.starts[i], graph.starts[i + 1])
    return graph.targets[part], graph.probs[part]


def pick(graph, i, u):
    first, last = graph.starts[i], graph.starts[i + 1]
    return first + int(np.searchsorted(graph.cumulative[first : last - 1], u, side="right"))


def draw_target(graph, i, state, among, rng):
    targets, probs = row_of(graph, i)
    for _ in range(8):
        t = pick(graph, i, rng.random())
        if (state[graph.targets[t]] == 1) == among and graph.probs[t] > 0:
            return graph.targets[t]
    fits = np.flatnonzero(((state[targets] == 1) == among) & (probs > 0))
    u = rng.random() * probs[fits].sum()
    if not len(fits):
        return -1
    return targets[fits[min(int(np.searchsorted(np.cumsum(probs[fits]), u, side="right")), len(fits) - 1)]]


def draw_ordered(graph, tree, rng):
    has = np.flatnonzero(tree.state == 1)
    tree.link[has[0]] = has[0]
    for i in has[1:]:
        tree.link[i] = draw_target(graph, i, np.isin(np.arange(len(tree.state)), has[has != i]), True, rng)
    return has[0]


def draw_wilson(graph, owner, tree, n_steps, rng):
    """Walks whose circles are erased one by one."""
    has = np.flatnonzero(tree.state == 1)
    inside = {owner}
    tree.link[owner] = owner
    for i in has:
        path = [i]
        while path[-1] not in inside:
            if n_steps == 0:
                return False
            n_steps -= 1
            others = np.isin(np.arange(len(tree.state)), has[has != path[-1]])
            j = draw_target(graph, path[-1], others, True, rng)
            if j < 0:
                return False
            path = path[: path.index(j) + 1] if j in path else [*path, j]
        for a, b in pairwise(path):
            tree.link[a] = b
            inside.add(a)
    return True


def strongest_tree(graph, owner, tree):
    probs = np.zeros((len(tree.state), len(tree.state)))
    for i in range(len(probs)):
        targets, p = row_of(graph, i)
        probs[i, targets] = p
    tree.link[owner], tree.state[owner] = owner, 2
    n_found = 1
    while True:
        inside, left = np.flatnonzero(tree.state == 2), np.flatnonzero(tree.state == 1)
        best = probs[np.ix_(left, inside)]
        if best.size == 0 or best.max() == 0:
            return n_found
        i, j = np.unravel_index(best.argmax(), best.shape)
        tree.link[left[i]], tree.state[left[i]] = inside[j], 2
        n_found += 1


def link_back(tree, i):
    first = tree.head[tree.link[i]]
    tree.before[i], tree.after[i], tree.head[tree.link[i]] = -1, first, i
    if first >= 0:
        tree.before[first] = i


def unlink(tree, i):
    listed = []
    at = tree.head[tree.link[i]]
    while at >= 0:
        listed.append(at)
        at = tree.after[at]
    tree.head[tree.link[i]] = -1
    for row in reversed([row for row in listed if row != i]):
        link_back(tree, row)


def subtree(tree, i):
    """Rows that meet row i when they follow their links; the owner's is to itself."""
    found = [i]
    for row in range(len(tree.link)):
        at = row
        for _ in range(len(tree.link)):
            at = tree.link[at]
            if at == i and row != i:
                found.append(row)
                break
    tree.stack[: len(found)] = found
    tree.state[found] = 2
    return len(found)


def probability(graph, i, j):
    targets, probs = row_of(graph, i)
    return float(probs[targets == j].sum())


def turn_path(graph, tree, owner, heir, u):
    path = [heir]
    while path[-1] != owner:
        path.append(tree.link[path[-1]])
    ratio = graph.totals[owner] / graph.totals[heir]
    for i, j in pairwise(path):
        ratio *= probability(graph, j, i) / probability(graph, i, j)
    if u >= ratio:
        return owner
    for i, j in pairwise(path):
        tree.link[j] = i
    tree.link[heir] = heir
    return heir
