"""Sweeps of linked features in many small independent problems: what exactness tests need.

X (R, N, D), Z (R, N, capacity), links (R, capacity, N) and K (R,) hold one problem each and change in place; `rates`
(R, N) are those of owners.
"""

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.links.layout import Columns
from thali.kernels.links.link_sweep import link_sweep
from thali.kernels.links.ownership import ownership_sweep


def _add_up(columns, K):
    """gram and cross of the first K columns, from scratch."""
    X, Z = columns.X, columns.Z
    for k in range(K):
        for j in range(K):
            columns.gram[k, j] = 0.0
        for d in range(X.shape[1]):
            columns.cross[k, d] = 0.0
        for n in range(X.shape[0]):
            if Z[n, k]:
                for j in range(K):
                    columns.gram[k, j] += Z[n, j]
                for d in range(X.shape[1]):
                    columns.cross[k, d] += X[n, d]


def _link_replicates(graph, X, Z, links, K, room, part, tree, n_shifts, noise_var, ridge, rng):
    """One `link_sweep` in each replicate. `room` are columns of which the statistics are used."""
    for i in range(X.shape[0]):
        columns = Columns(X[i], Z[i], links[i], room.gram, room.cross, room.P, room.mu)
        add_up(columns, K[i])
        link_sweep(graph, columns, part, tree, K[i], n_shifts, noise_var, ridge, rng)


def _ownership_replicates(graph, X, Z, links, K, room, spare, part, tree, rates, jointly, noise_var, ridge, rng):
    """One `ownership_sweep` in each replicate. Returns (moves for which the capacity did not suffice, proposals,
    accepted). Such a move is refused and the next row follows: the law that stays is that of at most so many features.
    """
    n_rows = X.shape[1]
    owners = np.zeros(Z.shape[2], np.int64)
    wanted = np.zeros(n_rows, np.int64)
    n_full = 0
    n_proposed = 0
    n_accepted = 0
    for i in range(X.shape[0]):
        columns = Columns(X[i], Z[i], links[i], room.gram, room.cross, room.P, room.mu)
        add_up(columns, K[i])
        for k in range(K[i]):
            for n in range(n_rows):
                if links[i, k, n] == n:
                    owners[k] = n
        for n in range(n_rows):
            wanted[n] = rng.poisson(rates[i, n])
        row = 0
        while row < n_rows:
            K[i], row, proposed, accepted = ownership_sweep(
                graph, columns, spare, part, tree, K[i], owners, wanted, jointly, row, noise_var, ridge, rng
            )
            n_proposed += proposed
            n_accepted += accepted
            if row < n_rows:
                n_full += 1
                row += n_rows if jointly else 1
    return n_full, n_proposed, n_accepted


add_up = jit(_add_up)
link_replicates = jit(_link_replicates)
ownership_replicates = jit(_ownership_replicates)
