"""What a variational fit ends with, and what is expected under it."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from thali.core.codebook import Codebook
from thali.core.model import Model
from thali.core.protocols.engines.mean_field import FeatureDraws, MeanFieldRows
from thali.core.registry import stored
from thali.errors import InvalidParameterError

Array = np.ndarray


@stored("Factors")
class Factors(NamedTuple):
    """What a variational fit ends with; the first features of `weights` are those of the others."""

    local: Any  # the observation model's factors of the rows; the first is z_prob
    q: Any  # its factors of the features
    weights: Any  # the prior's
    bound: float


@stored("RowSums")
class RowSums(NamedTuple):
    """What is known of rows whose factors were not kept."""

    n_rows: int
    counts: Array  # (n_features,) expected numbers of rows


class Approximation:
    """q(Z, weights of rows) q(features) q(weights) of one model."""

    def __init__(self, model: Model, factors: Factors) -> None:
        """`model` is the spec that was fitted, adapted to the data."""
        self.spec, self.factors = model, factors
        self.has_bits = model.observation.has_bits
        self.by_rows = model.observation.owners == "rows"

    @property
    def engine(self) -> MeanFieldRows:
        """That of the observation model."""
        return self.spec.observation.engine(MeanFieldRows)

    @property
    def n_rows(self) -> int:
        """Rows that were fitted."""
        return self.n_owners if self.by_rows else len(self.codes)

    @property
    def n_owners(self) -> int:
        """Rows of Z: those of X, or its dims."""
        return len(self.factors.local.z_prob)

    @property
    def z_prob(self) -> Array:
        """P(row has feature), (n_rows, n_features): of all features, persistent or not. Of dims, if these own bits.

        In a model without bits those of q say what the prior says, and no more: every row has every feature.
        """
        z_prob = self.factors.local.z_prob
        return z_prob if self.has_bits else np.ones_like(z_prob)

    @cached_property
    def counts(self) -> Array:
        """Expected number of rows that have each feature."""
        return np.asarray(self.z_prob, dtype=float).sum(axis=0)

    @cached_property
    def in_use(self) -> Array:
        """P(some row has the feature) of each feature; that two dims have it, where these own the bits, since a factor
        of one dim is noise by another name."""
        if self.by_rows:
            with np.errstate(divide="ignore"):
                return -np.expm1(np.log1p(-np.asarray(self.z_prob, dtype=float)).sum(axis=0))  # eq: own.in-use
        lacked, alone = self._dims_without
        # eq: NSFA.in-use
        return np.clip(1.0 - lacked - np.sum(self.z_prob * alone, axis=0), 0.0, 1.0)

    @cached_property
    def _dims_without(self) -> tuple[Array, Array]:
        """P(no dim has the feature), and P(no other dim has it) for each dim."""
        logs = np.log1p(-np.minimum(self.z_prob, 1.0 - 1e-15))
        return np.exp(logs.sum(axis=0)), np.exp(logs.sum(axis=0) - logs)

    def presence(self, columns: Array) -> Array:
        """P(row, or dim, has feature | the feature is in use), of these features."""
        z_prob = np.asarray(self.z_prob, dtype=float)[:, columns]
        if not self.by_rows:
            z_prob = z_prob * (1.0 - self._dims_without[1][:, columns])
        return z_prob / self.in_use[columns]

    @cached_property
    def codes(self) -> Array:
        """E[z], or E[z w] where features have weights, of the fitted rows; or their scores, where dims own the bits."""
        if self.by_rows:
            return self.engine.expected_codes(self.factors.local)
        return self.engine.expected_features(self.factors.q).T

    @cached_property
    def codebook(self) -> Codebook:
        """What the features are."""
        return self.engine.codebook(self.factors.q, self.factors.local).replace(counts=self.counts)

    @cached_property
    def model(self) -> Model:
        """The model with its learned hyperparameters at their point, or at the mean of their factor."""
        prior = self.spec.prior
        values = {name: float(getattr(self.factors.weights, name).mean) for name in prior.learned}
        observation = self.engine.concrete(self.factors.q, self.factors.local)
        return Model(prior.replace(**values) if values else prior, observation)

    def drawn_codes(self, rng: np.random.Generator, rows: Array, n_draws: int) -> Iterator[Array]:
        """Codes of these fitted rows from q, so many times."""
        if not self.by_rows:
            engine = self.spec.observation.engine(FeatureDraws)
            return (engine.draw_values(rng, self.factors.q, rows) for _ in range(n_draws))
        local = self.rows(rows)
        return (self.engine.draw_rows(rng, local)[1] for _ in range(n_draws))

    def rows(self, rows: Array) -> Any:
        """The factors of these rows."""
        local = self.factors.local
        return type(local)(*(field[rows] for field in local))


class SummedApproximation(Approximation):
    """q(features) q(weights), and how many rows have each feature: `factors.local` has no rows."""

    def __init__(self, model: Model, factors: Factors, sums: RowSums) -> None:
        super().__init__(model, factors)
        self.sums = sums

    @property
    def n_rows(self) -> int:
        return self.sums.n_rows

    @cached_property
    def counts(self) -> Array:
        return self.sums.counts if self.has_bits else np.full(len(self.sums.counts), float(self.sums.n_rows))

    @cached_property
    def in_use(self) -> Array:
        """P(some row has the feature) of each feature, from below: prod (1 - p) <= exp(-sum p)."""
        return -np.expm1(-self.counts)  # eq: own.in-use-counts

    def rows(self, rows: Array) -> Any:
        raise rows_not_kept()


def rows_not_kept() -> InvalidParameterError:
    return InvalidParameterError(
        "Which row has which feature was not kept, since the rows were read in blocks. "
        "Use presence(X) or transform(X) for the rows that are wanted."
    )
