"""Slice sampling of the IBP (Teh, Gorur & Ghahramani 2007, semi-ordered): weights and features drawn beside Z.

A level is drawn uniformly below the smallest weight in use. The finitely many features above it are all there is for
the time of a sweep: those in use, and unused ones from the Poisson process that the prior leaves.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from thali.inference.search import KINDS
from thali.inference.z_chain import ZChain
from thali.protocols import ConditionalRows, Predictive, Sticks
from thali.spec import at_least, one_of, setting, share


@dataclass(frozen=True, eq=False)
class SliceSampler(ZChain):
    """Without any conditional of the number of new features: the way out where they cannot be integrated out.

    start and moves as for `CollapsedGibbs`.
    """

    n_warmup: int = setting(500, at_least(0))
    n_draws: int = setting(500, at_least(1))
    thin: int = setting(1, at_least(1))
    start: str = setting("search", one_of(*KINDS))
    moves: float = setting(0.1, share)

    needs_prior = (Predictive, Sticks)
    needs_observation = (ConditionalRows,)

    def sweep(self, rng: np.random.Generator, prior: Any, observation: Any, data: Any, local: Any) -> tuple[Any, float]:
        n_rows = len(local.z)
        weights = prior.draw_weights(rng, local.z.sum(axis=0, dtype=np.int64), n_rows)
        # eq: T07.slice
        level = max(rng.random() * weights.min(initial=1.0), 1e-300)
        unused = prior.draw_unused(rng, level, n_rows)
        return observation.weighted_sweep(rng, data, local, weights, unused), 0.0
