"""What draws of classes agree on, however these are numbered: who is together with whom."""

import numpy as np

Array = np.ndarray


def co_clustering(classes: Array) -> tuple[Array, int]:
    """(probability that two members are in the same class, the draw whose classes are nearest to these probabilities).

    `classes` (n_draws, n_members) are numbers from 0 on. Nearest is the draw whose matrix of pairs in the same class
    has the smallest squared distance from that of the probabilities (Dahl 2006).
    """
    members = [(classes == i).astype(float) for i in range(int(classes.max()) + 1)]
    together = sum((one.T @ one for one in members), np.zeros((classes.shape[1],) * 2)) / len(classes)
    distance = np.zeros(len(classes))  # less what all draws have in common
    for one in members:
        distance += one.sum(axis=1) ** 2 - 2 * np.einsum("sn,sn->s", one @ together, one)
    return together, int(np.argmin(distance))
