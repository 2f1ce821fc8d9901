"""Slice sampling of the IBP (Teh, Gorur & Ghahramani 2007, semi-ordered): weights and features drawn beside Z.

A level is drawn uniformly below the smallest weight in use. The finitely many features above it are all there is for
the time of a sweep: those in use, and unused ones from the Poisson process that the prior leaves.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from thali.binary import column_counts
from thali.inference.z_chain import ZChain
from thali.protocols import ConditionalRows, Predictive, Sticks


@dataclass(frozen=True, eq=False)
class SliceSampler(ZChain):
    """Without any conditional of the number of new features: the way out where they cannot be integrated out.

    start and moves as for `CollapsedGibbs`.
    """

    needs_prior = (Predictive, Sticks)
    needs_observation = (ConditionalRows,)

    def sweep(self, rng: np.random.Generator, prior: Any, observation: Any, data: Any, local: Any) -> tuple[Any, float]:
        n_rows = len(local.z)
        weights = prior.draw_weights(rng, column_counts(local.z), n_rows)
        # eq: T07.slice
        level = max(rng.random() * weights.min(initial=1.0), 1e-300)
        unused = prior.draw_unused(rng, level, n_rows)
        return observation.weighted_sweep(rng, data, local, weights, unused), 0.0
