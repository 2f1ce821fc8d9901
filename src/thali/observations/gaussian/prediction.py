"""What a draw of a Gaussian model says of rows, its features integrated out.

With A_d | draw ~ N(features_d, noise_var_d gram_inv) and codes v, a row is N(offset + v features, noise_var (1 + v
gram_inv v')), cell by cell.
"""

from abc import abstractmethod
from typing import Any

import numpy as np

from thali.core.codebook import Encoded
from thali.kernels.bits.encode_rows import encode_rows
from thali.kernels.bits.encode_sampled import encode_sampled
from thali.observations.gaussian.codebook import GaussianCodebook
from thali.observations.gaussian.model import GaussianModel
from thali.observations.row_codes import RowCodes
from thali.rng import make_generator

Array = np.ndarray
Generator = np.random.Generator

_ENUMERATED = 8  # with more features new rows are encoded by sampling
_SCANS, _DRAWS = 120, 120


class GaussianPredictions(RowCodes):
    """CellMoments, and what of Predictions all Gaussian models share."""

    model: GaussianModel

    @property
    def origin(self) -> Array | None:
        return self.model.origin

    def means(self, codes: Array, codebook: Any) -> Array:
        return self.model.means(codes, codebook.features)

    def expected_rows(self, encoded: Encoded, codebook: Any) -> Array:
        return self.means(encoded.codes, codebook)

    def features_var(self, codebook: Any) -> Array:
        return np.diag(codebook.gram_inv)[:, None] * np.broadcast_to(self.model.noise_var, codebook.features.shape)

    def log_cells(self, X: Array, codes: Array, codebook: Any) -> Array:
        var = self.cell_var(codes, codebook)
        residual = self.model.from_origin(X) - self.model.means(codes, codebook.features)
        return -0.5 * (np.log(2 * np.pi * var) + residual**2 / var)

    def sample_rows(self, rng: Generator, codes: Array, codebook: Any, n_unknown: Array | int) -> Array:
        model = self.model
        unit = np.asarray(model.noise_var if model.per_dim else 1.0)
        power = np.reshape(self.unknown_power(rng, n_unknown, len(codes)), (-1, 1))
        var = self.cell_var(codes, codebook) + power * (model.feature_var * unit)
        mean = model.means(codes, codebook.features)
        rows = mean + np.sqrt(var) * rng.standard_normal(mean.shape)
        return rows if model.origin is None else rows + model.origin

    # ---- CellMoments

    def from_origin(self, X: Array) -> Array:
        return self.model.from_origin(X)

    def cell_moments(self, mean: Array, var: Array, codebook: Any) -> tuple[Array, Array, Array]:
        features, gram_inv = codebook.features, codebook.gram_inv
        noise = np.broadcast_to(self.model.noise_var, (len(mean), features.shape[1]))
        second = np.einsum("nk,nk->n", mean @ gram_inv, mean) + var @ np.diag(gram_inv)
        return self.model.means(mean, features), noise, noise * second[:, None] + var @ features**2

    @abstractmethod
    def unknown_power(self, rng: Generator, n_unknown: Array | int, n_rows: int) -> Any:
        """Sums of the squared codes of so many features that no row has yet, by row."""

    def cell_var(self, codes: Array, codebook: Any) -> Array:
        """Variance of each cell of rows with these codes, (n_rows, 1) or (n_rows, n_dims)."""
        # eq: own.cell-predictive
        return (1.0 + np.einsum("nk,nk->n", codes @ codebook.gram_inv, codes))[:, None] * self.model.noise_var


class BitPredictions(GaussianPredictions):
    """Predictions of a model whose codes are its bits."""

    codebook_kind = GaussianCodebook

    def codes(self, Z: Array, codebook: GaussianCodebook) -> Array:
        return Z

    def definite(self, rng: Generator, codebook: GaussianCodebook) -> GaussianCodebook:
        return codebook  # features are integrated out of `encode`

    def encode(self, X: Array, codebook: GaussianCodebook, log_odds: Array, new_rate: float) -> Encoded:
        model = self.model
        noise, scale = model.units
        observed = ~np.isnan(X)
        Y = np.where(observed, model.from_origin(X), 0.0)
        if model.offset is not None:
            Y = np.where(observed, Y - model.offset, 0.0)
        features = codebook.features
        change = np.zeros(len(X))
        if scale is not None:
            Y, features = Y / scale, features / scale
            change = observed @ np.log(scale)
        arguments = (
            np.ascontiguousarray(Y), observed, np.ascontiguousarray(features), codebook.gram_inv,
            np.asarray(log_odds, float), float(new_rate), noise, float(model.feature_var),
        )  # fmt: skip
        if len(features) <= _ENUMERATED:
            presence, log_density = encode_rows(*arguments)
        else:  # the same uniforms every time: encoding is a function of the row alone
            uniforms = make_generator(0).random((_SCANS + _DRAWS, len(features)))
            presence, log_density = encode_sampled(*arguments, uniforms[:_SCANS], uniforms[_SCANS:])
        return Encoded(presence, presence, log_density - change)

    def sample_codes(self, rng: Generator, encoded: Encoded, owner: Array) -> Array:
        """Bits of the rows `owner`, drawn independently by their probabilities."""
        return rng.random((len(owner), encoded.presence.shape[1])) < encoded.presence[owner]

    def unknown_power(self, rng: Generator, n_unknown: Array | int, n_rows: int) -> Any:
        return n_unknown
