"""What any posterior says: the features that persist, how many there are, and how a draw sees new rows.

Features have no order, so only quantities that do not depend on their labels are averaged over draws. One draw, the
representative, shows the features that persist, and new rows are encoded by them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from thali.core.codebook import Codebook, Encoded
from thali.core.model import Model
from thali.core.observation import Observation
from thali.core.protocols.engines.predictions import Predictions
from thali.core.registry import stored
from thali.posteriors.matching import cosine, similarity
from thali.posteriors.representative import Consensus, evenly
from thali.verdicts.chains import Filters

Array = np.ndarray

POOLED = 16  # draws over which predictive densities are averaged


@stored("Draw")
class Draw(NamedTuple):
    """One posterior draw."""

    z: Array
    log_joint: float
    free_energy: float  # log_joint + the entropy of the bits given the rest: scores the mode, not the point
    prior: Any  # concrete
    observation: Any  # concrete
    codebook: Any  # a `Codebook`, of the observation model's own kind


class Predictor(NamedTuple):
    """How one draw sees a new row: bits by `log_odds`, and Poisson(`rate`) features that it does not know."""

    observation: Observation  # concrete
    codebook: Codebook
    log_odds: Array
    rate: float

    @property
    def engine(self) -> Predictions:
        """That of the observation model."""
        return self.observation.engine(Predictions)

    def encode(self, X: Array, rate: float | None = None) -> Encoded:
        """What it says of each row of X on its own."""
        return self.engine.encode(X, self.codebook, self.log_odds, self.rate if rate is None else rate)

    def new_codes(self, rng: np.random.Generator, n_rows: int) -> Array:
        """Codes of so many rows of which nothing is known."""
        return self.engine.new_codes(rng, self.codebook, self.log_odds, n_rows)


class Posterior(ABC):
    """What estimators and predictions ask of any posterior: draws by (chain, draw), and what they say of new rows."""

    model: Model
    n_chains: int
    n_draws: int
    filters: Filters | None = None  # of particle filters only
    row_digests: Array | None = None  # of the rows that were fitted, where these are kept (`thali.data.row_digests`)

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Rows that were fitted."""

    @property
    @abstractmethod
    def k_posterior(self) -> dict[int, float]:
        """P(number of features = K)."""

    @property
    @abstractmethod
    def consensus(self) -> Consensus:
        """The features that persist."""

    @property
    @abstractmethod
    def persistent(self) -> Codebook:
        """What the features that persist are, whatever the prior says of further rows."""

    @property
    @abstractmethod
    def encoder(self) -> "Predictor":
        """The persistent features, as new rows are encoded by them."""

    @abstractmethod
    def concrete(self, chain: int, draw: int) -> Model:
        """The model with the hyperparameters of one draw."""

    @abstractmethod
    def is_finite(self) -> bool:
        """Whether all numbers stayed in range."""

    @abstractmethod
    def codebook(self, chain: int, draw: int) -> Codebook:
        """What the features in use in one draw are."""

    @abstractmethod
    def predictor(self, chain: int, draw: int, columns: Array | None = None) -> "Predictor":
        """How one draw sees a new row; of its features only `columns`, the others then count as unknown."""

    @abstractmethod
    def pooled(self) -> list["Predictor"]:
        """The predictors over which predictions of new rows are averaged, with definite features where their model
        cannot integrate them out."""

    @abstractmethod
    def fitted_draws(self, rows: Array, limit: int) -> Iterator[tuple[Observation, Array, Codebook]]:
        """(concrete observation model, codes of these fitted rows, codebook) of at most `limit` draws."""

    def of_new(self, rows: Array) -> "Posterior":
        """As these of the new rows see it: the same, unless each has odds of its own (`NearDraws`)."""
        return self

    def features(self, chain: int, draw: int) -> Array:
        """Mean of the features in use in one draw, (n_features, n_dims)."""
        return self.codebook(chain, draw).features

    def reconstruct(self, codes: Array) -> Array:
        """Expected rows given codes of the persistent features."""
        return self.concrete(*self.representative).observation.reconstruct(codes, self.persistent.features)

    @property
    def representative(self) -> tuple[int, int]:
        """(chain, draw) that shows the persistent features."""
        return self.consensus.chain, self.consensus.draw

    @property
    def codes_are_bits(self) -> bool:
        """Whether codes say no more than bits."""
        return self.model.observation.code_kind == "bits"

    def similarity(self, left: Array, right: Array) -> Array:
        """How alike the features with these codes are; negative where they are alike but for their sign."""
        return similarity(left, right) if self.codes_are_bits else cosine(left, right)

    @property
    def k_mean(self) -> float:
        """Expected number of features in use."""
        return float(sum(k * share for k, share in self.k_posterior.items()))

    @property
    def k_interval(self) -> tuple[int, int]:
        """Central 90 % of the number of features in use."""
        numbers = np.array(sorted(self.k_posterior))
        up_to = np.cumsum([self.k_posterior[int(k)] for k in numbers]) + 1e-12
        return int(numbers[np.argmax(up_to >= 0.05)]), int(numbers[np.argmax(up_to >= 0.95)])

    @property
    def k(self) -> int:
        """The number to report: of those in `k_interval` the one nearest to the number of features that persist.

        About as many as `mass` come and go whether or not the data speak for them, so the middle of the interval is
        too high where features are plain. Where they are not, few persist although more are certainly in use.
        """
        low, high = self.k_interval
        return min(max(len(self.consensus.columns), low), high)  # eq: own.number-to-report

    @property
    def row_counts(self) -> Array:
        """Expected number of rows, or of dims that own bits, that have each persistent feature."""
        return self.consensus.presence.sum(axis=0)

    @property
    def n_owners(self) -> int:
        """How many could have one: rows, or dims where these own the bits."""
        return self.n_rows

    def spaced(self, limit: int) -> list[tuple[int, int]]:
        """(chain, draw) of at most `limit` draws, evenly spaced over all chains."""
        return [divmod(int(i), self.n_draws) for i in evenly(self.n_chains * self.n_draws, limit)]

    def log_density(self, X: Array) -> Array:
        """log p(x_n | data) of new rows: the mean density over what is pooled."""
        parts = np.stack([predictor.encode(X).log_density for predictor in self.pooled()])
        return np.logaddexp.reduce(parts, axis=0) - math.log(len(parts))
