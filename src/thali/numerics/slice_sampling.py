"""Slice sampling of one positive or real number (Neal 2003, stepping out and shrinkage)."""

import math
from collections.abc import Callable

import numpy as np

_WIDTH = 1.0
_MAX_STEPS = 60


def slice_sample(log_density: Callable[[float], float], x: float, rng: np.random.Generator) -> float:
    """A draw that leaves exp(log_density) invariant, started at x."""
    level = log_density(x) - rng.exponential()
    low = x - _WIDTH * rng.random()
    high = low + _WIDTH
    # a random split of the steps keeps the transition reversible although their number is bounded
    left = int(rng.integers(_MAX_STEPS))
    right = _MAX_STEPS - 1 - left
    while left > 0 and log_density(low) > level:
        low -= _WIDTH
        left -= 1
    while right > 0 and log_density(high) > level:
        high += _WIDTH
        right -= 1
    while True:
        proposal = low + (high - low) * rng.random()
        if log_density(proposal) > level:
            return proposal
        if proposal < x:
            low = proposal
        else:
            high = proposal
        if high - low < 1e-12 * (1.0 + abs(x)):
            return x


def slice_sample_positive(log_density: Callable[[float], float], x: float, rng: np.random.Generator) -> float:
    """The same for a positive number with density exp(log_density(x)), moved on the log scale."""
    return math.exp(slice_sample(lambda t: log_density(math.exp(t)) + t, math.log(x), rng))
