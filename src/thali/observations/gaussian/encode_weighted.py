"""New rows of a model with weights: each on its own, by sampling with the same random numbers for every row."""

import math
from typing import Any

import numpy as np

from thali.kernels.weights.encode_scaled import encode_scaled
from thali.observations.encoded import Encoded
from thali.rng import make_generator

Array = np.ndarray

_SCANS, _KEPT, _PATHS, _TEMPERATURES = 100, 16, 8, 12
_NODES, _SIMULATED = 16, 8192  # of the power of unknown features


def encode_weighted(model: Any, X: Array, features: Array, scales: Array, log_odds: Array, new_rate: float) -> Encoded:
    """`model` is concrete; features and the scales of their weights are taken as given."""
    noise, scale = model.units
    seen = ~np.isnan(X)
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
        presence[n], codes[n], draws[n], log_density[n] = encode_scaled(
            Y[n], seen[n], features, log_odds, noise, shares, float(model.feature_var) * powers, *model.law,
            _SCANS, _KEPT, _PATHS, _TEMPERATURES, make_generator(0),
        )  # fmt: skip
    return Encoded(presence, codes * scales, log_density - change, draws * scales)


def _unknown_power(model: Any, new_rate: float) -> tuple[Array, Array]:
    """Probabilities and values of the sum of squared weights of Poisson(new_rate) unknown features, summed up by a few
    values of equal probability beside 0."""
    if new_rate <= 0:
        return np.ones(1), np.zeros(1)
    rng = make_generator(0)
    none = math.exp(-new_rate)
    counts = _at_least_one(rng, new_rate)
    nodes = np.quantile(model.unknown_power(rng, counts), (np.arange(_NODES) + 0.5) / _NODES)
    some = -math.expm1(-new_rate)
    return np.concatenate([[max(none, 1e-300)], np.full(_NODES, some / _NODES)]), np.concatenate([[0.0], nodes])


def _at_least_one(rng: np.random.Generator, rate: float) -> Array:
    """Poisson(rate) given that it is not 0: one event at a random time, and those after it."""
    first = -np.log1p(rng.random(_SIMULATED) * math.expm1(-rate))
    return 1 + rng.poisson(np.maximum(rate - first, 0.0))
