"""The law of a weight that is on, and automatic relevance: a scale of the weights of each feature.

With relevance each feature has its own variance. That of its weights, in fact, since only the product counts; it is
drawn when it is needed and forgotten, so that it is not part of a chain's state.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.gaussian.weighted import WeightedGaussian

Array = np.ndarray
Generator = np.random.Generator


class WeightLaw(NamedTuple):
    """p(w) = exp(-rate |w| - precision w^2 / 2 - log_norm)."""

    rate: float
    precision: float
    log_norm: float


def _scale_law(model: "WeightedGaussian", codes: Array) -> tuple[Array, Array]:
    """Shape and rate of the inverse of each feature's (squared, for normal weights) scale, given its codes."""
    a, (rate, precision, _) = float(model.ard), model.law
    n_on = np.sum(codes != 0, axis=-2)
    if rate == 0:
        return a + 0.5 * n_on, a + 0.5 * precision * np.sum(codes**2, axis=-2)
    return a + n_on, a + rate * np.sum(np.abs(codes), axis=-2)


def draw_scales(rng: Generator, model: "WeightedGaussian", codes: Array) -> Array:
    """Scales of the weights of each feature given its codes (..., n_rows, n_features): 1 without relevance."""
    if model.ard is None:
        return np.ones(codes.shape[:-2] + codes.shape[-1:])
    shape, rate = _scale_law(model, codes)
    # eq: own.ard
    values = rate / rng.standard_gamma(shape)
    return np.sqrt(values) if model.law.rate == 0 else values


def expected_scales(model: "WeightedGaussian", codes: Array) -> Array:
    """The scale whose inverse (squared, for normal weights) is the expected one."""
    if model.ard is None:
        return np.ones(codes.shape[1])
    shape, rate = _scale_law(model, codes)
    return np.sqrt(rate / shape) if model.law.rate == 0 else rate / shape


def log_codes(model: "WeightedGaussian", codes: Array) -> float:
    """log p(W | Z)."""
    w = codes[codes != 0]
    rate, precision, log_norm = model.law
    if model.ard is not None:
        shape, left = _scale_law(model, codes)
        log_norm_of_scale = model.ard * np.log(model.ard) - gammaln(model.ard)
        # eq: own.ard-weights
        return float(np.sum(log_norm_of_scale + gammaln(shape) - shape * np.log(left)) - log_norm * w.size)
    return float(-rate * np.abs(w).sum() - 0.5 * precision * np.sum(w * w) - log_norm * w.size)
