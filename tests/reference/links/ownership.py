"""Twins of `thali.kernels.links.ownership`: proposals weighed by the likelihood of all data."""

import numpy as np

from reference.links.column_part import column_gain, invert, log_likelihood, put_column, take_column
from reference.links.trees import pick


def draw_linked(graph, owner, tree, links, rng):
    tree.link[:] = links[:] = -1
    links[owner] = owner
    holders = [owner]
    for j in holders:  # grows while it is read
        part = slice(graph.into_starts[j], graph.into_starts[j + 1])
        for i, p in zip(graph.into_rows[part], graph.into_probs[part], strict=True):
            if links[i] >= 0 or p == 0:
                continue
            if tree.link[i] < 0:
                tree.link[i] = graph.targets[pick(graph, i, rng.random())]
            if tree.link[i] == j:
                links[i] = j
                holders.append(i)
    tree.stack[: len(holders)] = holders
    return len(holders)


def add_column(columns, part, K, dead, rows, n_on, noise_var, ridge):
    columns.Z[rows[:n_on], K] = 1
    z = columns.Z[:, K].astype(float)
    part.u[: K + 1] = np.append(np.where(dead[:K], 0.0, z @ columns.Z[:, :K]), 0.0)
    columns.gram[K, : K + 1] = columns.gram[: K + 1, K] = 0.0
    columns.P[K, : K + 1] = columns.P[: K + 1, K] = 0.0
    columns.cross[K], columns.mu[K], part.forms[0] = z @ columns.X, 0.0, n_on
    put_column(columns, part, K + 1, K, ridge)
    return column_gain(part.forms, columns.X.shape[1], noise_var, ridge)


def remove_column(columns, part, K, k, noise_var, ridge):
    take_column(columns, part, K, k, ridge)
    columns.gram[k, :K] = columns.gram[:K, k] = columns.cross[k] = 0.0
    return -column_gain(part.forms, columns.X.shape[1], noise_var, ridge)


def copy_statistics(source, target, K):
    for name in ("gram", "P"):
        getattr(target, name)[:K, :K] = getattr(source, name)[:K, :K]
    for name in ("cross", "mu"):
        getattr(target, name)[:K] = getattr(source, name)[:K]


def move_column(columns, K, source, target):
    columns.Z[:, target], columns.links[target] = columns.Z[:, source], columns.links[source]
    columns.Z[:, source] = 0
    for rows in (columns.cross, columns.mu):
        rows[target] = rows[source]
    for square in (columns.gram, columns.P):
        order = np.where(np.arange(K) == target, source, np.arange(K))
        square[:K, :K] = square[np.ix_(order, order)]


def ownership_sweep(graph, columns, spare, part, tree, K, owners, wanted, jointly, start, noise_var, ridge, rng):
    n_rows, capacity = columns.Z.shape
    n_proposed = n_accepted = 0
    groups = [range(n_rows)] if jointly else [range(i, i + 1) for i in range(start, n_rows)]
    for group in groups:
        mine = {n: list(np.flatnonzero(owners[:K] == n)) for n in group}
        born = {n: max(wanted[n] - len(mine[n]), 0) for n in group}
        if all(wanted[n] == len(mine[n]) for n in group):
            continue
        if K + sum(born.values()) > capacity:
            return K, group[0], n_proposed, n_accepted
        n_proposed += 1
        gone = []
        for n in group:
            for t in range(len(mine[n]) - wanted[n]):
                place = t + int(rng.random() * (len(mine[n]) - t))
                mine[n][t], mine[n][place] = mine[n][place], mine[n][t]
                gone.append(mine[n][t])
        new, links, heads = [], [], []
        for n in group:
            for _ in range(born[n]):
                linked = np.zeros(n_rows, dtype=np.int64)
                draw_linked(graph, n, tree, linked, rng)
                new.append(linked >= 0)
                links.append(linked)
                heads.append(n)
        Z = np.column_stack([columns.Z[:, :K], *new]).astype(np.uint8)
        alive = [k for k in range(Z.shape[1]) if k not in gone]
        ratio = log_likelihood(columns.X, Z[:, alive], noise_var, ridge)
        ratio -= log_likelihood(columns.X, columns.Z[:, :K], noise_var, ridge)
        if np.log(1 - rng.random()) < ratio:
            n_accepted += 1
            whole = [*columns.links[:K], *links]
            heads = [*owners[:K], *heads]
            order = list(range(len(whole)))
            for k in sorted(gone, reverse=True):  # the last takes the place
                order[k] = order[-1]
                order.pop()
            K = len(order)
            columns.Z[:] = 0
            columns.Z[:, :K] = Z[:, order]
            columns.links[:K] = np.array([whole[k] for k in order]).reshape(K, n_rows)
            owners[:K] = [heads[k] for k in order]
    dense = columns.Z[:, :K].astype(float)
    columns.gram[:K, :K], columns.cross[:K] = dense.T @ dense, dense.T @ columns.X
    invert(columns, K, -1, ridge)
    return K, n_rows, n_proposed, n_accepted
