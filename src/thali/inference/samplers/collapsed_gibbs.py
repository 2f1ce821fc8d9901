"""Gibbs sampling of Z with the features integrated out (Griffiths & Ghahramani 2005; accelerated sweep of
Doshi-Velez & Ghahramani 2009), and of the learned hyperparameters.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from thali.core.odds import row_odds
from thali.core.protocols.engines.chains import ChainRows, CollapsedRows, StartRows
from thali.core.protocols.prior import Predictive
from thali.core.registry import stored
from thali.core.spec import between, setting
from thali.inference.samplers.chain import ZChain


@stored("CollapsedGibbs")
@dataclass(frozen=True, eq=False)
class CollapsedGibbs(ZChain):
    """Exact sampling for small and medium data. One step: a sweep over all rows, a move, then the hyperparameters.

    Parameters
    ----------
    n_warmup : int
        Steps that are not kept.
    n_draws : int
        Draws that are kept of each chain.
    thin : int
        Steps from one draw that is kept to the next.
    start : str or array of shape (n_rows, n_features)
        "search" (spectral and annealed starts, the better one improved, in about `n_warmup` sweeps more),
        "spectral", "annealed" or "empty"; or codes, such as the bits of another fit.
    moves : float
        Share of the steps that also try to change whole columns.
    group : int
        How many bits of a row are drawn jointly.
    """

    group: int = setting(3, between(1, 6))

    needs_prior = (Predictive,)
    needs_observation = (ChainRows, StartRows, CollapsedRows)

    def sweep(self, rng: np.random.Generator, prior: Any, observation: Any, data: Any, local: Any) -> tuple[Any, float]:
        odds = row_odds(rng, prior, local.z)
        local, remarks = observation.engine(CollapsedRows).sweep(rng, data, local, odds, self.group)
        return local, remarks["drift"]
