"""Uncollapsed Gibbs sampling: features given Z, then Z given the features (Doshi-Velez et al. 2009, appendix A.2).

The features are drawn at the beginning of each sweep and forgotten at its end, so that hyperparameters and moves of
columns still have them integrated out. Columns that one row alone has are integrated out within the sweep, too.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from thali.inference.z_chain import ZChain
from thali.protocols import ConditionalRows, Predictive


@dataclass(frozen=True, eq=False)
class Gibbs(ZChain):
    """The sampler of most papers. Rows know of each other only through the features, so the number of features moves
    more slowly than with `CollapsedGibbs` where there are many rows.

    start and moves as for `CollapsedGibbs`.
    """

    needs_prior = (Predictive,)
    needs_observation = (ConditionalRows,)

    def sweep(self, rng: np.random.Generator, prior: Any, observation: Any, data: Any, local: Any) -> tuple[Any, float]:
        n_rows = len(local.z)
        return observation.conditional_sweep(rng, data, local, prior.log_odds(n_rows), prior.new_rate(n_rows)), 0.0
