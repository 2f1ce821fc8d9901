"""The posterior of a filter that forgot its rows: a factor of each feature, and how many rows have it."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, NoReturn

import numpy as np
from scipy.special import logit
from scipy.stats import poisson

from thali.core.codebook import Codebook
from thali.core.model import Model
from thali.core.observation import Observation
from thali.core.protocols.engines.predictions import Predictions
from thali.core.protocols.engines.recursive import Known, RecursiveRows, RowLaw
from thali.posteriors.approximation import rows_not_kept
from thali.posteriors.base import POOLED, Posterior, Predictor
from thali.posteriors.representative import PERSISTENT, Consensus
from thali.rng import make_generator

Array = np.ndarray


class Running(NamedTuple):
    """What is known of the rows."""

    n_rows: int
    weight: float  # of the rows, discounted
    counts: Array  # (n_features,) expected rows with the feature, discounted
    exists: Array  # (n_features,) P(it has appeared)


class RecursivePosterior(Posterior):
    """q(features) and the running sums of the prior. Rows that were fitted are predicted as new ones."""

    n_chains = 1
    n_draws = 1

    def __init__(self, model: Model, law: RowLaw, known: Known) -> None:
        """What is known has a concrete observation model; `model` may have distributions where that has numbers."""
        self.model, self.law, self._known = model, law, known
        self.running = Running(known.n_rows, known.weight, known.counts, known.exists)
        self._observation, self._book = known.observation, self._engine.codebook(known)

    @property
    def _engine(self) -> RecursiveRows:
        return self.model.observation.engine(RecursiveRows)  # type: ignore[no-any-return]

    @property
    def n_rows(self) -> int:
        return self.running.n_rows

    @property
    def k_posterior(self) -> dict[int, float]:
        """P(number of features so far = K), as the births of the filter see it: eq: S22.number."""
        exists = self.running.exists
        K = len(exists)
        if self.law.births == "anchored":
            return {K: 1.0}
        if self.law.births == "poisson":
            expected = float(exists.sum())
            most = int(poisson.isf(1e-13, expected)) if expected > 0 else 0
            law = poisson.pmf(np.arange(most + 1), expected)
        elif self.law.births == "comonotone":
            falling = np.concatenate([[1.0], -np.sort(-exists), [0.0]])
            law = -np.diff(falling)
        else:
            law = np.ones(1)
            for chance in exists:
                law = np.append(law, 0.0) * (1 - chance) + np.append(0.0, law) * chance
        return {k: float(p) for k, p in enumerate(law) if p > 1e-12}

    @cached_property
    def draws(self) -> dict[str, Array]:
        """One entry: the number of features that persist, the expected number of ones in Z, learned hyperparameters."""
        found = {
            "n_features": np.array([[len(self.consensus.columns)]]),
            "n_on": np.array([[round(float(self.running.counts.sum()))]]),
        }
        for name in self.model.observation.learned:
            found[name] = np.array([[float(np.mean(getattr(self._observation, name)))]])
        if "mass" in self.model.prior.learned:
            found["mass"] = np.array([[self.law.mass]])
        return found

    @cached_property
    def consensus(self) -> Consensus:
        """Features that some row has with a probability above one half, the most frequent first."""
        counts, exists = self.running.counts, self.running.exists
        order = np.argsort(-counts, kind="stable")
        columns = order[exists[order] > PERSISTENT]
        spread = self._observation.engine(Predictions).features_var(self._book.columns(columns))
        none = np.zeros((0, len(columns)))
        return Consensus(
            0, 0, columns, exists[columns], exists[columns], none, none, np.sqrt(spread), np.array([len(columns)])
        )

    @property
    def row_counts(self) -> Array:
        return self.running.counts[self.consensus.columns]

    def concrete(self, chain: int, draw: int) -> Model:
        prior = self.model.prior
        return Model(prior.replace(mass=self.law.mass) if prior.learned else prior, self._observation)

    def codebook(self, chain: int, draw: int) -> Codebook:
        return self._book

    def fitted_draws(self, rows: Array, limit: int) -> Iterator[tuple[Observation, Array, Codebook]]:
        raise rows_not_kept()

    def bits(self, chain: int, draw: int) -> NoReturn:
        raise rows_not_kept()

    @cached_property
    def persistent(self) -> Codebook:
        return self._book.columns(self.consensus.columns)

    @cached_property
    def encoder(self) -> Predictor:
        return self.predictor(0, 0, self.consensus.columns)

    @cached_property
    def _chances(self) -> Array:
        """P(the next row has feature k), for the known features and enough new ones."""
        prior, running = self.concrete(0, 0).prior, self.running
        sums = prior.start_running()._replace(n_rows=running.weight, counts=running.counts, exists=running.exists)
        return prior.next_row(sums, self.law.births)  # type: ignore[no-any-return]

    def predictor(self, chain: int, draw: int, columns: Array | None = None) -> Predictor:
        """How the next row is seen: it has the features so far with the chances of the filter, and as many new ones as
        it expects, by a Poisson law."""
        K = len(self.running.counts)
        columns = np.arange(K) if columns is None else columns
        chance = np.clip(self._chances, 1e-12, 1 - 1e-12)
        rate = float(np.delete(self._chances, columns).sum())
        return Predictor(self._observation, self._book.columns(columns), logit(chance[columns]), rate)

    def log_density(self, X: Array, how: str = "auto", n_samples: int = 200) -> Array:
        """log p of each row of X as the next one; features are integrated out.

        "auto" is exact with few features and no weights, else by importance sampling ("importance"); "marginal" draws
        codes from their law; "joint" draws the features, too: the estimate of Schaeffer et al. 2022."""
        return self._engine.log_density(self._known, X, self._chances, how, n_samples)

    def pooled(self) -> list[Predictor]:
        """One that has the features integrated out, or several with features drawn from q."""
        one, rng = self.predictor(0, 0), make_generator(0)
        books = [one.engine.definite(rng, one.codebook)]
        if books[0] is not one.codebook:
            books += [one.engine.definite(rng, one.codebook) for _ in range(POOLED - 1)]
        return [one._replace(codebook=book) for book in books]

    def is_finite(self) -> bool:
        return all(bool(np.isfinite(values).all()) for values in (*self._book.arrays().values(), *self.running[2:]))
