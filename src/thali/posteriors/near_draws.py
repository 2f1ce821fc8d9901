"""Draws of a prior whose rows are not exchangeable, as new rows see them that are near to some of the fitted ones."""

from typing import NamedTuple, Self

import numpy as np
from scipy.special import logit

from thali.core.codebook import Codebook, Encoded
from thali.core.observation import Observation
from thali.core.protocols.engines.predictions import Predictions
from thali.posteriors.draws import Draws

Array = np.ndarray

_SURE = 500.0  # log-odds beyond which a bit is certain


class NearPredictor(NamedTuple):
    """A `Predictor` with other odds for each row."""

    observation: Observation  # concrete
    codebook: Codebook
    log_odds: Array  # (n_rows, n_features)
    rate: Array  # (n_rows,)

    @property
    def engine(self) -> Predictions:
        """That of the observation model."""
        return self.observation.engine(Predictions)

    def encode(self, X: Array, rate: float | None = None) -> Encoded:
        """What it says of each row of X on its own."""
        rates = self.rate if rate is None else np.full(len(X), rate)
        rows = [
            self.engine.encode(X[i : i + 1], self.codebook, self.log_odds[i], float(rates[i])) for i in range(len(X))
        ]

        def together(values: list[Array | None]) -> Array | None:
            known = [value for value in values if value is not None]
            return np.concatenate(known) if known else None

        return Encoded(
            np.concatenate([row.presence for row in rows]),
            np.concatenate([row.codes for row in rows]),
            np.concatenate([row.log_density for row in rows]),
            together([row.draws for row in rows]),
            together([row.noise for row in rows]),
        )

    def new_codes(self, rng: np.random.Generator, n_rows: int) -> Array:
        """Codes of these rows, of which nothing but the distances is known."""
        return np.concatenate(
            [self.engine.new_codes(rng, self.codebook, log_odds, 1) for log_odds in self.log_odds[:n_rows]]
        )


class NearDraws(Draws):
    """`near[i, j]` is the distance of new row i from fitted row j.

    New rows come after the fitted ones: they link to these or to themselves, and none links to them. So each has the
    features of the row that it links to, independently for each feature.
    """

    def __init__(self, draws: Draws, near: Array) -> None:
        self.__dict__.update(draws.__dict__)
        self.__dict__.pop("encoder", None)
        self.near = near

    def of_new(self, rows: Array) -> Self:
        return type(self)(self, self.near[rows])

    def predictor(self, chain: int, draw: int, columns: Array | None = None) -> NearPredictor:  # type: ignore[override]
        model, codebook = self.concrete(chain, draw), self.codebook(chain, draw)
        chance, rate = model.prior.new_row_chances(self.near, self.bits(chain, draw))
        columns = np.arange(len(codebook.counts)) if columns is None else columns
        rate = rate + np.delete(chance, columns, axis=1).sum(axis=1)
        with np.errstate(divide="ignore"):
            log_odds = np.clip(logit(chance[:, columns]), -_SURE, _SURE)
        return NearPredictor(model.observation, codebook.columns(columns), log_odds, rate)
