"""What a draw of sparse factor analysis says of rows that own their loadings, each with a noise level of its own.

The noise of a new row is summed out over a fine grid, together with the factors that no fitted row has: such factors
add a variance to all cells alike.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammainccinv, gammaincinv

from thali.core.codebook import Encoded, with_weights
from thali.kernels.weights.encode_scaled import encode_scaled
from thali.observations.row_codes import RowCodes
from thali.observations.sparse.codebook import FactorsCodebook
from thali.observations.sparse.row_enumeration import MOST, encode_listed
from thali.rng import make_generator

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.sparse_factors import SparseFactorAnalysis

Array = np.ndarray
Generator = np.random.Generator

_SCANS, _KEPT, _PATHS, _TEMPERATURES = 100, 16, 8, 12
_STEP = 0.05  # of the logarithm of a variance
_TAIL = 1e-9  # of the law of the noise, beyond which the grid ends
_NODES, _SIMULATED = 16, 8192  # of the variance with unknown factors
_MOST = 2000  # points of the grid


class LoadingPredictions(RowCodes):
    """Predictions of rows given the factors: x ~ N(offset + v F, noise of the row)."""

    codebook_kind = FactorsCodebook
    model: "SparseFactorAnalysis"

    @property
    def origin(self) -> Array | None:
        return self.model.origin

    def codes(self, Z: Array, codebook: FactorsCodebook) -> Array:
        assert codebook.weights is not None
        return with_weights(Z, codebook.weights)

    def codes_of(self, rng: Generator, Z: Array, codebook: FactorsCodebook) -> Array:
        return Z * rng.standard_normal(Z.shape) / np.sqrt(codebook.precisions)

    def definite(self, rng: Generator, codebook: FactorsCodebook) -> FactorsCodebook:
        return codebook

    def encode(self, X: Array, codebook: FactorsCodebook, log_odds: Array, new_rate: float) -> Encoded:
        model, scales = self.model, 1.0 / np.sqrt(codebook.precisions)
        units = np.sqrt(model.unit_squares)
        seen = ~np.isnan(X)
        Y = model.from_origin(X) if model.offset is None else model.from_origin(X) - model.offset
        Y = np.where(seen, Y / units, 0.0)
        features = np.ascontiguousarray(codebook.features / units * scales[:, None])
        shares, variances = total_noise(model, codebook, new_rate)
        K = len(features)
        if K <= MOST:
            listed = encode_listed(Y, seen, features, np.asarray(log_odds, dtype=float), shares, variances)
            return self._in_units(listed, scales, seen)
        presence, codes = np.zeros((len(X), K)), np.zeros((len(X), K))
        draws, log_density = np.zeros((len(X), _KEPT, K)), np.zeros(len(X))
        noise = np.zeros((len(X), _KEPT))
        for n in range(len(X)):
            presence[n], codes[n], draws[n], noise[n], log_density[n] = encode_scaled(
                Y[n], seen[n], features, np.asarray(log_odds, dtype=float), 0.0, shares, variances,
                0.0, 1.0, 0.5 * math.log(2 * math.pi), _SCANS, _KEPT, _PATHS, _TEMPERATURES, make_generator(0),
            )  # fmt: skip
        return self._in_units(Encoded(presence, codes, log_density, draws, noise), scales, seen)

    def _in_units(self, encoded: Encoded, scales: Array, seen: Array) -> Encoded:
        """Codes with the scales of their factors, densities in the units of the data."""
        assert encoded.draws is not None
        change = 0.5 * (seen * np.log(self.model.unit_squares)).sum(axis=1)
        return encoded._replace(
            codes=encoded.codes * scales, log_density=encoded.log_density - change, draws=encoded.draws * scales
        )

    def features_var(self, codebook: FactorsCodebook) -> Array:
        return np.zeros_like(codebook.features)

    def means(self, codes: Array, codebook: FactorsCodebook) -> Array:
        rows = codes @ codebook.features
        return rows if self.model.offset is None else rows + self.model.offset

    def expected_rows(self, encoded: Encoded, codebook: FactorsCodebook) -> Array:
        return self.means(encoded.codes, codebook)

    def log_cells(self, X: Array, codes: Array, codebook: FactorsCodebook) -> Array:
        """Of fitted rows, whose noise is known to a draw."""
        assert codebook.noise is not None
        var = codebook.noise[:, None] * self.model.unit_squares
        left = self.model.from_origin(X) - self.means(codes, codebook)
        return -0.5 * (np.log(2 * np.pi * var) + left**2 / var)

    def sample_rows(self, rng: Generator, codes: Array, codebook: FactorsCodebook, n_unknown: Array | int) -> Array:
        """Rows that are not among the fitted ones get a noise from its law."""
        noise = codebook.noise
        if noise is None:
            counts = np.broadcast_to(np.asarray(n_unknown, dtype=np.int64), len(codes))
            noise = self.model.laws.new_noise(rng, len(codes), float(codebook.levels[1])) + _power(
                rng, self.model, codebook, counts
            )
        return self._rows(rng, codes, codebook, noise)

    def sample_like(
        self, rng: Generator, encoded: Encoded, owner: Array, codebook: FactorsCodebook, known: Array
    ) -> Array:
        """Codes and noise of a row go together, and unknown factors are part of its noise."""
        assert encoded.draws is not None
        assert encoded.noise is not None
        which = rng.integers(encoded.draws.shape[1], size=len(owner))
        return self._rows(rng, encoded.draws[owner, which], codebook, encoded.noise[owner, which])

    def _rows(self, rng: Generator, codes: Array, codebook: FactorsCodebook, noise: Array) -> Array:
        mean = self.means(codes, codebook)
        rows = mean + np.sqrt(noise[:, None] * self.model.unit_squares) * rng.standard_normal(mean.shape)
        return rows if self.model.origin is None else rows + self.model.origin


def total_noise(model: "SparseFactorAnalysis", codebook: FactorsCodebook, new_rate: float) -> tuple[Array, Array]:
    """Probabilities and values of the variance that noise and Poisson(new_rate) unknown factors give a new row."""
    variances, shares = _noise_grid(model, float(codebook.levels[1]), codebook.features.shape[1])
    if new_rate <= 0:
        return shares, variances
    rng = make_generator(0)
    first = -np.log1p(rng.random(_SIMULATED) * math.expm1(-new_rate))  # one at a random time, and those after it
    counts = 1 + rng.poisson(np.maximum(new_rate - first, 0.0))
    total = model.laws.new_noise(rng, _SIMULATED, float(codebook.levels[1])) + _power(rng, model, codebook, counts)
    some = np.quantile(total, (np.arange(_NODES) + 0.5) / _NODES)
    none = math.exp(-new_rate)
    shares = np.concatenate([max(none, 1e-300) * shares, np.full(_NODES, -math.expm1(-new_rate) / _NODES)])
    return shares, np.concatenate([variances, some])


def _noise_grid(model: "SparseFactorAnalysis", level: float, n_dims: int) -> tuple[Array, Array]:
    """Variances of a row's noise on a grid of their logarithms, and the probability of each.

    The grid is so fine that the posterior of a row's noise is smooth on it: its logarithm has the variance 2 / n_dims.
    """
    if not model.laws.learns_noise:
        return np.array([float(model.noise_var)]), np.ones(1)
    shape = model.noise_var.shape
    lowest = max(shape * level / gammainccinv(shape, _TAIL), model.noise_floor)
    highest = max(shape * level / gammaincinv(shape, _TAIL), 1.1 * lowest)
    step = min(_STEP, math.sqrt(2.0 / n_dims))
    n_points = min(int(math.log(highest / lowest) / step) + 2, _MOST)
    grid = np.linspace(math.log(lowest), math.log(highest), n_points)
    log_mass = -shape * grid - shape * level * np.exp(-grid)
    mass = np.exp(log_mass - log_mass.max())
    return np.exp(grid), np.maximum(mass / mass.sum(), 1e-300)


def _power(rng: Generator, model: "SparseFactorAnalysis", codebook: FactorsCodebook, counts: Array) -> Array:
    """Sums of so many squared loadings of factors that no row has yet."""
    n = int(counts.sum())
    precisions = model.laws.new_precisions(rng, n, float(codebook.levels[0]))
    squares = rng.standard_normal(n) ** 2 / precisions
    return np.bincount(np.repeat(np.arange(len(counts)), counts), squares, len(counts))
