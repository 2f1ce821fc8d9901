"""Features that are born and die, by their owners: Metropolis moves with proposals from the prior.

Row i owns Poisson(mass / h_i) features. Another number is proposed from that law, new features with links from the
prior, and of the present ones as many as must go, picked uniformly. Prior and proposal cancel for the unordered set of
features, so that the ratio is that of the likelihoods. Nothing else looks at labels (`link_sweep`).
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.links.column_part import column_gain, invert, put_column, take_column
from thali.kernels.links.trees import pick


def _draw_linked(graph, owner, tree, links, rng):
    """Draw the rows that have a feature of this owner, and their links, into `links`, -1 for all other rows.

    From the owner outwards; the link of a row is drawn when it is first asked for. Returns how many rows have it, which
    are the first of tree.stack. Cost: the rows that may link to them.
    """
    for i in range(links.size):
        tree.link[i] = -1
        links[i] = -1
    links[owner] = owner
    tree.stack[0] = owner
    n = 1
    read = 0
    while read < n:
        j = tree.stack[read]
        read += 1
        for t in range(graph.into_starts[j], graph.into_starts[j + 1]):
            i = graph.into_rows[t]
            if links[i] < 0 and graph.into_probs[t] > 0.0:
                if tree.link[i] < 0:
                    tree.link[i] = graph.targets[pick(graph, i, rng.random())]
                if tree.link[i] == j:
                    links[i] = j
                    tree.stack[n] = i
                    n += 1
    return n


def _add_column(columns, part, K, dead, rows, n_on, noise_var, ridge):
    """Column K, which the first n_on of these rows have. Returns the gain of the log likelihood."""
    n_dims = columns.X.shape[1]
    for j in range(K + 1):
        part.u[j] = 0.0
        columns.P[K, j] = columns.P[j, K] = 0.0
        columns.gram[K, j] = columns.gram[j, K] = 0.0
    for d in range(n_dims):
        columns.cross[K, d] = columns.mu[K, d] = 0.0
    for t in range(n_on):
        n = rows[t]
        for j in range(K):
            if columns.Z[n, j] and not dead[j]:
                part.u[j] += 1.0
        for d in range(n_dims):
            columns.cross[K, d] += columns.X[n, d]
    for t in range(n_on):
        columns.Z[rows[t], K] = 1
    part.forms[0] = n_on
    put_column(columns, part, K + 1, K, ridge)
    return column_gain(part.forms, n_dims, noise_var, ridge)


def _remove_column(columns, part, K, k, noise_var, ridge):
    """Take column k out of all statistics; its bits stay. Returns the gain of the log likelihood."""
    take_column(columns, part, K, k, ridge)
    gain = -column_gain(part.forms, columns.X.shape[1], noise_var, ridge)
    for j in range(K):
        columns.gram[k, j] = columns.gram[j, k] = 0.0
    for d in range(columns.X.shape[1]):
        columns.cross[k, d] = 0.0
    return gain


def _copy_statistics(source, target, K):
    """gram, cross, P and mu of the first K columns."""
    for i in range(K):
        for j in range(K):
            target.gram[i, j] = source.gram[i, j]
            target.P[i, j] = source.P[i, j]
        for d in range(source.mu.shape[1]):
            target.cross[i, d] = source.cross[i, d]
            target.mu[i, d] = source.mu[i, d]


def _move_column(columns, K, source, target):
    """Put column `source` of K in the place of `target`, which is out of use; its old place is then empty."""
    gram, P = columns.gram, columns.P
    for n in range(columns.Z.shape[0]):
        columns.Z[n, target] = columns.Z[n, source]
        columns.Z[n, source] = 0
        columns.links[target, n] = columns.links[source, n]
    for d in range(columns.mu.shape[1]):
        columns.cross[target, d] = columns.cross[source, d]
        columns.mu[target, d] = columns.mu[source, d]
    for j in range(K):
        gram[target, j] = gram[source, j]
        P[target, j] = P[source, j]
    for j in range(K):
        gram[j, target] = gram[j, source]
        P[j, target] = P[j, source]


def _ownership_sweep(
    graph, columns, spare, part, tree, K, owners, wanted, jointly, start, noise_var, ridge, rng
):  # fmt: skip
    """Propose that row i owns wanted[i] features, for i = start, ..., one row after another, or for all rows `jointly`.

    `owners` are those of the columns in use. `spare` has room for copies of the statistics. Returns (K, next row,
    proposals, accepted): a next row below their number means that the new columns did not fit: enlarge the arrays and
    call again from there. Cost of a proposal O(K (K + D)) and the rows that may link to those of a new feature.
    """
    n_rows = columns.X.shape[0]
    capacity = columns.Z.shape[1]
    owned = np.zeros(n_rows, np.int64)
    dead = np.zeros(capacity, np.bool_)
    mine = np.zeros(capacity, np.int64)
    for k in range(K):
        owned[owners[k]] += 1
    n_proposed = 0
    n_accepted = 0
    invert(columns, K, -1, ridge)
    i = start
    while i < n_rows:
        last = n_rows if jointly else i + 1
        n_born = 0
        n_dead = 0
        for n in range(i, last):
            n_born += max(wanted[n] - owned[n], 0)
            n_dead += max(owned[n] - wanted[n], 0)
        if n_born + n_dead == 0:
            i = last
            continue
        if K + n_born > capacity:
            return K, i, n_proposed, n_accepted
        copy_statistics(columns, spare, K)
        n_proposed += 1
        gain = 0.0
        top = K
        for n in range(i, last):
            if wanted[n] < owned[n]:
                n_mine = 0
                for k in range(K):
                    if owners[k] == n:
                        mine[n_mine] = k
                        n_mine += 1
                for t in range(owned[n] - wanted[n]):
                    place = t + int(rng.random() * (n_mine - t))
                    k = mine[place]
                    mine[place] = mine[t]
                    dead[k] = True
                    gain += remove_column(columns, part, K, k, noise_var, ridge)
        for n in range(i, last):
            for _ in range(wanted[n] - owned[n]):
                n_on = draw_linked(graph, n, tree, columns.links[top], rng)
                gain += add_column(columns, part, top, dead, tree.stack, n_on, noise_var, ridge)
                owners[top] = n
                top += 1
        # eq: DD.ownership-ratio
        if math.log(1.0 - rng.random()) < gain:
            n_accepted += 1
            for n in range(i, last):
                owned[n] = wanted[n]
            for k in range(K - 1, -1, -1):
                if dead[k]:
                    for n in range(n_rows):
                        columns.Z[n, k] = 0
                    if k < top - 1:
                        move_column(columns, top, top - 1, k)
                        owners[k] = owners[top - 1]
                    top -= 1
            K = top
        else:
            copy_statistics(spare, columns, K)
            for k in range(K, top):
                for n in range(n_rows):
                    columns.Z[n, k] = 0
        for k in range(capacity):
            dead[k] = False
        i = last
    return K, n_rows, n_proposed, n_accepted


draw_linked = jit(_draw_linked)
add_column = jit(_add_column)
remove_column = jit(_remove_column)
copy_statistics = jit(_copy_statistics)
move_column = jit(_move_column)
ownership_sweep = jit(_ownership_sweep)
