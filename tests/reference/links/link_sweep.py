"""Twins of `thali.kernels.links.link_sweep`: each link by the two likelihoods of all data."""

import numpy as np

from reference.bits.column_moves import pick_columns
from reference.links.column_part import invert, log_likelihood, put_column, take_column
from reference.links.owner_shift import shift_owner, weigh_links
from reference.links.trees import draw_ordered, draw_target, row_of, subtree, turn_path


def load_column(columns, tree, k):
    tree.state[:] = columns.Z[:, k]
    tree.link[:] = columns.links[k]
    tree.head[:] = -1
    owners = np.flatnonzero(tree.link == np.arange(len(tree.link)))
    return int(owners[0]) if len(owners) else -1


def sweep_column(graph, columns, part, tree, K, k, owner, visit, noise_var, ridge, rng):
    n_flipped = 0
    tree.link[owner] = owner
    for i in np.flatnonzero(tree.state != 1):
        tree.link[i] = draw_target(graph, i, tree.state, False, rng)
    for i in range(len(tree.state)):
        was_on = tree.state[i] == 1
        targets, probs = row_of(graph, i)
        if i == owner or not (was_on or (tree.state[targets] == 1).any()):
            continue
        moved = tree.stack[: subtree(tree, i)].copy()
        into, apart = probs[tree.state[targets] == 1].sum(), probs[tree.state[targets] != 1].sum()
        on = False
        if into > 0:
            logs = []
            for bit in (0, 1):
                Z = columns.Z[:, :K].copy()
                Z[moved, k] = bit
                logs.append(log_likelihood(columns.X, Z, noise_var, ridge))
            odds = np.log(into / apart) + logs[1] - logs[0]
            on = bool(odds > 40 or (odds > -40 and rng.random() * (1 + np.exp(-odds)) < 1))
            columns.Z[moved, k] = on
            n_flipped += on != was_on
        tree.link[i] = draw_target(graph, i, tree.state, on, rng)
        tree.state[moved] = on
    columns.links[k] = np.where(tree.state == 1, tree.link, -1)
    z = columns.Z[:, k].astype(float)
    columns.cross[k] = z @ columns.X
    part.u[:K] = z @ columns.Z[:, :K]
    part.u[k], part.forms[0] = 0.0, z.sum()
    return n_flipped


def link_sweep(graph, columns, part, tree, K, n_shifts, noise_var, ridge, rng):
    invert(columns, K, -1, ridge)
    n_flipped = n_shifted = 0
    for k in pick_columns(K, K, rng):
        owner = load_column(columns, tree, k)
        take_column(columns, part, K, k, ridge)
        if graph.is_ordered:
            weigh_links(graph, tree)
            for _ in range(n_shifts):
                n_shifted += shift_owner(graph, columns, part, tree, K, k, 0, noise_var, ridge, rng)
            owner = draw_ordered(graph, tree, rng)
        else:
            has = np.flatnonzero(tree.state == 1)
            owner = turn_path(graph, tree, owner, has[int(rng.random() * len(has))], rng.random())
        n_flipped += sweep_column(graph, columns, part, tree, K, k, owner, 0, noise_var, ridge, rng)
        put_column(columns, part, K, k, ridge)
    return n_flipped, n_shifted
