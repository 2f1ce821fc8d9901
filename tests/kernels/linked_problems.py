"""Small problems of features that are handed on along links."""

import numpy as np
from reference.links.linked_replicates import add_up

from thali import DistanceDependentIBP
from thali.kernels.links.layout import Columns
from thali.priors.proximity.decays import ExponentialDecay, WindowDecay

STEPS = np.abs(np.subtract.outer(np.arange(6), np.arange(6))).astype(float)
SKEWED = STEPS + np.where(np.triu(np.ones((6, 6)), 1) > 0, 0.7, 0.0)
PRIORS = {
    "symmetric": DistanceDependentIBP(1.0, distances=STEPS, decay=ExponentialDecay(0.5)),
    "skewed": DistanceDependentIBP(1.0, distances=SKEWED, decay=ExponentialDecay(0.5)),
    "ordered": DistanceDependentIBP(1.0, distances=STEPS, decay=ExponentialDecay(0.5), sequential=True),
    "window": DistanceDependentIBP(1.0, distances=STEPS, decay=WindowDecay(2.0)),
    "ordered window": DistanceDependentIBP(1.0, distances=STEPS, decay=WindowDecay(2.0), sequential=True),
}
NOISE, RIDGE = 0.6, 0.3


def room_for(X, Z, links, capacity):
    """Columns with these in use, and their statistics."""
    n_rows, K = Z.shape
    n_dims = X.shape[1]
    wide = np.zeros((n_rows, capacity), dtype=np.uint8)
    wide[:, :K] = Z
    long = np.full((capacity, n_rows), -1, dtype=np.int64)
    long[:K] = links
    squares = [np.zeros((capacity, capacity)) for _ in range(2)]
    tall = [np.zeros((capacity, n_dims)) for _ in range(2)]
    columns = Columns(X, wide, long, squares[0], tall[0], squares[1], tall[1])
    add_up(columns, K)
    return columns


def problem(name, seed, n_dims=3, capacity=12):
    """(prior, its graph, columns, K, generator) with Z, links and X drawn from the prior and at random."""
    rng = np.random.default_rng(seed)
    prior = PRIORS[name]
    drawn = prior.simulate_links(rng)
    while not 1 <= len(drawn.owners) <= 6:
        drawn = prior.simulate_links(rng)
    K = len(drawn.owners)
    links = np.where(drawn.Z.T == 1, drawn.links, -1)
    links[np.arange(K), drawn.owners] = drawn.owners
    X = drawn.Z @ rng.standard_normal((K, n_dims)) * 1.4 + 0.8 * rng.standard_normal((6, n_dims))
    return prior, prior.kernel_graph(), room_for(X, drawn.Z, links, capacity), K, rng
