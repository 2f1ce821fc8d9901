"""Twins of `thali.kernels.links.linked_replicates`."""

import numpy as np

from reference.links.link_sweep import link_sweep
from reference.links.ownership import ownership_sweep
from thali.kernels.links.layout import Columns


def add_up(columns, K):
    dense = columns.Z[:, :K].astype(float)
    columns.gram[:K, :K], columns.cross[:K] = dense.T @ dense, dense.T @ columns.X


def link_replicates(graph, X, Z, links, K, room, part, tree, n_shifts, noise_var, ridge, rng):
    for i in range(len(X)):
        columns = Columns(X[i], Z[i], links[i], *room[3:])
        add_up(columns, K[i])
        link_sweep(graph, columns, part, tree, K[i], n_shifts, noise_var, ridge, rng)


def ownership_replicates(graph, X, Z, links, K, room, spare, part, tree, rates, jointly, noise_var, ridge, rng):
    counts = np.zeros(3, dtype=int)
    for i in range(len(X)):
        columns = Columns(X[i], Z[i], links[i], *room[3:])
        add_up(columns, K[i])
        owners = np.zeros(Z.shape[2], dtype=np.int64)
        owners[: K[i]] = [np.flatnonzero(row == np.arange(len(row)))[0] for row in links[i, : K[i]]]
        wanted = np.array([rng.poisson(rate) for rate in rates[i]])
        row = 0
        while row < X.shape[1]:
            K[i], row, proposed, accepted = ownership_sweep(
                graph, columns, spare, part, tree, K[i], owners, wanted, jointly, row, noise_var, ridge, rng
            )
            is_full = row < X.shape[1]
            counts += is_full, proposed, accepted
            row += is_full * (X.shape[1] if jointly else 1)
    return tuple(counts)
