"""What a Gaussian model predicts from one posterior draw: cells and features, the features integrated out."""

from typing import Any

import numpy as np

Array = np.ndarray


class GaussianPrediction:
    """For a concrete model X = offset + V A + noise with A_d | draw ~ N(features_d, noise_var_d gram_inv).

    Given a draw and codes v, a row is N(offset + v features, noise_var (1 + v gram_inv v')), cell by cell.
    """

    noise_var: Any
    feature_var: Any
    per_dim: Any
    origin: Any
    from_origin: Any
    means: Any

    def features_var(self, codebook: dict[str, Array]) -> Array:
        """Posterior variance of each feature's values, (n_features, n_dims)."""
        shape = codebook["features"].shape
        return np.diag(codebook["gram_inv"])[:, None] * np.broadcast_to(self.noise_var, shape)

    def log_cells(self, X: Array, codes: Array, codebook: dict[str, Array]) -> Array:
        """Log density of each cell of rows with these codes."""
        var = self._cell_var(codes, codebook)
        residual = self.from_origin(X) - self.means(codes, codebook["features"])
        return -0.5 * (np.log(2 * np.pi * var) + residual**2 / var)

    def sample_rows(self, rng: np.random.Generator, codes: Array, codebook: dict[str, Array], n_unknown: Any) -> Array:
        """A row for each row of codes, with `n_unknown` features from their prior beside the known ones."""
        unit = np.asarray(self.noise_var if self.per_dim else 1.0)
        var = self._cell_var(codes, codebook) + np.reshape(n_unknown, (-1, 1)) * (self.feature_var * unit)
        mean = self.means(codes, codebook["features"])
        rows = mean + np.sqrt(var) * rng.standard_normal(mean.shape)
        return rows if self.origin is None else rows + self.origin

    def _cell_var(self, codes: Array, codebook: dict[str, Array]) -> Array:
        # eq: own.cell-predictive
        return (1.0 + np.einsum("nk,nk->n", codes @ codebook["gram_inv"], codes))[:, None] * self.noise_var
