"""Features that rows hand on along links: who reaches the owner of each."""

import numpy as np

from thali.kernels._jit import jit


def _reach_owners(owners, links):
    """Z[i, k] = 1 where following links[k] from row i arrives at row owners[k].

    The owner's own link does not matter. Each row has one link, so a path either arrives or closes a circle without
    the owner; what is found for a row holds for all rows on its path. eq: DD.reach. Cost O(n_rows) per feature.
    """
    n_features, n_rows = links.shape
    Z = np.zeros((n_rows, n_features), dtype=np.uint8)
    state = np.empty(n_rows, dtype=np.uint8)  # 0 not known, 1 arrives, 2 does not, 3 on the path that is followed now
    for k in range(n_features):
        for i in range(n_rows):
            state[i] = 0
        state[owners[k]] = 1
        for i in range(n_rows):
            j = i
            while state[j] == 0:
                state[j] = 3
                j = links[k, j]
            found = 1 if state[j] == 1 else 2
            j = i
            while state[j] == 3:
                state[j] = found
                j = links[k, j]
            Z[i, k] = found == 1
    return Z


def _draw_holders(owners, starts, targets, cumulative, into_starts, into_rows, rng):
    """Draw Z of the features with these owners; only links that may lead to the owner are drawn.

    Row i links to targets[t] with the probabilities whose cumulative sums are cumulative[t], starts[i] <= t <
    starts[i + 1]; into_rows[into_starts[j] : into_starts[j + 1]] are the rows that may link to row j. From the owner
    outwards: a row has the feature when its link, drawn the first time it is asked for, goes to a row that has it.
    Cost: the number of rows that may link to each row that has a feature.
    """
    n_rows = starts.size - 1
    Z = np.zeros((n_rows, owners.size), dtype=np.uint8)
    link = np.empty(n_rows, dtype=np.int64)
    drawn_for = np.full(n_rows, -1, dtype=np.int64)  # the last feature for which the row's link was drawn
    held_for = np.full(n_rows, -1, dtype=np.int64)  # the last feature that the row has
    queue = np.empty(n_rows, dtype=np.int64)
    for k in range(owners.size):
        queue[0] = owners[k]
        held_for[owners[k]] = k
        head = 0
        tail = 1
        while head < tail:
            j = queue[head]
            head += 1
            Z[j, k] = 1
            for t in range(into_starts[j], into_starts[j + 1]):
                i = into_rows[t]
                if held_for[i] == k:
                    continue
                if drawn_for[i] != k:
                    u = rng.random()
                    low = starts[i]
                    high = starts[i + 1] - 1
                    while low < high:
                        middle = (low + high) // 2
                        if cumulative[middle] > u:
                            high = middle
                        else:
                            low = middle + 1
                    link[i] = targets[low]
                    drawn_for[i] = k
                if link[i] == j:
                    held_for[i] = k
                    queue[tail] = i
                    tail += 1
    return Z


reach_owners = jit(_reach_owners)
draw_holders = jit(_draw_holders)
