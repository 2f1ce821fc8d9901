"""Distributions for learned hyperparameters. Gamma is (shape, rate), InverseGamma (shape, scale); natural logs.

A distribution with `relative=True` is on the scale of the data: the hyperparameter is its draw times the mean variance
of the observed dims. That is how the default priors adapt to unscaled data.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from thali.core.registry import stored
from thali.core.spec import Domain, Spec, positive, real, setting


def _is_centre(value: Any) -> bool:
    if value is None:
        return True
    try:
        value = np.asarray(value)
    except ValueError:  # rows of different lengths
        return False
    return value.dtype.kind in "uif" and value.ndim <= 1 and bool(np.isfinite(value).all())


_flag = Domain("True or False", lambda v: isinstance(v, bool | np.bool_))
_centre = Domain("None, a number, or one per dim", _is_centre)
_unit = Domain(
    "None, a positive number, or one per dim",
    lambda v: v is None or (_is_centre(v) and bool((np.asarray(v) > 0).all())),
)


@stored("Gamma")
@dataclass(frozen=True, eq=False)
class Gamma(Spec):
    """Density ~ x^(shape-1) exp(-rate x) on x > 0; mean shape / rate.

    Parameters
    ----------
    shape : float
        Small values are vague, and favour values near zero.
    rate : float
        The inverse of a scale.
    relative : bool
        Whether x is counted in units of the mean variance of the dims.
    """

    shape: float = setting(1.0, positive)
    rate: float = setting(1.0, positive)
    relative: bool = field(default=False, kw_only=True, metadata={"domain": _flag})
    support = (0.0, math.inf)

    def log_prob(self, x: float) -> float:
        return (
            self.shape * math.log(self.rate) - math.lgamma(self.shape) + (self.shape - 1) * math.log(x) - self.rate * x
        )

    def sample(self, rng: np.random.Generator) -> float:
        return float(rng.gamma(self.shape) / self.rate)

    def scaled(self, unit: float) -> Self:
        return self.replace(rate=self.rate / unit, relative=False) if self.relative else self

    @property
    def centre(self) -> float:
        return self.shape / self.rate


@stored("InverseGamma")
@dataclass(frozen=True, eq=False)
class InverseGamma(Spec):
    """Density ~ x^(-shape-1) exp(-scale / x) on x > 0; 1/x is Gamma(shape, rate=scale); mode scale / (shape + 1).

    Parameters
    ----------
    shape : float
        Small values are vague, with a heavy tail of large values.
    scale : float
        About where x is.
    relative : bool
        Whether x is counted in units of the mean variance of the dims.
    """

    shape: float = setting(1.0, positive)
    scale: float = setting(1.0, positive)
    relative: bool = field(default=False, kw_only=True, metadata={"domain": _flag})
    support = (0.0, math.inf)

    def log_prob(self, x: float) -> float:
        return (
            self.shape * math.log(self.scale)
            - math.lgamma(self.shape)
            - (self.shape + 1) * math.log(x)
            - self.scale / x
        )

    def sample(self, rng: np.random.Generator) -> float:
        return float(self.scale / rng.gamma(self.shape))

    def scaled(self, unit: float) -> Self:
        return self.replace(scale=self.scale * unit, relative=False) if self.relative else self

    @property
    def centre(self) -> float:
        return self.scale / self.shape


@stored("LogNormal")
@dataclass(frozen=True, eq=False)
class LogNormal(Spec):
    """log x ~ Normal(mean, var): vague over orders of magnitude.

    Parameters
    ----------
    mean : float
        Of log x.
    var : float
        Of log x.
    """

    mean: float = setting(0.0, real)
    var: float = setting(9.0, positive)
    support = (0.0, math.inf)

    def log_prob(self, x: float) -> float:
        t = math.log(x)
        return -0.5 * math.log(2 * math.pi * self.var) - t - 0.5 * (t - self.mean) ** 2 / self.var

    def sample(self, rng: np.random.Generator) -> float:
        return math.exp(self.mean + math.sqrt(self.var) * rng.standard_normal())

    def scaled(self, unit: float) -> Self:
        return self

    @property
    def centre(self) -> float:
        return math.exp(self.mean)


@stored("Beta")
@dataclass(frozen=True, eq=False)
class Beta(Spec):
    """Density ~ x^(a-1) (1-x)^(b-1) on 0 < x < 1.

    Parameters
    ----------
    a : float
        Larger values draw x towards one.
    b : float
        Larger values draw x towards zero.
    """

    a: float = setting(1.0, positive)
    b: float = setting(1.0, positive)
    support = (0.0, 1.0)

    def log_prob(self, x: float) -> float:
        if not 0 < x < 1:  # a slice sampler may ask
            return -math.inf
        log_norm = math.lgamma(self.a + self.b) - math.lgamma(self.a) - math.lgamma(self.b)
        return log_norm + (self.a - 1) * math.log(x) + (self.b - 1) * math.log1p(-x)

    def sample(self, rng: np.random.Generator) -> float:
        # a draw that rounds to the edge of (0, 1) has probability zero; keep it inside
        return float(min(max(rng.beta(self.a, self.b), 1e-300), 1 - 1e-16))

    def scaled(self, unit: float) -> Self:
        return self

    @property
    def centre(self) -> float:
        return self.a / (self.a + self.b)


_level = Domain("a positive number or a Gamma", lambda v: isinstance(v, Gamma) or positive.contains(v))


@stored("PerDim")
@dataclass(frozen=True, eq=False)
class PerDim(Spec):
    """One variance per dim, drawn towards each other: s_d ~ InverseGamma(shape, shape level).

    The shared level is integrated out in `log_prob` and drawn afresh whenever it is needed, so it is not part of a
    chain's state. Reference: own.per-dim-noise in docs/equations.md.

    Parameters
    ----------
    shape : float
        Larger values make the variances more alike.
    level : float or Gamma
        Their level: a number is fixed, a Gamma is learned.
    unit : array of shape (n_dims,) or None
        If given, it is s_d / unit_d that has this law.
    """

    shape: float = setting(2.0, positive)
    level: Any = setting(Gamma(1.0, 1.0, relative=True), _level)
    unit: Any = setting(None, _unit)
    support = (0.0, math.inf)
    per_dim = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit is not None:
            object.__setattr__(self, "unit", np.array(self.unit, dtype=float))

    def in_units(self, x: np.ndarray) -> np.ndarray:
        """Variances x as multiples of their dims' units."""
        return x if self.unit is None else x / self.unit

    def log_prob(self, x: np.ndarray) -> float:
        """Of the vector x, up to the normalising constant that a noise floor brings."""
        a, n_dims = self.shape, len(x)
        precision = float(np.sum(1.0 / self.in_units(x)))
        stretch = 0.0 if self.unit is None else a * float(np.sum(np.log(np.broadcast_to(self.unit, n_dims))))
        given_level = n_dims * (a * math.log(a) - math.lgamma(a)) + stretch - (a + 1) * float(np.sum(np.log(x)))
        if not isinstance(self.level, Gamma):
            return given_level + a * n_dims * math.log(self.level) - a * self.level * precision
        shape = a * n_dims + self.level.shape
        return (
            given_level
            + self.level.shape * math.log(self.level.rate)
            - math.lgamma(self.level.shape)
            + math.lgamma(shape)
            - shape * math.log(self.level.rate + a * precision)
        )

    def sample_level(self, rng: np.random.Generator, x: np.ndarray) -> float:
        """The level given the variances x. Exact with a floor too, since the floor restricts x only."""
        if not isinstance(self.level, Gamma):
            return float(self.level)
        shape = self.level.shape + self.shape * len(x)
        return float(rng.gamma(shape) / (self.level.rate + self.shape * np.sum(1.0 / self.in_units(x))))

    def sample(self, rng: np.random.Generator, n_dims: int) -> np.ndarray:
        level = self.level.sample(rng) if isinstance(self.level, Gamma) else float(self.level)
        values = self.shape * level / rng.gamma(self.shape, size=n_dims)
        return values if self.unit is None else values * self.unit

    def centres(self, level: float) -> Any:
        """a level for each dim: the scale of its InverseGamma law given the shared level."""
        return self.shape * level if self.unit is None else self.shape * level * self.unit

    def scaled(self, unit: float) -> Self:
        return self.replace(level=self.level.scaled(unit)) if isinstance(self.level, Gamma) else self

    def by_dim(self, units: np.ndarray) -> Self:
        """A relative level made one that is relative to the dim's own unit; an absolute one stays as it is."""
        relative = isinstance(self.level, Gamma) and self.level.relative
        return self.replace(level=self.level.scaled(1.0), unit=units) if relative else self


