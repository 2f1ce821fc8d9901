"""The marginal of data given codes by simulation, and data with the features that made them: for tests."""

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from thali.core.observation import Engine
from thali.observations.explicit.rows import ExplicitChain, ExplicitData, ExplicitRows
from thali.rng import make_generator

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.likelihood import Likelihood

Array = np.ndarray
Generator = np.random.Generator

N_DRAWS = 20_000  # of the features of a dim
_BLOCK = 2**20  # numbers held at a time


class ExplicitMarginal(Engine):
    """MarginalRows and AuxiliaryRows of any likelihood."""

    model: "Likelihood"

    def log_marginal(self, X: Array, codes: Array) -> float:
        """Each dim is averaged over the same draws of its features from their prior."""
        self.model.require_concrete("log_marginal")
        data = ExplicitChain(self.model).prepare(self.model.check_data(X))
        dense, n_dims = np.asarray(codes, dtype=float), data.n_dims
        if dense.shape[1] == 0:
            cells = self.model.log_cells(data.X, dense, np.zeros((0, n_dims)))
            return float(np.where(data.seen, cells, 0.0).sum())
        features = self.model.draw_features(make_generator(0), N_DRAWS * dense.shape[1], n_dims)
        draws = features.reshape(N_DRAWS, dense.shape[1], n_dims)
        alike = all(np.ndim(value) == 0 for value in self.model.get_params(deep=False).values())
        size = max(_BLOCK // data.X.size, 1) if alike else 1  # where dims have no parameters of their own, side by side
        parts = [self._by_dim(data, dense, draws[first : first + size]) for first in range(0, N_DRAWS, size)]
        return float(np.sum(logsumexp(np.concatenate(parts), axis=0) - math.log(N_DRAWS)))

    def _by_dim(self, data: ExplicitData, codes: Array, draws: Array) -> Array:
        """Log density of the observed cells of each dim, (n_draws, n_dims)."""
        n_draws, _, n_dims = draws.shape
        wide = np.tile(data.X, (1, n_draws))
        features = np.moveaxis(draws, 1, 0).reshape(draws.shape[1], n_draws * n_dims)
        cells = self.model.log_cells(wide, codes, features)
        return np.where(np.tile(data.seen, (1, n_draws)), cells, 0.0).sum(axis=0).reshape(n_draws, n_dims)

    def log_codes(self, codes: Array) -> float:
        return float(self.model.log_codes(np.asarray(codes, dtype=float)))

    def simulate_local(
        self, rng: Generator, Z: Array, n_dims: int, missing: Array | None = None
    ) -> tuple[Array, ExplicitRows]:
        codes = self.model.draw_codes(rng, Z).astype(float)
        features = self.model.draw_features(rng, Z.shape[1], n_dims)
        X = self.model.sample_cells(rng, codes, features)
        X = X if missing is None else np.where(missing, 0.0, X)
        return X, ExplicitRows(np.asarray(Z, dtype=np.uint8), codes, features)
