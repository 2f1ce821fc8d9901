"""Uncollapsed Gibbs sampling: features given Z, then Z given the features (Doshi-Velez et al. 2009, appendix A.2).

The features are drawn at the beginning of each sweep and forgotten at its end, so that hyperparameters and moves of
columns still have them integrated out.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from thali.core.odds import row_odds
from thali.core.protocols.engines.chains import (
    ChainRows,
    ConditionalRows,
    ImportanceRows,
    ParallelRows,
    ProposedRows,
    StartRows,
)
from thali.core.protocols.prior import Predictive
from thali.core.registry import stored
from thali.core.spec import Domain, at_least, one_of, positive, setting
from thali.inference.samplers.chain import ZChain

_MANY = 1_000  # rows: with fewer the sweep row by row is as fast
_at_least_one = at_least(1)
_ENGINES = {"integrated": ConditionalRows, "importance": ImportanceRows, "proposed": ProposedRows}
_proposal = Domain("a pair: a positive number, and a probability below 1", lambda v: _is_proposal(v))
_threads = Domain(f"None or {_at_least_one.words}", lambda v: v is None or _at_least_one.contains(v))


def _is_proposal(value: Any) -> bool:
    """A proposal that can always come back: with `single` = 1 it could not."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    boost, single = value
    return positive.contains(boost) and (single == 0 or (positive.contains(single) and single < 1))


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
    births : "integrated", "importance" or "proposed"
        Features that a row alone has are integrated out; or drawn with all others and picked by importance among
        sets of them, the present one and draws from the prior; or exchanged for one such set by Metropolis-Hastings.
    candidates : int
        How many sets, by importance.
    proposal : (boost, single)
        How large the proposed set is: `boost` times as many features as the prior has, or with probability `single`
        one.
    n_threads : int or None
        With many rows the weights are drawn, too, and rows on so many threads; None for one per core. All chains
        share the cores, and the draws do not depend on how many there are.
    """

    births: str = setting("integrated", one_of(*_ENGINES))
    candidates: int = setting(20, at_least(2))
    proposal: tuple[float, float] = setting((10.0, 0.1), _proposal)
    n_threads: int | None = setting(None, _threads)

    needs_prior = (Predictive,)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "proposal", tuple(self.proposal))  # from a file it comes as a list

    @property
    def needs_observation(self) -> tuple[type, ...]:
        return (ChainRows, StartRows, _ENGINES[self.births])

    def sweep(self, rng: np.random.Generator, prior: Any, observation: Any, data: Any, local: Any) -> tuple[Any, float]:
        n_rows = len(local.z)
        if self.births == "importance":
            engine = observation.engine(ImportanceRows)
            return engine.importance_sweep(rng, data, local, row_odds(rng, prior, local.z), self.candidates), 0.0
        if self.births == "proposed":
            proposing = observation.engine(ProposedRows)
            return proposing.proposed_sweep(rng, data, local, row_odds(rng, prior, local.z), *self.proposal), 0.0
        if n_rows >= _MANY and observation.has(ParallelRows) and hasattr(prior, "draw_weights"):
            draw_weights = partial(prior.draw_weights, rng, n_rows=n_rows)
            parallel, new_rate = observation.engine(ParallelRows), prior.new_rate(n_rows)
            return parallel.parallel_sweep(rng, data, local, draw_weights, new_rate, self.n_threads), 0.0
        sweeps = observation.engine(ConditionalRows)
        return sweeps.conditional_sweep(rng, data, local, row_odds(rng, prior, local.z)), 0.0
