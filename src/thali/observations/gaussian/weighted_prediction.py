"""What a draw of a model with weights says of rows; new ones are encoded by sampling, with the same random numbers for
every row."""

import math
from typing import TYPE_CHECKING

import numpy as np

from thali.core.codebook import Encoded, with_weights
from thali.kernels.weights.encode_scaled import encode_scaled
from thali.observations.gaussian.codebook import WeightedCodebook
from thali.observations.gaussian.prediction import GaussianPredictions
from thali.observations.gaussian.weight_law import draw_scales
from thali.rng import make_generator

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.gaussian.weighted import WeightedGaussian

Array = np.ndarray
Generator = np.random.Generator

_SCANS, _KEPT, _PATHS, _TEMPERATURES = 100, 16, 8, 12
_NODES, _SIMULATED = 16, 8192  # of the power of unknown features


class WeightedPredictions(GaussianPredictions):
    """Predictions of a model with weights."""

    codebook_kind = WeightedCodebook
    model: "WeightedGaussian"

    def codes(self, Z: Array, codebook: WeightedCodebook) -> Array:
        assert codebook.weights is not None
        return with_weights(Z, codebook.weights)

    def definite(self, rng: Generator, codebook: WeightedCodebook) -> WeightedCodebook:
        """Features drawn: their posterior covers what is not known of them when several draws are averaged."""
        features = codebook.features
        root = np.linalg.cholesky(codebook.gram_inv) if len(features) else np.zeros((0, 0))
        noise = np.sqrt(self.model.noise_var) * (root @ rng.standard_normal(features.shape))
        return codebook.replace(features=features + noise, gram_inv=np.zeros_like(codebook.gram_inv))

    def encode(self, X: Array, codebook: WeightedCodebook, log_odds: Array, new_rate: float) -> Encoded:
        """Features and the scales of their weights are taken as given."""
        model = self.model
        noise, scale = model.units
        seen = ~np.isnan(X)
        features, scales = codebook.features, codebook.scales
        Y = model.from_origin(X)
        Y = np.where(seen, Y if model.offset is None else Y - model.offset, 0.0)
        change = np.zeros(len(X))
        if scale is not None:
            Y, features = Y / scale, features / scale
            change = seen @ np.log(scale)
        features = np.ascontiguousarray(features * scales[:, None])  # weights of scale 1 go with these
        log_odds = np.asarray(log_odds, float)
        shares, powers = _unknown_power(model, new_rate)
        presence, codes = np.zeros((len(X), len(features))), np.zeros((len(X), len(features)))
        draws, log_density = np.zeros((len(X), _KEPT, len(features))), np.zeros(len(X))
        for n in range(len(X)):
            presence[n], codes[n], draws[n], _, log_density[n] = encode_scaled(
                Y[n], seen[n], features, log_odds, noise, shares, float(model.feature_var) * powers, *model.law,
                _SCANS, _KEPT, _PATHS, _TEMPERATURES, make_generator(0),
            )  # fmt: skip
        return Encoded(presence, codes * scales, log_density - change, draws * scales)

    def codes_of(self, rng: Generator, Z: Array, codebook: WeightedCodebook) -> Array:
        return Z * self.model.draw_weights(rng, Z.shape) * codebook.scales

    def unknown_power(self, rng: Generator, n_unknown: Array | int, n_rows: int) -> Array:
        counts = np.broadcast_to(np.asarray(n_unknown, dtype=np.int64), n_rows)
        return unknown_power(rng, self.model, counts)


def unknown_power(rng: Generator, model: "WeightedGaussian", counts: Array) -> Array:
    """Sums of so many squared weights of features that no row has yet."""
    n = int(counts.sum())
    weights = model.draw_weights(rng, n) * draw_scales(rng, model, np.zeros((0, n)))
    return np.bincount(np.repeat(np.arange(len(counts)), counts), weights**2, len(counts))


def _unknown_power(model: "WeightedGaussian", new_rate: float) -> tuple[Array, Array]:
    """Probabilities and values of the sum of squared weights of Poisson(new_rate) unknown features, summed up by a few
    values of equal probability beside 0."""
    if new_rate <= 0:
        return np.ones(1), np.zeros(1)
    rng = make_generator(0)
    none = math.exp(-new_rate)
    counts = _at_least_one(rng, new_rate)
    nodes = np.quantile(unknown_power(rng, model, counts), (np.arange(_NODES) + 0.5) / _NODES)
    some = -math.expm1(-new_rate)
    return np.concatenate([[max(none, 1e-300)], np.full(_NODES, some / _NODES)]), np.concatenate([[0.0], nodes])


def _at_least_one(rng: np.random.Generator, rate: float) -> Array:
    """Poisson(rate) given that it is not 0: one event at a random time, and those after it."""
    first = -np.log1p(rng.random(_SIMULATED) * math.expm1(-rate))
    return 1 + rng.poisson(np.maximum(rate - first, 0.0))
