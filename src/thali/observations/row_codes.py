"""What of predictions is the same in all models in which the rows own the bits."""

from abc import abstractmethod
from typing import Any

import numpy as np
from scipy.special import expit

from thali.core.codebook import Encoded
from thali.core.observation import Engine

Array = np.ndarray


class LikeRows(Engine):
    """Rows like encoded ones have codes from their posterior, and nothing else that is known of them."""

    def sample_codes(self, rng: np.random.Generator, encoded: Encoded, owner: Array) -> Array:
        return encoded.sample(rng, owner)

    @abstractmethod
    def sample_rows(self, rng: np.random.Generator, codes: Array, codebook: Any, n_unknown: Array | int) -> Array: ...

    def sample_like(
        self, rng: np.random.Generator, encoded: Encoded, owner: Array, codebook: Any, known: Array
    ) -> Array:
        codes = self.sample_codes(rng, encoded, owner)
        return self.sample_rows(rng, codes, codebook, rng.random(len(owner)) > known[owner])


class RowCodes(LikeRows):
    """A part of Predictions."""

    @abstractmethod
    def codes(self, Z: Array, codebook: Any) -> Array: ...

    def marks(self, Z: Array, codebook: Any) -> Array:
        return self.codes(Z, codebook)

    def new_codes(self, rng: np.random.Generator, codebook: Any, log_odds: Array, n_rows: int) -> Array:
        Z = rng.random((n_rows, len(log_odds))) < expit(log_odds)
        return self.codes_of(rng, Z, codebook)

    def codes_of(self, rng: np.random.Generator, Z: Array, codebook: Any) -> Array:
        """Codes of rows with these bits, by what is known of the features."""
        codes: Array = self.model.draw_codes(rng, Z)
        return codes
