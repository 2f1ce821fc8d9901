"""Twins of `thali.kernels.links.evident_links`: probabilities of whole sets of rows."""

import numpy as np

from reference.links.owner_shift import log_set
from reference.links.trees import draw_ordered, draw_target, row_of, subtree, turn_path


def evident_shift(graph, tree, evidence, rng):
    has = np.flatnonzero(tree.state == 1)
    sign = -1 if rng.random() < 0.5 else 1
    if sign < 0 and len(has) == 1:
        return
    owner = has[1] if sign < 0 else has[0]
    targets, probs = row_of(graph, owner)
    to_others = (targets != owner) & (probs > 0)
    others = probs[to_others].sum()
    if others == 0:
        return
    row = has[0]
    if sign > 0:
        u = rng.random() * others
        row = targets[to_others][min(np.searchsorted(np.cumsum(probs[to_others]), u, "right"), to_others.sum() - 1)]
    changed = tree.state.copy()
    changed[row] = sign > 0
    link = probs[targets == row][0]
    ratio = log_set(graph, changed, ()) - log_set(graph, tree.state, ()) - sign * np.log(link / others)
    ratio += evidence[changed == 1].sum() - evidence[tree.state == 1].sum()
    if np.log(1.0 - rng.random()) < ratio:
        tree.state[row] = sign > 0


def evident_links(graph, bits, links, evidence, tree, n_shifts, rng):
    tree.state[:], tree.link[:], tree.head[:] = bits, links, -1
    if graph.is_ordered:
        for _ in range(n_shifts):
            evident_shift(graph, tree, evidence, rng)
        owner = draw_ordered(graph, tree, rng)
    else:
        has = np.flatnonzero(tree.state == 1)
        owner = int(np.flatnonzero(tree.link == np.arange(len(bits)))[0])
        owner = turn_path(graph, tree, owner, has[int(rng.random() * len(has))], rng.random())
    tree.link[owner] = owner
    for i in np.flatnonzero(tree.state != 1):
        tree.link[i] = draw_target(graph, i, tree.state, False, rng)
    for i in range(len(bits)):
        if i == owner:
            continue
        moved = tree.stack[: subtree(tree, i)].copy()
        targets, probs = row_of(graph, i)
        into = probs[tree.state[targets] == 1].sum()
        on = False
        if into > 0:
            odds = np.log(into / probs[tree.state[targets] != 1].sum()) + evidence[moved].sum()
            on = bool(odds > 40 or (odds > -40 and rng.random() * (1 + np.exp(-odds)) < 1))
        tree.link[i] = draw_target(graph, i, tree.state, on, rng)
        tree.state[moved] = on
    bits[:] = tree.state == 1
    links[:] = np.where(tree.state == 1, tree.link, -1)
