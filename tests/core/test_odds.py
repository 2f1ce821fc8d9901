"""The odds of rows: by count where rows are exchangeable, by row where they are not, through one seam."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from outside.noisy_or import NoisyOr

from thali import IBP, BetaBernoulli, IncompatibleModelError, LinearGaussian
from thali.core.odds import exchangeable_odds, row_odds
from thali.core.protocols.engines.chains import ChainRows, CollapsedRows, ConditionalRows, MarginalRows
from thali.core.protocols.prior import AuxiliaryPrior, Links, Predictive, Recursive, Sticks, provides
from thali.core.spec import ScalarHypers, positive, setting
from thali.rng import make_generator
from thali.testing.zscores import z_limit, z_scores


@dataclass(frozen=True, eq=False)
class InPairs(ScalarHypers):
    """One feature; rows 2i and 2i+1 are a pair that is active with probability 1/2, and only its rows may have it.

    The row variables, which pairs are active, are drawn given Z: a pair with an owner is active.
    """

    chance: float = setting(0.5, positive)
    n_features: ClassVar[int] = 1

    def simulate(self, rng: np.random.Generator, n_rows: int) -> np.ndarray:
        active = np.repeat(rng.random(n_rows // 2) < 0.5, 2)
        return (active & (rng.random(n_rows) < self.chance)).astype(np.uint8)[:, None]

    def log_prob(self, Z: np.ndarray) -> float:
        pairs, c = Z[:, 0].reshape(-1, 2).sum(axis=1), self.chance
        return float(np.sum(np.log(0.5 * c**pairs * (1 - c) ** (2 - pairs) + 0.5 * (pairs == 0))))

    def resample(self, rng: np.random.Generator, current: Any, Z: np.ndarray) -> Any:
        return current

    def draw_auxiliary(self, rng: np.random.Generator, Z: np.ndarray) -> np.ndarray:
        owned = Z[:, 0].reshape(-1, 2).any(axis=1)
        none = (1 - self.chance) ** 2
        return owned | (rng.random(len(owned)) < none / (1 + none))

    def auxiliary_odds(self, auxiliary: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_odds = np.where(np.repeat(auxiliary, 2), np.log(self.chance / (1 - self.chance)), -np.inf)
        return log_odds[:, None], np.zeros(len(Z))

    def log_joint(self, auxiliary: np.ndarray, Z: np.ndarray) -> float:
        return len(auxiliary) * np.log(0.5)


@pytest.mark.parametrize("prior", [IBP(mass=1.2), BetaBernoulli(mass=1.0, n_features=3)], ids=["infinite", "finite"])
def test_exchangeable_priors_speak_by_count(prior: Any) -> None:
    odds = row_odds(make_generator(0), prior, np.ones((5, 3), dtype=np.uint8))
    table, rate = odds.table()
    assert odds.by_count
    assert odds.infinite == (prior.n_features is None)
    assert np.array_equal(table, prior.log_odds(5))
    assert rate == odds.rate_of(3) == prior.new_rate(5)
    assert odds.of(0, 2, 4) == table[4]
    assert all(np.array_equal(a, b) for a, b in zip(odds, exchangeable_odds(prior, 5), strict=True))


def test_others_speak_row_by_row() -> None:
    prior, Z = InPairs(), np.array([[1], [0], [0], [0]], dtype=np.uint8)
    assert isinstance(prior, AuxiliaryPrior)
    assert not isinstance(IBP(), AuxiliaryPrior)
    odds = row_odds(make_generator(0), prior, Z)
    assert not odds.by_count
    assert not odds.infinite
    assert odds.of(1, 0, 3) == 0.0
    assert odds.rate_of(2) == 0.0
    data = LinearGaussian(noise_var=1.0, feature_var=1.0).engine(ChainRows).prepare(np.zeros((4, 2)))
    model = LinearGaussian(noise_var=1.0, feature_var=1.0)
    local = model.engine(ChainRows).place(data, Z, np.zeros((4, 2)))
    with pytest.raises(IncompatibleModelError, match="exchangeable"):
        model.engine(CollapsedRows).sweep(make_generator(0), data, local, odds)


def marginals(n_chains: int, blind: bool) -> tuple[np.ndarray, np.ndarray]:
    """P(z_n = 1) by enumeration of all 16 matrices, and by chains; a blind one takes every pair for active."""
    prior, observation = InPairs(chance=0.6), NoisyOr(strength=4.0, leak=0.1)
    X = np.array([[1.0, 1], [0, 0], [0, 0], [0, 1]])
    matrices = [np.array([[i >> n & 1] for n in range(4)], dtype=np.uint8) for i in range(16)]
    marginal = observation.engine(MarginalRows)
    weight = np.exp([prior.log_prob(Z) + marginal.log_marginal(X, Z) for Z in matrices])
    wanted = sum(w * Z[:, 0] for w, Z in zip(weight / weight.sum(), matrices, strict=True))
    sweeps, rows = observation.engine(ConditionalRows), observation.engine(ChainRows)
    data, rng, found = rows.prepare(X), make_generator(1), np.zeros((n_chains, 4))
    for i in range(n_chains):
        local = rows.place(data, np.zeros((4, 1), dtype=np.uint8), X)
        for step in range(170):
            odds = row_odds(rng, prior, local.z)
            odds = odds._replace(log_odds=np.full((4, 1), np.log(1.5))) if blind else odds
            local = sweeps.conditional_sweep(rng, data, local, odds)
            found[i] += local.z[:, 0] if step >= 20 else 0
    return np.asarray(wanted), found / 150


def test_a_sweep_by_row_is_exact() -> None:
    wanted, found = marginals(20, blind=False)
    assert np.abs(z_scores(found, wanted)).max() < z_limit(4)


def test_odds_of_other_rows_are_seen() -> None:
    wanted, found = marginals(20, blind=True)
    assert np.abs(z_scores(found, wanted)).max() > z_limit(4)


@pytest.mark.parametrize("capability", [AuxiliaryPrior, Links, Predictive, Recursive, Sticks])
@pytest.mark.parametrize("prior", [IBP(), BetaBernoulli(n_features=3), InPairs(), LinearGaussian()])
def test_what_a_prior_provides_is_what_its_class_has(prior, capability):
    for _ in range(2):  # looked up, then known
        assert provides(prior, capability) == isinstance(prior, capability)
