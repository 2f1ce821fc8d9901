"""Links that lead to a given Z, and the probability of links.

The links of a feature are an array over rows: the row to which a row links, itself if it owns the feature, -1 if it
lacks it. The links of rows that lack it lead to any rows that lack it; they are summed out.
"""

import numpy as np

from thali.kernels.links.layout import Tree
from thali.priors.proximity.link_graph import LinkGraph

Array = np.ndarray

_STEPS = 2_000  # of Wilson's algorithm for each row, before the strongest tree is taken
_MOST_WEIGHED = 500  # rows among which an owner is drawn by the weights of trees


def draw_links(graph: LinkGraph, rng: np.random.Generator, Z: Array) -> Array:
    """Links given Z, (n_features, n_rows), from their conditional distribution.

    With one exception: where rows hang together so loosely that a random walk takes too long, the tree is the strongest
    one. A chain may begin there; it goes on from its own links.
    """
    from thali.kernels.links.trees import draw_ordered, draw_wilson, strongest_tree  # numba is slow to import

    links = np.full((Z.shape[1], len(Z)), -1, dtype=np.int64)
    arrays = graph.for_kernels
    for k, column in enumerate(np.ascontiguousarray(Z.T)):
        tree = _tree(column)
        if graph.has_order:
            draw_ordered(arrays, tree, rng)
        else:
            owner = _draw_owner(graph, rng, column == 1)
            if not draw_wilson(arrays, owner, tree, _STEPS * int(column.sum()), rng):
                tree = _tree(column)
                strongest_tree(arrays, owner, tree)
        links[k] = np.where(column == 1, tree.link, -1)
    return links


def _draw_owner(graph: LinkGraph, rng: np.random.Generator, has: Array) -> int:
    """The owner of a feature. Where proximities are symmetric every row that has it is as likely: the weight of the
    trees into a row is then proportional to h."""
    from thali.kernels.links.trees import strongest_tree  # numba is slow to import

    rows = np.flatnonzero(has)
    if not graph.is_symmetric:
        if len(rows) <= _MOST_WEIGHED:
            # eq: own.dd-owner
            weight = graph.history_by_owner(has)[0] / graph.totals
            return int(rng.choice(len(has), p=weight / weight.sum()))
        for row in rng.permutation(rows):  # for a start: any that all others reach
            if strongest_tree(graph.for_kernels, row, _tree(has)) == len(rows):
                return int(row)
    return int(rows[rng.integers(len(rows))])


def possible_columns(graph: LinkGraph, Z: Array) -> Array:
    """Z with each column in parts that links can lead to: the first row, all that can reach it, and so on."""
    from thali.kernels.links.trees import strongest_tree  # numba is slow to import

    parts = []
    for column in np.ascontiguousarray(Z.T):
        left = column.copy()
        while left.any():
            tree = _tree(left)
            strongest_tree(graph.for_kernels, int(left.argmax()), tree)
            parts.append(tree.state == 2)
            left[tree.state == 2] = 0
    return np.column_stack(parts).astype(np.uint8) if parts else np.zeros((len(Z), 0), dtype=np.uint8)


def log_link_rates(graph: LinkGraph, links: Array) -> Array:
    """log of the rate of each feature but for the mass: 1 / h of the owner, the probabilities of the links, and those
    that the other rows link among each other."""
    on = links >= 0
    rows = np.arange(graph.n_rows)
    owned = links == rows
    # eq: own.dd-links
    logs = np.log(np.where(on, 1.0, (graph.probs @ (~on).T.astype(float)).T))
    features, at = np.nonzero(on & ~owned)
    logs[features, at] = graph.log_prob_of(at, links[features, at])
    features, at = np.nonzero(owned)
    logs[features, at] = -np.log(graph.totals[at])
    return logs.sum(axis=1)


def _tree(has: Array) -> Tree:
    n_rows = len(has)
    link, head, after, before, stack = (np.full(n_rows, -1, np.int64) for _ in range(5))
    state = has.astype(np.int8)
    return Tree(link, head, after, before, state, stack, np.zeros(n_rows), np.zeros(n_rows, np.int64))
