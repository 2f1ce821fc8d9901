"""Gibbs sweep over the links of all features, for X = Z A + noise with A integrated out.

A new link of row i moves all rows whose links lead to i: with T these rows and R those that reach the owner without
the link, the rows T have the feature if the link goes into R and lack it otherwise, so that there are two likelihoods.
A sweep takes the columns in a fresh random order: the law of what it does depends on no labels.
"""

import math

from thali.kernels._jit import jit
from thali.kernels.bits.column_moves import pick_columns
from thali.kernels.links.column_part import (
    change_rows,
    column_gain,
    forget_change,
    invert,
    put_column,
    take_column,
    weigh_rows,
)
from thali.kernels.links.owner_shift import shift_owner, weigh_links
from thali.kernels.links.trees import draw_ordered, draw_target, link_back, subtree, turn_path, unlink
from thali.kernels.scan import is_heads


def _load_column(columns, tree, k):
    """State and links of column k. Returns its owner, -1 if no row owns it."""
    owner = -1
    for n in range(tree.link.size):
        tree.state[n] = columns.Z[n, k]
        tree.link[n] = columns.links[k, n]
        tree.head[n] = -1
        if tree.link[n] == n:
            owner = n
    return owner


def _sweep_column(graph, columns, part, tree, K, k, owner, visit, noise_var, ridge, rng):
    """Draw all links of column k, which is held apart. Returns how many changed the bits.

    Cost: the number of links that are possible, and the rows that they move times K + D.
    """
    n_rows, n_dims = columns.X.shape
    for i in range(n_rows):
        if tree.state[i] != 1:
            tree.link[i] = draw_target(graph, i, tree.state, False, rng)
    for i in range(n_rows):
        if i != owner:
            link_back(tree, i)
    n_flipped = 0
    for i in range(n_rows):
        if i == owner:
            continue
        was_on = tree.state[i] == 1
        if not was_on:  # perhaps it cannot reach the feature: then its link is left as it was drawn
            reaches = False
            for t in range(graph.starts[i], graph.starts[i + 1]):
                if tree.state[graph.targets[t]] == 1:
                    reaches = True
                    break
            if not reaches:
                continue
        n_moved = subtree(tree, i)
        into = apart = 0.0
        for t in range(graph.starts[i], graph.starts[i + 1]):
            if tree.state[graph.targets[t]] == 1:
                into += graph.probs[t]
            else:
                apart += graph.probs[t]
        on = False
        if into > 0.0:
            sign = -1.0 if was_on else 1.0
            n_touched = weigh_rows(columns, part, K, tree.stack, n_moved, sign, visit)
            gain = column_gain(part.new_forms, n_dims, noise_var, ridge)
            gain -= column_gain(part.forms, n_dims, noise_var, ridge)
            # eq: DD.link-conditional
            on = is_heads(math.log(into / apart) + sign * gain, rng.random())
            if on != was_on:
                change_rows(columns, part, K, k, tree.stack, n_moved, sign, n_touched)
                n_flipped += 1
            forget_change(part, n_touched)
        target = draw_target(graph, i, tree.state, on, rng)
        unlink(tree, i)
        tree.link[i] = target
        link_back(tree, i)
        for t in range(n_moved):
            tree.state[tree.stack[t]] = 1 if on else 0
    for i in range(n_rows):
        columns.links[k, i] = tree.link[i] if tree.state[i] == 1 else -1
    return n_flipped


def _link_sweep(graph, columns, part, tree, K, n_shifts, noise_var, ridge, rng):
    """Draw the links of all features, and with them Z. The arrays of `columns` change in place.

    Where rows link only to themselves and to earlier rows, the links that led to Z are summed out while the first row
    of a feature is moved, n_shifts times, and drawn anew; elsewhere the owner is moved along the links. Returns how
    many draws changed bits, and how many shifts were accepted.
    """
    invert(columns, K, -1, ridge)
    order = pick_columns(K, K, rng)
    n_flipped = 0
    n_shifted = 0
    for n in range(part.known.size):
        part.known[n] = -1
    for place in range(K):
        k = order[place]
        owner = load_column(columns, tree, k)
        take_column(columns, part, K, k, ridge)
        if graph.is_ordered:
            weigh_links(graph, tree)
            for _ in range(n_shifts):
                if shift_owner(graph, columns, part, tree, K, k, place, noise_var, ridge, rng):
                    n_shifted += 1
            owner = draw_ordered(graph, tree, rng)
        else:
            heir = int(rng.random() * part.forms[0])
            n = 0
            while tree.state[n] != 1 or heir > 0:
                heir -= tree.state[n]
                n += 1
            owner = turn_path(graph, tree, owner, n, rng.random())
        n_flipped += sweep_column(graph, columns, part, tree, K, k, owner, place, noise_var, ridge, rng)
        put_column(columns, part, K, k, ridge)
    return n_flipped, n_shifted


load_column = jit(_load_column)
sweep_column = jit(_sweep_column)
link_sweep = jit(_link_sweep)
