"""How new rows are encoded where all that is known is the likelihood of a row given codes.

Bits are summed out where there are few; else codes are drawn from their prior and weighted by the likelihood, by the
same random numbers every time, so that an answer is a function of the row alone.
"""

import itertools
import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, logsumexp

from thali.core.codebook import Encoded
from thali.observations.row_codes import RowCodes
from thali.rng import make_generator

Array = np.ndarray

_DRAWS = 2000  # of codes, if there are more bits or weights
_KEPT = 64  # codes of a row that stand for its posterior
_BLOCK = 2**22  # likelihoods held at a time


class RowEncoder(RowCodes):
    """What of Predictions follows from the likelihood of rows."""

    enumerated: ClassVar[int] = 8  # bits

    @abstractmethod
    def log_rows(self, X: Array, codes: Array, codebook: Any, new_rate: float) -> Array:
        """log p(observed cells of a row | codes), unknown features averaged out, (n_rows, n_codes)."""

    @abstractmethod
    def means(self, codes: Array, codebook: Any) -> Array: ...

    def encode(self, X: Array, codebook: Any, log_odds: Array, new_rate: float) -> Encoded:
        log_odds = np.asarray(log_odds, dtype=float)
        codes, log_prior = self._candidates(log_odds)
        n_rows, K = len(X), len(log_odds)
        presence, expected, log_density = np.zeros((n_rows, K)), np.zeros((n_rows, K)), np.zeros(n_rows)
        draws = np.zeros((n_rows, _KEPT, K))
        size = max(_BLOCK // len(codes), 1)
        evenly = (np.arange(_KEPT) + 0.5) / _KEPT
        for first in range(0, n_rows, size):
            some = slice(first, min(first + size, n_rows))
            log_weight = log_prior + self.log_rows(X[some], codes, codebook, new_rate)
            log_density[some] = top = logsumexp(log_weight, axis=1)
            with np.errstate(invalid="ignore"):  # a row that no codes can have made
                share = np.exp(log_weight - top[:, None])
            share = np.where(np.isfinite(top)[:, None], share, 1.0 / len(codes))
            presence[some], expected[some] = share @ (codes != 0), share @ codes
            for n, up_to in enumerate(np.cumsum(share, axis=1), start=first):
                draws[n] = codes[np.minimum(np.searchsorted(up_to, evenly * up_to[-1]), len(codes) - 1)]
        return Encoded(presence, presence if self.model.code_kind == "bits" else expected, log_density, draws)

    def _candidates(self, log_odds: Array) -> tuple[Array, Array]:
        """(codes that a row may have, the logarithm of how much each counts)."""
        K = len(log_odds)
        if self.model.code_kind == "bits" and self.enumerated >= K:
            bits = np.array(list(itertools.product((0.0, 1.0), repeat=K))).reshape(2**K, K)
            return bits, bits @ log_odds - np.logaddexp(0.0, log_odds).sum()
        rng = make_generator(0)
        Z = (rng.random((_DRAWS, K)) < expit(log_odds)).astype(np.uint8)
        return self.model.draw_codes(rng, Z).astype(float), np.full(_DRAWS, -math.log(_DRAWS))

    def expected_rows(self, encoded: Encoded, codebook: Any) -> Array:
        """The mean over codes from their posterior: means need not be linear in codes."""
        assert encoded.draws is not None
        return np.mean([self.means(codes, codebook) for codes in encoded.draws.swapaxes(0, 1)], axis=0)