@stored("PerFeature")
@dataclass(frozen=True, eq=False)
class PerFeature(Spec):
    """One variance per feature, drawn towards each other: s_k ~ InverseGamma(shape, shape level).

    Precisions 1 / s_k are then Gamma(shape, rate=shape level), which is automatic relevance determination.

    Parameters
    ----------
    shape : float
        Larger values make the variances more alike.
    level : float or Gamma
        Their level: a number is fixed, a Gamma is learned.
    """

    shape: float = setting(1.0, positive)
    level: Any = setting(Gamma(1.0, 1.0), _level)

    def draw_level(self, rng: np.random.Generator, precisions: np.ndarray) -> float:
        """The level given the precisions of the features; from its prior if there are none."""
        if not isinstance(self.level, Gamma):
            return float(self.level)
        # eq: NSFA.level
        shape, rate = self.level.shape + self.shape * len(precisions), self.level.rate + self.shape * precisions.sum()
        return float(rng.standard_gamma(shape) / rate)

    def log_density(self, precisions: np.ndarray) -> float:
        """Of all precisions together, a level that is learned integrated out."""
        a, n = self.shape, len(precisions)
        total = n * (a * math.log(a) - math.lgamma(a)) + (a - 1) * float(np.sum(np.log(precisions)))
        if not isinstance(self.level, Gamma):
            return total + n * a * math.log(self.level) - a * self.level * float(precisions.sum())
        shape, rate = self.level.shape, self.level.rate
        total += shape * math.log(rate) - math.lgamma(shape) + math.lgamma(shape + n * a)
        return total - (shape + n * a) * math.log(rate + a * float(precisions.sum()))


@stored("NormalOffset")
@dataclass(frozen=True, eq=False)
class NormalOffset(Spec):
    """A learned offset: offset_d ~ Normal(centre_d, spread noise_var_d).

    Parameters
    ----------
    centre : float, array of shape (n_dims,) or None
        None takes the mean of each dim.
    spread : float
        The variance about the centre, in units of the noise.
    """

    centre: Any = setting(None, _centre)
    spread: float = setting(100.0, positive)
    support = (-math.inf, math.inf)
    per_dim = True

    def log_prob(self, x: np.ndarray, noise_var: Any) -> float:
        var = self.spread * np.broadcast_to(noise_var, np.shape(x))
        return float(-0.5 * np.sum(np.log(2 * np.pi * var) + (x - self.centre) ** 2 / var))

    def sample(self, rng: np.random.Generator, n_dims: int, noise_var: Any) -> np.ndarray:
        centre = np.zeros(n_dims) if self.centre is None else self.centre
        return centre + np.sqrt(self.spread * noise_var) * rng.standard_normal(n_dims)
