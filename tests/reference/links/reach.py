"""Twin of `thali.kernels.links.reach`: every path followed to its end, every list of rows built afresh."""

import numpy as np


def reach_owners(owners, links):
    """n_rows steps from every row; the owner links to itself, so that a path that arrives stays."""
    n_features, n_rows = links.shape
    Z = np.zeros((n_rows, n_features), dtype=np.uint8)
    for k in range(n_features):
        absorbing = links[k].copy()
        absorbing[owners[k]] = owners[k]
        at = np.arange(n_rows)
        for _ in range(n_rows):
            at = absorbing[at]
        Z[:, k] = at == owners[k]
    return Z


def draw_holders(owners, starts, targets, cumulative, into_starts, into_rows, rng):
    """The same uniforms for the same rows; then all paths are followed, with rows not asked left where they are."""
    n_rows = len(starts) - 1
    Z = np.zeros((n_rows, len(owners)), dtype=np.uint8)
    for k, owner in enumerate(owners):
        links = np.arange(n_rows)
        asked = set()
        holders = [owner]
        for j in holders:  # grows while it is read
            for i in into_rows[into_starts[j] : into_starts[j + 1]]:
                if i in holders:
                    continue
                if i not in asked:
                    asked.add(i)
                    row = slice(starts[i], starts[i + 1])
                    index = np.searchsorted(cumulative[row][:-1], rng.random(), side="right")
                    links[i] = targets[row][index]
                if links[i] == j:
                    holders.append(i)
        Z[:, [k]] = reach_owners(np.array([owner]), links[None])
    return Z
