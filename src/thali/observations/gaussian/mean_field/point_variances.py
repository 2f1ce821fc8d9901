"""Learned variances of a Gaussian model in variational inference: points that maximise bound + log prior density.

Each step is the exact optimum of one variance given the rest, so the bound never falls. What is held meanwhile is a
choice: q(A) itself, or its covariance in units of that variance. The second converges fast where the first is slow:
features that no row has follow a feature variance only as fast as it follows them.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from thali.core.distributions import InverseGamma, NormalOffset, PerDim
from thali.core.spec import is_distribution
from thali.observations.gaussian.mean_field.sums import GaussianFeatures, GaussianSums, error_parts, prior_precision

Array = np.ndarray

_LEVELS = 30  # rounds between the noise of the dims and their level
_LEAST_NOISE = 1e-150  # in units of the variance of a dim
_REACH = 8.0  # e-folds that a search may go in one step
_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)


def learn_variances(spec: Any, q: GaussianFeatures, statistics: GaussianSums) -> GaussianFeatures:
    """q with its learned noise and feature variances at their optimum, one after the other."""
    left, added = error_parts(q, statistics)
    if isinstance(spec.noise_var, PerDim):
        q = _noise_per_dim(spec, q, statistics, left)
    elif is_distribution(spec.noise_var):
        q = _one_noise(spec, q, statistics, left, added)
    if is_distribution(spec.feature_var) and q.n_features:
        q = _feature_var(spec, q)
        q = _stretch(spec, q, statistics)
    return q


def _one_noise(spec: Any, q: GaussianFeatures, statistics: GaussianSums, left: Array, added: Array) -> GaussianFeatures:
    """One level for all dims, q(A) held."""
    noise = float(q.observation.noise_var)
    n, square = float(statistics.n_observed.sum()), float(np.sum(left + noise * added))
    if isinstance(spec.offset, NormalOffset):  # its prior is in units of the noise
        n += len(left)
        square += float(np.sum(q.mean[-1] ** 2 + noise * q.cov[:, -1, -1])) / spec.offset.spread
    # eq: DV09.noise-point
    new = best_variance(spec.noise_var, noise, n, square, float(np.mean(spec.floor(len(left)))))
    return q._replace(observation=q.observation.updated(noise_var=new), cov=q.cov * (noise / new))


def _noise_per_dim(spec: Any, q: GaussianFeatures, statistics: GaussianSums, left: Array) -> GaussianFeatures:
    """One level per dim, the covariance of q(A) held in units of the noise, as its prior is.

    The level that the dims share is integrated out of their prior, whose logarithm is convex in the sum of 1 / noise:
    each round with the level at its mean raises the density.
    """
    ridge = prior_precision(spec, q.observation, q.n_features)
    square = left + ridge @ np.square(q.mean)
    law, noise = spec.noise_var, q.noise
    # rows that are all alike draw it to nothing, in a stream until its inverse overflows
    floor = np.maximum(spec.floor(len(left)), _LEAST_NOISE * (1.0 if spec.scale is None else np.asarray(spec.scale)))
    for _ in range(_LEVELS):
        precision = np.sum(1.0 / law.in_units(noise))
        level = law.level
        if is_distribution(level):
            level = (level.shape + law.shape * len(noise)) / (level.rate + law.shape * precision)
        # eq: own.noise-point-per-dim
        new = (law.centres(level) + 0.5 * square) / (law.shape + 1.0 + 0.5 * statistics.n_observed)
        new = np.maximum(new, floor)
        settled = bool((np.abs(new - noise) <= 1e-12 * noise).all())
        noise = new
        if settled:
            break
    return q._replace(observation=q.observation.updated(noise_var=noise))


def _feature_var(spec: Any, q: GaussianFeatures) -> GaussianFeatures:
    """q(A) held."""
    K, n_dims = q.n_features, q.mean.shape[1]
    spread = float(np.einsum("dkk->", q.cov[:, :K, :K])) * (n_dims // len(q.cov))
    square = q.observation.units[0] * (float(np.sum(np.square(q.mean[:K]) / q.noise)) + spread)
    # eq: DV09.feature-point
    new = best_variance(spec.feature_var, float(q.observation.feature_var), K * n_dims, square, 0.0)
    return q._replace(observation=q.observation.updated(feature_var=new))


def _stretch(spec: Any, q: GaussianFeatures, statistics: GaussianSums) -> GaussianFeatures:
    """Feature variance and the features' covariances together, by one factor; their means held."""
    K, start = q.n_features, float(q.observation.feature_var)
    forms = statistics.of_dims(len(q.mean)) * q.cov
    n_each = q.mean.shape[1] // len(forms)
    own = n_each * float(forms[:, :K, :K].sum())
    mixed = n_each * float(forms[:, :K, K:].sum())  # with the offset
    square = q.observation.units[0] * float(np.sum(np.square(q.mean[:K]) / q.noise))

    def gain(log_factor: float) -> float:
        factor = math.exp(log_factor)
        value = factor * start
        # eq: own.feature-stretch
        return spec.feature_var.log_prob(value) - 0.5 * (factor * own + square / value) - math.sqrt(factor) * mixed

    factor = math.exp(climb(gain, 0.0))
    by = np.ones(len(q.mean))
    by[:K] = math.sqrt(factor)
    return q._replace(observation=q.observation.updated(feature_var=factor * start), cov=q.cov * np.outer(by, by))


def best_variance(law: Any, current: float, n: float, square: float, floor: float) -> float:
    """The v >= floor with the largest -(n log v + square / v) / 2 + law.log_prob(v)."""
    if isinstance(law, InverseGamma):
        return max((law.scale + 0.5 * square) / (law.shape + 1.0 + 0.5 * n), floor)

    def gain(log_v: float) -> float:
        return law.log_prob(math.exp(log_v)) - 0.5 * (n * log_v + square * math.exp(-log_v))

    return max(math.exp(climb(gain, math.log(current))), floor)


def climb(gain: Callable[[float], float], start: float) -> float:
    """A local maximum near `start`, never below it, by golden sections."""
    low, high = start - _REACH, start + _REACH
    a, b = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_a, at_b = gain(a), gain(b)
    while high - low > 1e-8:
        if at_a >= at_b:
            high, b, at_b = b, a, at_a
            a = high - _GOLDEN * (high - low)
            at_a = gain(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + _GOLDEN * (high - low)
            at_b = gain(b)
    found = 0.5 * (low + high)
    return found if gain(found) > gain(start) else start
