"""A sampler to begin with: copy this file into your own package, give it your names, and fill in `sweep`.

It runs as it stands: a plain random-scan Gibbs sampler. Rows are picked at random, and each of their bits is drawn
given all others, by the prior's odds and the likelihood's evidence; the features that a row alone has are proposed
anew, by a Metropolis step. It is slow, and serves any prior with odds and any likelihood of bits that integrates its
features out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

import thali
from thali.core.model import Model
from thali.core.odds import row_odds
from thali.core.protocols.engines.chains import AuxiliaryRows, ChainRows, StartRows
from thali.core.protocols.prior import Predictive
from thali.core.spec import at_least, setting
from thali.inference.samplers.chain import ZChain, ZState

Array = np.ndarray


@thali.register("yourpackage.RandomScan")  # its name in files, once and for all; it has a dot
@dataclass(frozen=True, eq=False)
class RandomScan(ZChain):  # init, at, step, record, check_sound and the usual settings come with it
    """rounds: how many rows are picked in a step, by how many there are."""

    rounds: int = setting(1, at_least(1))

    needs_prior = (Predictive,)  # what it asks of the others: checked before any work
    needs_observation = (ChainRows, StartRows)

    def sweep(self, rng: np.random.Generator, prior: Any, observation: Any, data: Any, local: Any) -> tuple[Any, float]:
        """(row variables, drift): any step that leaves their posterior invariant. It must not change `local`.

        The hyperparameters are drawn after it, by the prior and the observation model themselves. Drift is that of
        sums which a sweep keeps in step, if it does.
        """
        engine, X = observation.engine(ChainRows), observation.engine(ChainRows).completed(data, local)
        odds = row_odds(rng, prior, local.z)
        Z, evidence = local.z.copy(), engine.log_evidence(data, local)
        for n in rng.integers(len(Z), size=len(Z) * self.rounds):  # a number that does not depend on Z: else not exact
            if odds.infinite:
                Z, evidence = _own_features(rng, Z, evidence, n, odds.rate_of(n), engine, data, X)
            others = np.delete(Z, n, axis=0).sum(axis=0)
            for k in rng.permutation(np.flatnonzero(others) if odds.infinite else Z.shape[1]):
                flipped = Z.copy()
                flipped[n, k] ^= 1
                other = engine.log_evidence(data, engine.place(data, flipped, X))
                log_odds = odds.of(n, k, int(others[k]))  # what the prior says, which never saw X
                gain = other - evidence + (log_odds if flipped[n, k] else -log_odds)
                if rng.random() < expit(gain):
                    Z, evidence = flipped, other
        return engine.place(data, Z, X), 0.0

    def init(
        self,
        rng: np.random.Generator,
        model: Model,
        data: Any,
        n_rows: int,
        tick: Callable[[], None] | None = None,
    ) -> ZState:
        """What it cannot do, it refuses in words."""
        observation = model.observation
        if observation.code_kind != "bits" or observation.has(AuxiliaryRows):
            name = type(observation).__name__
            raise thali.IncompatibleModelError(f"RandomScan needs bits and features integrated out. Got {name}.")
        if np.isnan(observation.engine(StartRows).matrix(data)[0]).any():
            raise thali.InvalidDataError("RandomScan needs all cells. Got missing ones; use CollapsedGibbs().")
        return super().init(rng, model, data, n_rows, tick)


def _own_features(
    rng: np.random.Generator, Z: Array, evidence: float, n: int, rate: float, engine: Any, data: Any, X: Array
) -> tuple[Array, float]:
    """(Z, evidence) after a proposal of another number of features that row n alone has, from their prior."""
    own = np.delete(Z, n, axis=0).sum(axis=0) == 0
    new = np.zeros((len(Z), int(rng.poisson(rate))), dtype=np.uint8)
    new[n] = 1
    proposed = np.hstack([Z[:, ~own], new])
    other = engine.log_evidence(data, engine.place(data, proposed, X))
    return (proposed, other) if math.log(1.0 - rng.random()) < other - evidence else (Z, evidence)


def prove(rng: np.random.Generator) -> None:
    """How such a part is proved; these lines belong in your tests."""
    sampler = RandomScan(start="empty", moves=0.0)
    model = thali.core.model.Model(thali.IBP(mass=0.8), thali.LinearGaussian(noise_var=0.25, feature_var=1.0))
    X = np.array([[1.3, 0.6], [1.2, -1.8], [-0.1, -1.2]])  # which must say something, and leave doubts
    thali.testing.check_inference(sampler, model, X, rng, n_steps=20, max_features=4)  # pure, and exact by enumeration


def prove_learning(rng: np.random.Generator) -> None:
    """That a step leaves the joint distribution of everything as it is, with all that can be learned."""
    sampler = RandomScan(start="empty", moves=0.0)
    for prior in (thali.IBP(), thali.BetaBernoulli(n_features=2)):
        model = thali.core.model.Model(prior, thali.LinearGaussian())
        assert thali.testing.geweke(model, sampler, rng, n_rows=3, n_replicates=500).passed
