"""Gibbs steps for the variances and the offset of a Gaussian model, features integrated out (own.* in the ledger)."""

import math
from typing import Any

import numpy as np
from scipy.special import gammainc, gammaincinv

from thali.core.distributions import NormalOffset, PerDim
from thali.core.spec import is_distribution
from thali.numerics.slice_sampling import slice_sample_positive
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.marginal import Spectrum

Array = np.ndarray

_SMALLEST = 1e-290  # feature variance, as a share of the noise: the inverse of less is no number


def resample_variances(
    rng: np.random.Generator, spec: Any, current: Any, data: GaussianData, local: Any, chain: Any
) -> Any:
    """feature_var and one noise level given the offset, by slices; noise per dim without it; then the offset.

    `chain` is the engine of `current` that knows the row variables `local`.
    """
    learn_noise = is_distribution(spec.noise_var)
    if is_distribution(spec.feature_var) or (learn_noise and not isinstance(spec.noise_var, PerDim)):
        current = _slice_variances(rng, spec, current, data, chain.spectrum(data, local))
    if isinstance(spec.noise_var, PerDim) or isinstance(spec.offset, NormalOffset):
        current = _regress(rng, spec, current, data, local, chain.totals(local))
    return current


def _slice_variances(rng: np.random.Generator, spec: Any, current: Any, data: GaussianData, parts: Spectrum) -> Any:
    noise = current.units[0]
    feature = float(current.feature_var)
    if is_distribution(spec.noise_var) and not isinstance(spec.noise_var, PerDim):
        floor = float(np.mean(spec.floor(data.n_dims)))
        offset = spec.offset if isinstance(spec.offset, NormalOffset) else None

        def noise_density(value: float) -> float:
            if not floor <= value < math.inf or value <= 0:
                return -math.inf
            density = spec.noise_var.log_prob(value) + parts.log_likelihood(value, feature)
            # the offset's prior is in units of the noise
            return density if offset is None else density + offset.log_prob(current.offset, value)

        noise = slice_sample_positive(noise_density, noise, rng)
        current = current.updated(noise_var=noise)
    if is_distribution(spec.feature_var):
        if len(parts.lam) == 0:
            feature = max(spec.feature_var.sample(rng), noise * _SMALLEST)
        else:

            def feature_density(value: float) -> float:
                if not noise * _SMALLEST <= value < math.inf:
                    return -math.inf
                return spec.feature_var.log_prob(value) + parts.log_likelihood(noise, value)

            feature = slice_sample_positive(feature_density, max(feature, noise * _SMALLEST), rng)
        current = current.updated(feature_var=feature)
    return current


def _regress(rng: np.random.Generator, spec: Any, current: Any, data: GaussianData, local: Any, totals: Array) -> Any:
    """noise_var per dim with features and offset integrated out, then the offset given it with the features out.

    With V = [1, codes], M = V'V + diag(1/spread, r, ..., r) and h = V'(X - centre), per dim
    Q = |x - centre|^2 - h' M^-1 h and (offset - centre, A) ~ N(M^-1 h, noise_var M^-1).
    """
    learn_offset = isinstance(spec.offset, NormalOffset)
    noise, _ = current.units
    ridge = noise / float(current.feature_var)
    centre = spec.offset.centre if learn_offset else (0.0 if current.offset is None else current.offset)
    sums = data.sums(local.filled)
    total = sums.total - data.n_rows * centre
    square = sums.square - 2 * centre * sums.total + data.n_rows * np.square(centre)
    cross = local.cross - np.outer(totals, np.broadcast_to(centre, data.n_dims))
    M = local.gram + ridge * np.eye(len(totals))
    h = cross
    if learn_offset:
        corner = data.n_rows + 1.0 / spec.offset.spread
        M = np.block([[np.array([[corner]]), totals[None, :]], [totals[:, None], M]])
        h = np.vstack([total, cross])
    L = np.linalg.cholesky(M)
    v = np.linalg.solve(L, h)
    if isinstance(spec.noise_var, PerDim):
        # eq: own.per-dim-noise
        residual = np.maximum(square - np.sum(v * v, axis=0), 0.0)
        level = spec.noise_var.sample_level(rng, current.noise_var)
        shape, centres = spec.noise_var.shape + 0.5 * data.n_rows, spec.noise_var.centres(level)
        values = draw_truncated_inverse_gamma(rng, shape, centres + 0.5 * residual, spec.floor(data.n_dims))
        current = current.updated(noise_var=values)
    if learn_offset:
        # eq: own.offset
        sd = np.sqrt(current.noise_var)
        draw = np.linalg.solve(L.T, v + rng.standard_normal(v.shape) * sd)
        current = current.updated(offset=centre + draw[0])
    return current


def draw_truncated_inverse_gamma(rng: np.random.Generator, shape: float, scale: Array, floor: Array) -> Array:
    """InverseGamma(shape, scale_d) restricted to values >= floor_d, by inversion."""
    if not np.any(floor > 0):
        return scale / rng.gamma(shape, size=np.shape(scale))
    u = rng.random(np.shape(scale))
    with np.errstate(divide="ignore", over="ignore"):
        highest = np.where(floor > 0, scale / np.where(floor > 0, floor, 1.0), np.inf)
    below = gammainc(shape, highest)  # P(precision below its ceiling)
    precision = gammaincinv(shape, u * below)
    # where all but nothing of the mass lies below the floor, the floor is the answer to rounding
    return np.where((precision > 0) & (below > 1e-280), np.maximum(scale / np.maximum(precision, 1e-300), floor), floor)
