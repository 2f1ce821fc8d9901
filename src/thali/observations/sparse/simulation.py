"""Data of sparse factor analysis, and the row variables that made them."""

from typing import TYPE_CHECKING

import numpy as np

from thali.core.binary import check_binary
from thali.core.observation import Engine
from thali.observations.sparse.rows import LoadingRows

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.sparse_factors import SparseFactorAnalysis

Array = np.ndarray
Generator = np.random.Generator


class SparseAuxiliary(Engine):
    """AuxiliaryRows of sparse factor analysis."""

    model: "SparseFactorAnalysis"

    def simulate_local(
        self, rng: Generator, Z: Array, n_dims: int, missing: Array | None = None
    ) -> tuple[Array, LoadingRows]:
        """`n_dims` is the number of values of a factor: that of rows, where dims own the bits."""
        return simulated(self.model, rng, Z, n_dims)


def simulated(
    model: "SparseFactorAnalysis",
    rng: Generator,
    Z: Array,
    n_values: int,
    factors: Array | None = None,
    loadings: Array | None = None,
) -> tuple[Array, LoadingRows]:
    """(X, row variables) of a concrete model; what is given of factors and loadings is not drawn."""
    Z = check_binary(Z)
    levels = model.laws.new_levels(rng)
    precisions = model.laws.new_precisions(rng, Z.shape[1], levels[0])
    V = Z * rng.standard_normal(Z.shape) / np.sqrt(precisions) if loadings is None else np.asarray(loadings, float)
    F = rng.standard_normal((Z.shape[1], n_values)) if factors is None else np.asarray(factors, float)
    noise = model.laws.new_noise(rng, len(Z), levels[1])
    Y = V @ F + np.sqrt(noise)[:, None] * rng.standard_normal((len(Z), n_values)) + model.owned_offset()
    X = np.ascontiguousarray(model.by_owner(Y)) * np.sqrt(model.unit_squares)
    X = X if model.origin is None else X + model.origin
    return X, LoadingRows((V != 0).astype(np.uint8), V, F, precisions, noise, levels)
