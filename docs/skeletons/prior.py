"""A prior to begin with: copy this file into your own package, give it your names, and fill in the methods.

It runs as it stands: a given number of features, and every bit is on with the same probability, whatever other rows
have. A prior never sees data. With the methods below it is `Predictive`: `CollapsedGibbs` and `Gibbs` sample it.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

import thali
from thali.core.binary import check_binary
from thali.core.spec import Domain, ScalarHypers, at_least, hyper, setting

Array = np.ndarray

# What a field may be: a test of a number, its words in an error, and which distributions may stand in its place.
_probability = Domain(
    "a number between 0 and 1",
    lambda value: isinstance(value, float) and 0.0 < value < 1.0,
    low=0.0,
    high=1.0,
    accepts=lambda law: isinstance(law, thali.Beta),
)


@thali.register("yourpackage.EvenOdds")  # its name in files, once and for all; it has a dot
@dataclass(frozen=True, eq=False)
class EvenOdds(ScalarHypers):  # `draw` and `log_hyper` of independent numbers come with it
    """z_nk = 1 with probability `probability`, for `n_features` features."""

    probability: Any = hyper(thali.Beta(1.0, 1.0), _probability)  # a number is fixed, a distribution learned
    n_features: int = setting(5, at_least(1))  # of an infinite prior: n_features: ClassVar[None] = None

    # ---- what every prior has

    def simulate(self, rng: np.random.Generator, n_rows: int) -> Array:
        """A draw of Z, uint8 (n_rows, n_features); what is learned is drawn first."""
        current = self.draw(rng)
        return (rng.random((n_rows, self.n_features)) < current.probability).astype(np.uint8)

    def log_prob(self, Z: Array) -> float:
        """Log probability of Z with its columns in this order; of its class, if the prior is infinite."""
        self.require_concrete("log_prob")
        ones = int(check_binary(Z).sum())
        return ones * math.log(self.probability) + (Z.size - ones) * math.log1p(-self.probability)

    # ---- what makes it Predictive

    def log_odds(self, n_rows: int) -> Array:
        """[m]: log-odds that a row has a feature that m of the other n_rows - 1 rows have.

        -inf at m = 0 says that there are infinitely many features.
        """
        self.require_concrete("log_odds")
        return np.full(n_rows, math.log(self.probability) - math.log1p(-self.probability))

    def new_rate(self, n_rows: int) -> float:
        """Poisson rate of the number of features that one row alone has; 0 for a finite prior."""
        return 0.0

    def resample(self, rng: np.random.Generator, current: Self, Z: Array) -> Self:
        """`current` with what this spec learns drawn given Z, by any step that leaves its posterior invariant."""
        law = self.learned.get("probability")
        if law is None:
            return current
        ones = int(Z.sum())
        return current.updated(probability=float(rng.beta(law.a + ones, law.b + Z.size - ones)))

    # ---- optional: more capabilities of thali.core.protocols.prior, each by its methods

    # Weights (draw_weights): `Gibbs` can draw many rows side by side. Sticks: `SliceSampler`.
    # VariationalWeights and AdaptiveWeights: `MeanField`, `StochasticMeanField`.
    # AuxiliaryPrior: rows that are not exchangeable.


def prove(rng: np.random.Generator) -> None:
    """How such a part is proved; these lines belong in your tests."""
    thali.testing.check_prior(EvenOdds(probability=0.3, n_features=2), rng)  # draws, log_prob and tables agree
    likelihood = thali.LinearGaussian(noise_var=0.25, feature_var=1.0)
    model = thali.core.model.Model(EvenOdds(probability=0.3, n_features=2), likelihood)
    X = np.array([[1.3, 0.6], [1.2, -1.8], [-0.1, -1.2]])
    sampler = thali.CollapsedGibbs(start="empty", moves=0.0)
    thali.testing.check_inference(sampler, model, X, rng, n_steps=60, max_features=2)  # by enumeration


def prove_learning(rng: np.random.Generator) -> None:
    """That `resample` leaves the joint distribution of everything as it is."""
    model = thali.core.model.Model(EvenOdds(n_features=2), thali.LinearGaussian(noise_var=0.25, feature_var=1.0))
    sampler = thali.CollapsedGibbs(start="empty", moves=0.0)
    assert thali.testing.geweke(model, sampler, rng, n_replicates=2000).passed
