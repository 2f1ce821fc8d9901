"""What a draw of a likelihood without engines of its own says of rows, its features as they were drawn.

Features that no fitted row has are drawn from their prior, by the same random numbers every time, so that an answer is
a function of the row alone.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from thali.core.codebook import with_weights
from thali.observations.explicit.codebook import ExplicitCodebook
from thali.observations.explicit.encoding import RowEncoder
from thali.rng import make_generator

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.likelihood import Likelihood

Array = np.ndarray
Generator = np.random.Generator

_UNKNOWN = 64  # sets of unknown features
_BLOCK = 2**21  # cells at a time


class ExplicitPredictions(RowEncoder):
    """Predictions of any likelihood."""

    model: "Likelihood"
    codebook_kind = ExplicitCodebook
    origin = None

    def codes(self, Z: Array, codebook: ExplicitCodebook) -> Array:
        return Z if codebook.weights is None else with_weights(Z, codebook.weights)

    def definite(self, rng: Generator, codebook: ExplicitCodebook) -> ExplicitCodebook:
        """Features are values already; several draws show what is not known of them. A copy, to say so."""
        return codebook.replace()

    def features_var(self, codebook: ExplicitCodebook) -> Array:
        return np.zeros(codebook.features.shape)

    def means(self, codes: Array, codebook: ExplicitCodebook) -> Array:
        return self.model.reconstruct(np.asarray(codes, dtype=float), codebook.features)

    def log_cells(self, X: Array, codes: Array, codebook: ExplicitCodebook) -> Array:
        with np.errstate(invalid="ignore"):  # NaN where a cell is missing
            return self.model.log_cells(X, np.asarray(codes, dtype=float), codebook.features)

    def sample_rows(self, rng: Generator, codes: Array, codebook: ExplicitCodebook, n_unknown: Array | int) -> Array:
        dense = np.asarray(codes, dtype=float)
        counts = np.broadcast_to(np.asarray(n_unknown, dtype=np.int64), len(dense))
        n_dims = codebook.features.shape[1]
        rows = self.model.sample_cells(rng, dense, codebook.features)
        for n in np.flatnonzero(counts):
            fresh = self.model.draw_features(rng, int(counts[n]), n_dims)
            own = self.model.draw_codes(rng, np.ones((1, int(counts[n])), dtype=np.uint8)).astype(float)
            features = np.vstack([codebook.features, fresh])
            rows[n] = self.model.sample_cells(rng, np.hstack([dense[n : n + 1], own]), features)[0]
        return rows

    # ---- new rows

    def log_rows(self, X: Array, codes: Array, codebook: ExplicitCodebook, new_rate: float) -> Array:
        return np.array([self._log_likelihoods(x, codes, codebook.features, new_rate) for x in X])

    def _log_likelihoods(self, x: Array, codes: Array, features: Array, new_rate: float) -> Array:
        """log p(observed cells of x | codes), unknown features averaged out."""
        seen = ~np.isnan(x)
        if not seen.any():
            return np.zeros(len(codes))
        values = np.where(seen, x, x[seen][0])
        sets = [(0, 1.0)] if new_rate <= 0 else self._unknown_numbers(new_rate)
        rng, parts = make_generator(0), []
        for n_unknown, share in sets:
            fresh = self.model.draw_features(rng, n_unknown, len(x))
            own = self.model.draw_codes(rng, np.ones((1, n_unknown), dtype=np.uint8)).astype(float)
            whole = np.hstack([codes, np.repeat(own, len(codes), axis=0)])
            cells = self._cells(values, whole, np.vstack([features, fresh]))
            parts.append(math.log(share) + np.where(seen, cells, 0.0).sum(axis=1))
        return logsumexp(parts, axis=0)

    def _unknown_numbers(self, new_rate: float) -> list[tuple[int, float]]:
        """(a number of unknown features, the share of it): none, and draws of at least one."""
        none = math.exp(-new_rate)
        rng = make_generator(1)
        first = -np.log1p(rng.random(_UNKNOWN) * math.expm1(-new_rate))  # one at a random time, and those after it
        some = 1 + rng.poisson(np.maximum(new_rate - first, 0.0))
        return [(0, max(none, 1e-300))] + [(int(n), -math.expm1(-new_rate) / _UNKNOWN) for n in some]

    def _cells(self, x: Array, codes: Array, features: Array) -> Array:
        """Log density of the cells of a row for each of many codes."""
        size = max(_BLOCK // max(len(x), 1), 1)
        with np.errstate(all="ignore"):
            parts = [
                self.model.log_cells(np.repeat(x[None], len(some), axis=0), some, features)
                for some in np.split(codes, range(size, len(codes), size))
            ]
        return np.concatenate(parts)
