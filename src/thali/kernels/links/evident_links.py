"""Draws of the links of one feature given what each row says of having it, all else of the row being given.

Where the features themselves are given, rows know of each other only through links: what a bit does to its row, and so
what a link does to the rows that it moves, is a sum of one number for each of them.
"""

import math

from thali.kernels._jit import jit
from thali.kernels.links.owner_shift import log_shift, shift_mass, weigh_links
from thali.kernels.links.trees import draw_ordered, draw_target, link_back, subtree, turn_path, unlink
from thali.kernels.scan import is_heads


def _evident_shift(graph, tree, evidence, rng):
    """Metropolis step: the first row with the feature loses it, or one before it gets it, as in `owner_shift`."""
    n_rows = evidence.size
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
            return
    others = 0.0  # probability that the owner's link leads to another row
    for t in range(graph.starts[owner], graph.starts[owner + 1]):
        if graph.targets[t] != owner:
            others += graph.probs[t]
    if others == 0.0:
        return
    if sign > 0:
        u = rng.random() * others
        for t in range(graph.starts[owner], graph.starts[owner + 1]):
            if graph.targets[t] != owner and graph.probs[t] > 0.0:
                row = graph.targets[t]
                u -= graph.probs[t]
                if u < 0.0:
                    break
    # as eq: own.dd-owner-shift
    ratio = sign * (evidence[row] + math.log(graph.totals[owner] / graph.totals[row] * others))
    ratio += log_shift(graph, tree, row, owner, sign)
    if math.log(1.0 - rng.random()) < ratio:
        shift_mass(graph, tree, row, sign)


def _evident_links(graph, bits, links, evidence, tree, n_shifts, rng):
    """Draw all links of a feature, and with them its bits; both (N) change in place.

    evidence[n] is log p(row n | it has the feature) - log p(row n | it lacks it); links as in `layout.Columns`.
    Cost: the number of links that are possible, and of rows that they move.
    """
    n_rows = bits.size
    owner = -1
    n_on = 0
    for n in range(n_rows):
        tree.state[n] = bits[n]
        tree.link[n] = links[n]
        tree.head[n] = -1
        n_on += bits[n]
        if links[n] == n:
            owner = n
    if graph.is_ordered:
        weigh_links(graph, tree)
        for _ in range(n_shifts):
            evident_shift(graph, tree, evidence, rng)
        owner = draw_ordered(graph, tree, rng)
    else:
        heir = int(rng.random() * n_on)
        n = 0
        while tree.state[n] != 1 or heir > 0:
            heir -= tree.state[n]
            n += 1
        owner = turn_path(graph, tree, owner, n, rng.random())
    for i in range(n_rows):
        if tree.state[i] != 1:
            tree.link[i] = draw_target(graph, i, tree.state, False, rng)
    for i in range(n_rows):
        if i != owner:
            link_back(tree, i)
    for i in range(n_rows):
        if i == owner:
            continue
        n_moved = subtree(tree, i)
        into = apart = gain = 0.0
        for t in range(graph.starts[i], graph.starts[i + 1]):
            if tree.state[graph.targets[t]] == 1:
                into += graph.probs[t]
            else:
                apart += graph.probs[t]
        for t in range(n_moved):
            gain += evidence[tree.stack[t]]
        # eq: own.dd-evident-link
        on = into > 0.0 and is_heads(math.log(into / apart) + gain, rng.random())
        target = draw_target(graph, i, tree.state, on, rng)
        unlink(tree, i)
        tree.link[i] = target
        link_back(tree, i)
        for t in range(n_moved):
            tree.state[tree.stack[t]] = 1 if on else 0
    for i in range(n_rows):
        bits[i] = 1 if tree.state[i] == 1 else 0
        links[i] = tree.link[i] if tree.state[i] == 1 else -1


evident_shift = jit(_evident_shift)
evident_links = jit(_evident_links)
