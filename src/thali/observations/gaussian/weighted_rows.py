"""The row variables that chains of models with weights keep."""

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from thali.core.registry import stored
from thali.observations.gaussian.codebook import GaussianCodebook, WeightedCodebook
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.marginal import GaussianMarginal
from thali.observations.gaussian.rows import GaussianChain
from thali.observations.gaussian.weight_law import expected_scales, log_codes

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.gaussian.weighted import WeightedGaussian

Array = np.ndarray


@stored("WeightedRows")
class WeightedRows(NamedTuple):
    """Row variables of a model with weights, and the statistics that go with them."""

    z: Array  # (n_rows, n_features) uint8
    v: Array  # z * w
    gram: Array  # v'v
    cross: Array  # v'X in the data's units, hidden cells filled
    filled: Array  # the hidden cells (`GaussianData`), in row-major order


class WeightedChain(GaussianChain):
    """ChainRows of a model with weights."""

    model: "WeightedGaussian"

    def codes(self, local: WeightedRows) -> Array:
        return local.v

    def totals(self, local: WeightedRows) -> Array:
        return local.v.sum(axis=0)

    def rows(self, data: GaussianData, codes: Array, filled: Array) -> WeightedRows:
        V = np.ascontiguousarray(codes, dtype=float)
        return WeightedRows((V != 0).astype(np.uint8), V, *self.statistics(data, V, filled), filled)

    def log_evidence(self, data: GaussianData, local: WeightedRows) -> float:
        """log p(X, W | Z), features integrated out and missing cells at their current values."""
        return super().log_evidence(data, local) + log_codes(self.model, local.v)

    def codebook(self, data: GaussianData, local: WeightedRows) -> WeightedCodebook:
        """Each feature's largest value by its noise is made positive."""
        book = cast(GaussianCodebook, super().codebook(data, local))
        peak = np.abs(book.features / np.sqrt(self.model.noise_var)).argmax(axis=1)
        sign = np.where(book.features[np.arange(len(book.features)), peak] < 0, -1.0, 1.0)
        v = local.v[:, local.z.any(axis=0)] * sign
        return WeightedCodebook(
            book.features * sign[:, None],
            book.counts,
            book.gram_inv * np.outer(sign, sign),
            expected_scales(self.model, v),
            v[v != 0].astype(np.float32),
        )


class WeightedMarginal(GaussianMarginal):
    """MarginalRows of a model with weights."""

    model: "WeightedGaussian"

    def log_codes(self, codes: Array) -> float:
        return log_codes(self.model, codes)
