"""What a draw of sparse factor analysis says of rows that have Gaussian scores: everything in closed form."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular

from thali.core.codebook import Encoded
from thali.observations.row_codes import LikeRows
from thali.observations.sparse.codebook import LoadingsCodebook
from thali.rng import make_generator

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.sparse_factors import SparseFactorAnalysis

Array = np.ndarray
Generator = np.random.Generator

_DRAWS = 16  # of the scores of a row that are kept


class ScorePredictions(LikeRows):
    """Predictions of rows given the loadings of dims: x ~ N(offset, G G' + noise)."""

    codebook_kind = LoadingsCodebook
    model: "SparseFactorAnalysis"

    @property
    def origin(self) -> Array | None:
        return self.model.origin

    def codes(self, Z: Array, codebook: LoadingsCodebook) -> Array:
        """The scores of the fitted rows."""
        assert codebook.scores is not None
        return codebook.scores.T

    def marks(self, Z: Array, codebook: LoadingsCodebook) -> Array:
        """The loadings, in the units of the dims."""
        return (codebook.features / np.sqrt(self.model.unit_squares)).T

    def definite(self, rng: Generator, codebook: LoadingsCodebook) -> LoadingsCodebook:
        return codebook

    def encode(self, X: Array, codebook: LoadingsCodebook, log_odds: Array, new_rate: float) -> Encoded:
        """Every row has every factor."""
        K = len(codebook.features)
        seen = ~np.isnan(X)
        Y = np.where(seen, self._centred(X), 0.0)
        codes, log_density = np.zeros((len(X), K)), np.zeros(len(X))
        noise = codebook.noise
        unit_draws = make_generator(0).standard_normal((_DRAWS, K))
        draws = np.zeros((len(X), _DRAWS, K))
        for rows, dims in _patterns(seen):
            G, var, y = codebook.features[:, dims].T, noise[dims], Y[np.ix_(rows, dims)]
            scaled = G / var[:, None]
            L = np.linalg.cholesky(np.eye(K) + G.T @ scaled)
            half = solve_triangular(L, scaled.T @ y.T, lower=True) if K else np.zeros((0, len(rows)))
            # eq: NSFA.row-density
            square = np.sum(y * y / var, axis=1) - np.sum(half * half, axis=0)
            log_norm = len(dims) * math.log(2 * math.pi) + np.log(var).sum() + 2 * np.log(np.diag(L)).sum()
            log_density[rows] = -0.5 * (log_norm + square)
            if K:
                codes[rows] = solve_triangular(L, half, lower=True, trans="T").T
                draws[rows] = codes[rows][:, None] + solve_triangular(L, unit_draws.T, lower=True, trans="T").T
        return Encoded(np.ones_like(codes), codes, log_density, draws)

    def new_codes(self, rng: Generator, codebook: LoadingsCodebook, log_odds: Array, n_rows: int) -> Array:
        return rng.standard_normal((n_rows, len(codebook.features)))

    def features_var(self, codebook: LoadingsCodebook) -> Array:
        return np.zeros_like(codebook.features)

    def means(self, codes: Array, codebook: LoadingsCodebook) -> Array:
        rows = codes @ codebook.features
        return rows if self.model.offset is None else rows + self.model.offset

    def expected_rows(self, encoded: Encoded, codebook: LoadingsCodebook) -> Array:
        return self.means(encoded.codes, codebook)

    def log_cells(self, X: Array, codes: Array, codebook: LoadingsCodebook) -> Array:
        noise = codebook.noise
        left = self.model.from_origin(X) - self.means(codes, codebook)
        return -0.5 * (np.log(2 * np.pi * noise) + left**2 / noise)

    def sample_rows(self, rng: Generator, codes: Array, codebook: LoadingsCodebook, n_unknown: Array | int) -> Array:
        mean = self.means(codes, codebook)
        rows = mean + np.sqrt(codebook.noise) * rng.standard_normal(mean.shape)
        return rows if self.model.origin is None else rows + self.model.origin

    def _centred(self, X: Array) -> Array:
        X = self.model.from_origin(X)
        return X if self.model.offset is None else X - self.model.offset


def _patterns(seen: Array) -> Iterator[tuple[Array, Array]]:
    """(rows, dims that are seen) of the rows that see the same dims."""
    patterns, which = np.unique(seen, axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        yield np.flatnonzero(which.ravel() == i), np.flatnonzero(pattern)
