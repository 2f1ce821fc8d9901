"""The posterior of a variational fit: factors of rows, features and weights, from which draws are made when asked for.

Draw number i is always the same. All draws share the factor of the features, which predictions integrate out.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import logit

from thali.core.binary import column_counts
from thali.core.codebook import Codebook
from thali.core.model import Model
from thali.core.observation import Observation
from thali.core.protocols.engines.predictions import Predictions
from thali.posteriors.approximation import Approximation
from thali.posteriors.base import POOLED, Posterior, Predictor
from thali.posteriors.representative import PERSISTENT, Consensus
from thali.rng import make_generator

Array = np.ndarray

_CELLS, _FEWEST, _MOST = 10**8, 10, 1000  # bits of all draws, and how many draws there are
_SEED = 20090001  # of the draws: they are a function of the posterior alone


class Variational(Posterior):
    """q(Z, weights of rows) q(features) q(weights), with learned hyperparameters of the observation model at a point.

    `bound` is a lower bound of log p(X) (of p(X, hyperparameters), for those at a point).
    """

    n_chains = 1

    def __init__(self, q: Approximation) -> None:
        self.q = q
        self.model, self.factors = q.spec, q.factors
        size = max(self.z_prob.size, 1)
        self.n_draws = int(np.clip(_CELLS // size, _FEWEST, _MOST))
        self._last: list[Any] = [None, None]  # the number of the last draw, and the draw

    @property
    def n_rows(self) -> int:
        return self.q.n_rows

    @property
    def n_owners(self) -> int:
        return self.n_rows if self.q.by_rows else self.q.n_owners

    @property
    def z_prob(self) -> Array:
        """P(row has feature) under q, (n_rows, n_features): of all features, persistent or not; of dims, if these own
        the bits."""
        return self.q.z_prob

    @property
    def bound(self) -> float:
        return self.factors.bound

    @property
    def ibp_bound(self) -> float | None:
        """The bound of the infinite model, of which `bound` has a truncation; None if the prior knows none."""
        known = getattr(self.model.prior, "tail_correction", None)
        correction = None if known is None else known(self.factors.weights, self.n_owners)
        return None if correction is None else self.bound + correction

    # ---- one draw

    def _draw(self, chain: int, draw: int) -> tuple[Array, Array]:
        i = range(self.n_chains)[chain] * self.n_draws + range(self.n_draws)[draw]
        if self._last[0] != i:
            rng = make_generator(_SEED + i)
            self._last[:] = i, self.q.engine.draw_rows(rng, self.factors.local)
        return self._last[1]

    def Z(self, chain: int, draw: int) -> Array:  # noqa: N802 (the matrix has this name)
        """Z of one draw, (n_rows, n_features) uint8; features that no row has in it included."""
        return self._draw(chain, draw)[0]

    @property
    def _least(self) -> int:
        """Rows, or dims, that a feature in use has: what one dim has alone is part of its noise."""
        return 1 if self.q.by_rows else 2

    def _used(self, chain: int, draw: int) -> Array:
        return np.flatnonzero(column_counts(self.Z(chain, draw)) >= self._least)

    def bits(self, chain: int, draw: int) -> Array:
        """Z of one draw without columns that are not in use."""
        return self.Z(chain, draw)[:, self._used(chain, draw)]

    def codes(self, chain: int, draw: int) -> Array:
        """Codes of the fitted rows in one draw: its bits, or its weights where they are on; or the expected scores."""
        codes = self._draw(chain, draw)[1] if self.q.by_rows else self.q.codes
        return codes[:, self._used(chain, draw)]

    def marks(self, chain: int, draw: int) -> Array:
        """What tells the features of one draw apart: the codes of all that own bits."""
        return self._draw(chain, draw)[1][:, self._used(chain, draw)]

    def codebook(self, chain: int, draw: int) -> Codebook:
        """What the features in use in one draw are."""
        return self.q.codebook.columns(self._used(chain, draw))

    def concrete(self, chain: int, draw: int) -> Model:
        return self.q.model

    def fitted_draws(self, rows: Array, limit: int) -> Iterator[tuple[Observation, Array, Codebook]]:
        drawn = self.q.drawn_codes(make_generator(_SEED), rows, limit)
        book = self.q.codebook.rows(rows)
        for codes in drawn:
            yield self.q.model.observation, codes, book

    def fitted_mean(self, rows: Array) -> Array:
        """Expected cells of these fitted rows."""
        codes = self.q.codes[rows]
        return self.q.model.observation.reconstruct(codes, self.q.codebook.features)

    @cached_property
    def draws(self) -> dict[str, Array]:
        """Label-invariant quantities of each draw as (chain, draw); hyperparameters are the same in all of them."""
        Z = (self.Z(0, i) for i in range(self.n_draws))
        counts = [column_counts(z) for z in Z]
        draws = {
            "n_features": np.array([[np.count_nonzero(n >= self._least) for n in counts]]),
            "n_on": np.array([[n.sum() for n in counts]]),
        }
        for part in ("prior", "observation"):
            for name in getattr(self.model, part).learned:
                value = float(np.mean(getattr(getattr(self.q.model, part), name)))
                draws[name] = np.full((1, self.n_draws), value)
        return draws

    # ---- summaries

    @property
    def k_posterior(self) -> dict[int, float]:
        """P(number of features in use = K): features are independent under q."""
        law = np.ones(1)
        for chance in self.q.in_use:
            law = np.append(law, 0.0) * (1 - chance) + np.append(0.0, law) * chance  # eq: own.poisson-binomial
        return {k: float(p) for k, p in enumerate(law) if p > 1e-12}

    @cached_property
    def consensus(self) -> Consensus:
        """Features that some row has with a probability above one half, the most frequent first."""
        counts = self.q.codebook.counts
        order = np.argsort(-counts, kind="stable")
        columns = order[self.q.in_use[order] > PERSISTENT]
        chance = self.q.in_use[columns]
        spread = self.q.model.observation.engine(Predictions).features_var(self.q.codebook.columns(columns))
        presence = self.q.presence(columns)
        given = chance if self.q.by_rows else 1.0  # scores are there whether or not a dim has the factor
        codes = presence if self.codes_are_bits else np.asarray(self.q.codes, dtype=float)[:, columns] / given
        return Consensus(0, 0, columns, chance, chance, presence, codes, np.sqrt(spread), np.array([len(columns)]))

    @property
    def row_counts(self) -> Array:
        return self.q.codebook.counts[self.consensus.columns] / self.consensus.stability

    # ---- new rows

    def predictor(self, chain: int, draw: int, columns: Array | None = None) -> Predictor:
        """The same for all draws: weights at their expectation, features as in q.

        Unknown are the features that the truncation leaves unused, and those that are not among `columns`.
        """
        columns = np.arange(self.z_prob.shape[1]) if columns is None else columns
        if not self.q.by_rows:  # a new row brings no bits
            return Predictor(self.q.model.observation, self.q.codebook.columns(columns), np.zeros(len(columns)), 0.0)
        weights = self.model.prior.expected_weights(self.factors.weights)
        weights = np.clip(weights, 1e-300, 1 - 1e-16)
        rate = float(np.delete(weights, columns).sum()) if self.q.has_bits else 0.0  # else it has them already
        book = self.q.codebook.columns(columns)
        return Predictor(self.q.model.observation, book, logit(weights[columns]), rate)

    @cached_property
    def persistent(self) -> Codebook:
        return self.q.codebook.columns(self.consensus.columns)

    @cached_property
    def encoder(self) -> Predictor:
        return self.predictor(0, 0, self.consensus.columns)

    def pooled(self) -> list[Predictor]:
        """One that has the features integrated out, or several with features drawn from q."""
        one, rng = self.predictor(0, 0), make_generator(0)
        books = [one.engine.definite(rng, one.codebook)]
        if books[0] is not one.codebook:
            books += [one.engine.definite(rng, one.codebook) for _ in range(POOLED - 1)]
        return [one._replace(codebook=book) for book in books]

    def is_finite(self) -> bool:
        values = (self.z_prob, *self.q.codebook.arrays().values(), np.array(self.bound))
        return all(bool(np.isfinite(value).all()) for value in values)
