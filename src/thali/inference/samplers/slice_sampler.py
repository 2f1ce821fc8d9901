"""Slice sampling of the IBP (Teh, Gorur & Ghahramani 2007, semi-ordered): weights and features drawn beside Z.

A level is drawn uniformly below the smallest weight in use. The finitely many features above it are all there is for
the time of a sweep: those in use, and unused ones from the Poisson process that the prior leaves.

With a discount there may be more of them than any memory holds. A level that lies below the prior's least one is
therefore raised to it, and features in use with a weight below that keep their bits in this sweep: a Gibbs step on some
of the bits, chosen by weights and level alone, which it does not change, is still one. Weights are drawn anew each
time.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from thali.core.binary import column_counts
from thali.core.protocols.engines.chains import ChainRows, SliceRows, StartRows
from thali.core.protocols.prior import Predictive, Sticks
from thali.core.registry import stored
from thali.inference.samplers.chain import ZChain

_BELOW_ONE = np.nextafter(1.0, 0.0)  # a beta draw can round to an end of (0, 1), which has no odds


@stored("SliceSampler")
@dataclass(frozen=True, eq=False)
class SliceSampler(ZChain):
    """Without any conditional of the number of new features: the way out where they cannot be integrated out.

    Parameters
    ----------
    n_warmup : int
        Steps that are not kept.
    n_draws : int
        Draws that are kept of each chain.
    thin : int
        Steps from one draw that is kept to the next.
    start : str or array of shape (n_rows, n_features)
        As for `CollapsedGibbs`. In models with weights "search" is their "spectral" start, independent sources.
    moves : float
        Share of the steps that also try to change whole columns. Models with weights have no such moves.
    """

    needs_prior = (Predictive, Sticks)
    needs_observation = (ChainRows, StartRows, SliceRows)

    def sweep(self, rng: np.random.Generator, prior: Any, observation: Any, data: Any, local: Any) -> tuple[Any, float]:
        n_rows = len(local.z)
        weights = np.clip(prior.draw_weights(rng, column_counts(local.z), n_rows), 1e-300, _BELOW_ONE)
        # eq: T07.slice
        level = max(rng.random() * weights.min(initial=1.0), 1e-300, prior.least_level(n_rows))
        unused = prior.draw_unused(rng, level, n_rows)
        sweeps = observation.engine(SliceRows)
        return sweeps.weighted_sweep(rng, data, local, weights, unused, level), 0.0
