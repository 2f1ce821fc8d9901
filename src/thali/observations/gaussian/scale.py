"""Priors and floors that are relative to the data, made absolute."""

from typing import Any, TypeVar

import numpy as np

from thali.core.distributions import InverseGamma, LogNormal, NormalOffset, PerDim
from thali.core.spec import is_distribution
from thali.data.odd_cells import odd_cells
from thali.data.units import unit_squares
from thali.errors import InvalidParameterError
from thali.observations.gaussian.origin import locate

Array = np.ndarray
M = TypeVar("M", bound=Any)  # a GaussianModel, which builds on this module

_LEAST_NOISE = 1e-20  # of the variance of a dim, if it is fixed


def adapted(spec: M, X: Array) -> M:
    """The model with an origin near the data, the scale of its dims, and the centre of its offset.

    In a model with its own units each dim counts in its own, which odd cells do not set.
    """
    if spec.own_units:
        located = locate(spec, X)[0]
        if spec.scale is None:
            located = located.replace(scale=unit_squares(usual_cells(located, X)))
        spec = located
    located, spread = locate(spec, X)
    _check_noise(spec, spread.var)
    result = with_scale(located, spread.var if spec.scale is None else np.broadcast_to(spec.scale, X.shape[1]))
    if isinstance(located.offset, NormalOffset):
        centre = spread.mean if located.offset.centre is None else located.offset.centre
        centre = np.array(np.broadcast_to(centre, X.shape[1]), dtype=float)
        result = result.replace(offset=located.offset.replace(centre=centre))
    return result


def usual_cells(located: Any, X: Array) -> Array:
    """X counted from the origin, NaN where a cell is missing or odd."""
    near = located.from_origin(X)
    return np.where(odd_cells(near), np.nan, near)


def _check_noise(spec: Any, var: Array) -> None:
    """A fixed noise so small that nothing is left of the digits of squares over it is a mistake of units."""
    if not is_distribution(spec.noise_var) and np.any(spec.noise_var < _LEAST_NOISE * var):
        raise InvalidParameterError(
            "The hyperparameters must suit the scale of X, so that numbers stay in range. "
            f"Got noise_var = {float(np.min(spec.noise_var)):.3g} where a dim has the variance {var.max():.3g}. "
            "Let noise_var be learned, or scale X."
        )


def with_scale(spec: M, var: Array) -> M:
    """Relative priors and the floor made absolute.

    A dim with less than 1 % of the mean variance counts as one with 1 %: rare features would else explain every cell of
    a nearly constant dim. Not so where each dim has its own unit.
    """
    unit = float(np.mean(var))
    unit = unit if unit > 1e-280 else 1.0  # as good as constant; smaller numbers lose their digits
    feature = spec.feature_var
    if feature is None:
        feature = LogNormal(0.0, 9.0) if spec.per_dim else InverseGamma(2.0, 1.0, relative=True)
    noise, scale = spec.noise_var, np.maximum(var, 0.01 * unit)
    absolute = noise.scaled(unit) if is_distribution(noise) else noise
    if spec.own_units and spec.per_dim:
        scale = np.array(var)
        absolute = noise.by_dim(scale) if isinstance(noise, PerDim) else noise
    return spec.replace(
        scale=scale,
        noise_var=absolute,
        feature_var=feature.scaled(unit) if is_distribution(feature) else feature,
    )
