"""The factors of a row's bits and weights, for any law of a weight p(w) = exp(-rate |w| - precision w^2/2 - log_norm).

Joint: q(w | z=0) is the prior, q(w | z=1) ~ p(w) exp(pull w - curve w^2/2). Independent: q(z) q(w), q(w) normal or
Laplace as the prior is.
"""

from typing import Any, NamedTuple

import numpy as np

from thali.core.protocols.engines.mean_field import Family
from thali.core.registry import stored
from thali.kernels.weights.mean_field_codes import weights_on

Array = np.ndarray

_SURE = 0.95  # of a bit to begin with
_NEAR = 0.1  # sd of a weight to begin with, in that of its prior


@stored("JointCodes")
class JointCodes(NamedTuple):
    """q(z, w); arrays (n_rows, n_features)."""

    z_prob: Array
    mean: Array  # E[w | z=1]
    pull: Array
    curve: Array


@stored("IndependentCodes")
class IndependentCodes(NamedTuple):
    """q(z) q(w); arrays (n_rows, n_features)."""

    z_prob: Array
    mean: Array
    spread: Array  # variance of a normal weight, scale of a Laplace one


Codes = JointCodes | IndependentCodes


def near(codes: Array, law: Any, weight_var: float) -> JointCodes:
    """Bits are on where the codes are not zero, with weights near them; those that are off have their prior."""
    on = codes != 0
    curve = np.where(on, 1.0 / (_NEAR**2 * weight_var), 0.0)
    pull = (curve + law.precision) * codes + law.rate * np.sign(codes)  # the code is where the density is highest
    return JointCodes(np.where(on, _SURE, 1.0 - _SURE), _moments(pull, curve, law)[0], pull, curve)


def in_family(local: Codes, family: Family, law: Any) -> Codes:
    """A copy in the form of this family, which it has already unless no pass was made."""
    if family.codes == "independent" and isinstance(local, JointCodes):
        local = as_independent(local, law)
    bits = np.round(local.z_prob) if family.bits == "hard" else local.z_prob
    return type(local)(np.array(bits), *(np.array(part) for part in local[1:]))


def as_independent(local: JointCodes, law: Any) -> IndependentCodes:
    """Weights with the same mean and variance."""
    mean, square = _moments(local.pull, local.curve, law)
    var = square - mean**2
    return IndependentCodes(local.z_prob, mean, np.sqrt(0.5 * var) if law.rate > 0 else var)


def scaled(local: Codes, factors: Array, law: Any) -> Codes:
    """Weights times these factors; for signs this is exact."""
    if isinstance(local, JointCodes):
        return local._replace(mean=local.mean * factors, pull=local.pull / factors, curve=local.curve / factors**2)
    spread = local.spread * (np.abs(factors) if law.rate > 0 else factors**2)
    return local._replace(mean=local.mean * factors, spread=spread)


def sizes(local: Codes, law: Any) -> Array:
    """Sums over rows of how many weights have a factor of their own, of E|w| and of E w^2, (3, n_features)."""
    if isinstance(local, JointCodes):
        mean, square = _moments(local.pull, local.curve, law)
        # by parts, E[w (log q)'(w)] = -1; without a rate the size does not matter
        size = (1.0 + local.pull * mean - (local.curve + law.precision) * square) / (law.rate or 1.0)
        return np.array([np.sum(local.z_prob * part, axis=0) for part in (1.0, size, square)])
    mean, spread = np.abs(local.mean), local.spread
    size = mean + spread * np.exp(-mean / spread)
    square = mean**2 + (2.0 * spread**2 if law.rate > 0 else spread)
    return np.array([np.sum(part, axis=0) for part in (np.ones_like(mean), size, square)])


def _moments(pull: Array, curve: Array, law: Any) -> tuple[Array, Array]:
    """E[w | z=1] and E[w^2 | z=1] of joint factors."""
    mean, square = np.empty(pull.shape), np.empty(pull.shape)
    weights_on(pull, curve, law.rate, law.precision, mean, square)
    return mean, square
