"""Uncollapsed Gibbs sampling: features given Z, then Z given the features (Doshi-Velez et al. 2009, appendix A.2).

The features are drawn at the beginning of each sweep and forgotten at its end, so that hyperparameters and moves of
columns still have them integrated out.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from thali.core.odds import row_odds
from thali.core.protocols.engines.chains import ChainRows, ConditionalRows, ImportanceRows, ParallelRows, StartRows
from thali.core.protocols.prior import Predictive
from thali.core.registry import stored
from thali.core.spec import Domain, at_least, one_of, setting
from thali.inference.samplers.chain import ZChain

_MANY = 1_000  # rows: with fewer the sweep row by row is as fast
_at_least_one = at_least(1)
_threads = Domain(f"None or {_at_least_one.words}", lambda v: v is None or _at_least_one.contains(v))


@stored("Gibbs")
@dataclass(frozen=True, eq=False)
class Gibbs(ZChain):
    """The sampler of most papers.

    Rows know of each other only through the features, so the number of features moves more slowly than with
    `CollapsedGibbs` where there are many rows.

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
    births : "integrated" or "importance"
        Features that a row alone has are integrated out, or drawn with all others and picked by importance among
        sets of them, the present one and draws from the prior.
    candidates : int
        How many sets.
    n_threads : int or None
        With many rows the weights are drawn, too, and rows on so many threads; None for one per core. All chains
        share the cores, and the draws do not depend on how many there are.
    """

    births: str = setting("integrated", one_of("integrated", "importance"))
    candidates: int = setting(20, at_least(2))
    n_threads: int | None = setting(None, _threads)

    needs_prior = (Predictive,)

    @property
    def needs_observation(self) -> tuple[type, ...]:
        sweeps = ImportanceRows if self.births == "importance" else ConditionalRows
        return (ChainRows, StartRows, sweeps)

    def sweep(self, rng: np.random.Generator, prior: Any, observation: Any, data: Any, local: Any) -> tuple[Any, float]:
        n_rows = len(local.z)
        if self.births == "importance":
            engine = observation.engine(ImportanceRows)
            return engine.importance_sweep(rng, data, local, row_odds(rng, prior, local.z), self.candidates), 0.0
        if n_rows >= _MANY and observation.has(ParallelRows) and hasattr(prior, "draw_weights"):
            draw_weights = partial(prior.draw_weights, rng, n_rows=n_rows)
            parallel, new_rate = observation.engine(ParallelRows), prior.new_rate(n_rows)
            return parallel.parallel_sweep(rng, data, local, draw_weights, new_rate, self.n_threads), 0.0
        sweeps = observation.engine(ConditionalRows)
        return sweeps.conditional_sweep(rng, data, local, row_odds(rng, prior, local.z)), 0.0
