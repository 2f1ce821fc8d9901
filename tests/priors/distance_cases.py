"""Distances without symmetry or without links, the priors of the tests on them, and their proximities."""

import math

import numpy as np
from decay_cases import LINE

from thali.priors.proximity.decays import ExponentialDecay, LogisticDecay, WindowDecay
from thali.priors.proximity.distance_dependent import DistanceDependentIBP

INF = math.inf
ODD = np.array([[0, 1, INF, 0.5], [2, 0, 0.3, INF], [0.7, INF, 0, 1], [INF, INF, 2, 0]])  # no symmetry, some never link
SPLIT = np.array([[0, 1, INF, INF], [1, 0, INF, INF], [INF, INF, 0, 1], [INF, INF, 1, 0]])  # two worlds

CASES = {
    "line": DistanceDependentIBP(1.1, LINE, ExponentialDecay(0.5)),
    "window": DistanceDependentIBP(1.1, LINE, WindowDecay(1.0)),
    "logistic": DistanceDependentIBP(0.8, ODD, LogisticDecay(1.5, 0.5)),
    "two worlds": DistanceDependentIBP(0.9, SPLIT, "constant"),
    "constant": DistanceDependentIBP(1.3, LINE, "constant"),
    "sequential": DistanceDependentIBP(1.1, LINE, ExponentialDecay(0.5), sequential=True),
    "sequential odd": DistanceDependentIBP(1.1, ODD, ExponentialDecay(1.0), sequential=True),
}


def proximity_matrix(prior):
    d = np.array(prior.distances)
    if prior.sequential:
        d[np.triu_indices(len(d), 1)] = INF
    return np.where(np.isfinite(d), prior.decay(np.where(np.isfinite(d), d, 0.0)), 0.0)
