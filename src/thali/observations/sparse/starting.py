"""Where chains of sparse factor analysis begin."""

from typing import TYPE_CHECKING

import numpy as np

from thali.core.distributions import NormalOffset
from thali.core.observation import Engine
from thali.core.protocols.engines.chains import ChainRows
from thali.observations.sparse.data import LoadingData
from thali.observations.sparse.rows import LoadingRows

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.sparse_factors import SparseFactorAnalysis

Array = np.ndarray


class SparseStart(Engine):
    """StartRows and FactorStart of sparse factor analysis."""

    model: "SparseFactorAnalysis"

    def start_factors(self, data: LoadingData) -> Array:
        return self.matrix(data)[0].T

    def matrix(self, data: LoadingData) -> tuple[Array, bool]:
        """With a row for each owner of loadings."""
        offset = self.model.offset
        centre = self.model.as_owned(offset.centre if isinstance(offset, NormalOffset) else offset)
        return np.where(data.missing, np.nan, data.Y) - centre, False

    def units(self, n_dims: int) -> Array | None:
        return None

    def begin(self, data: LoadingData, codes: Array, matrix: Array) -> tuple["SparseFactorAnalysis", LoadingRows]:
        """With loadings of such a size that the factors have the variance one."""
        model = self.model
        if isinstance(model.offset, NormalOffset):
            model = model.updated(offset=np.array(model.offset.centre, dtype=float))
        V = np.array(codes, dtype=float)
        Y = data.without(model.owned_offset())
        gram = V.T @ V + 1e-3 * np.eye(V.shape[1]) * max(np.mean(V * V), 1e-12) if V.size else np.zeros((0, 0))
        size = np.sqrt(np.mean(np.linalg.solve(gram, V.T @ Y) ** 2, axis=1)) if V.size else np.ones(V.shape[1])
        return model, model.engine(ChainRows).place(data, V * np.maximum(size, 1e-12), matrix)

    def tempered(self, factor: float) -> "SparseFactorAnalysis":
        """As it is: the noise is no parameter of the model but belongs to the rows."""
        return self.model
