"""Decays: how proximity falls with distance. Each is a spec that maps an array of distances to proximities f(d) >= 0.

`reach` is a distance beyond which f is zero: rows farther apart are never even looked at. Any function of an array may
stand for a decay, if it never rises and f(0) > 0; at infinite distance the proximity is zero whatever the decay.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from thali.core.registry import stored
from thali.core.spec import Spec, hyper, moderate, positive, real, setting
from thali.errors import InvalidParameterError

Array = np.ndarray
_UNDERFLOW = 746.0  # exp(-746) is zero in double precision


@stored("ConstantDecay")
@dataclass(frozen=True, eq=False)
class ConstantDecay(Spec):
    """f = 1 at every finite distance."""

    reach = math.inf

    def __call__(self, distance: Array) -> Array:
        return np.isfinite(distance).astype(float)


@stored("WindowDecay")
@dataclass(frozen=True, eq=False)
class WindowDecay(Spec):
    """f = 1 up to and at `width`, 0 beyond.

    Parameters
    ----------
    width : float or distribution
        The largest distance at which rows are near. A number is fixed, a distribution is learned.
    """

    width: Any = hyper(1.0, positive)

    @property
    def reach(self) -> float:
        return math.inf if self.learned else self.width

    def __call__(self, distance: Array) -> Array:
        return (distance <= self.width).astype(float)


@stored("ExponentialDecay")
@dataclass(frozen=True, eq=False)
class ExponentialDecay(Spec):
    """f = exp(-rate d).

    Parameters
    ----------
    rate : float or distribution
        How fast proximity falls, per unit of distance. A number is fixed, a distribution is learned.
    """

    rate: Any = hyper(1.0, moderate)

    @property
    def reach(self) -> float:
        return math.inf if self.learned else _UNDERFLOW / self.rate

    def __call__(self, distance: Array) -> Array:
        return np.exp(-self.rate * distance)


@stored("LogisticDecay")
@dataclass(frozen=True, eq=False)
class LogisticDecay(Spec):
    """f = 1 / (1 + exp(rate d - shift)): a soft window of width shift / rate. f(0) is not 1.

    Parameters
    ----------
    rate : float or distribution
        How sharp the edge of the window is. A number is fixed, a distribution is learned.
    shift : float
        Where the edge is: at distance shift / rate proximity is one half.
    """

    rate: Any = hyper(1.0, moderate)
    shift: float = setting(0.0, real)

    @property
    def reach(self) -> float:
        return math.inf if self.learned else (_UNDERFLOW + max(self.shift, 0.0)) / self.rate

    def __call__(self, distance: Array) -> Array:
        return expit(self.shift - self.rate * distance)


Decay = Callable[[Array], Array]
_BY_NAME: dict[str, Callable[[], Decay]] = {
    "constant": ConstantDecay,
    "window": WindowDecay,
    "exponential": ExponentialDecay,
    "logistic": LogisticDecay,
}


def as_decay(given: Any) -> Decay:
    """A decay spec or a function as it is, a name as the spec with its defaults; f(0) is checked."""
    decay = _BY_NAME[given]() if isinstance(given, str) and given in _BY_NAME else given
    if not callable(decay):
        names = ", ".join(repr(name) for name in _BY_NAME)
        raise InvalidParameterError(
            f"decay must be one of {names}, a decay such as WindowDecay(width=2.0), or a function of an array of "
            f"distances. Got {given!r}."
        )
    if not learned_of(decay):
        check_decay(decay, np.zeros(1))
    return decay


def learned_of(decay: Decay) -> dict[str, Any]:
    """The parameters of a decay that are distributions, by name; a function has none."""
    return decay.learned if isinstance(decay, Spec) else {}


def check_decay(decay: Decay, distances: Array) -> None:
    """Refuse a decay that is negative, not finite or rises between 0 and these distances, or that is zero at 0."""
    d = np.unique(np.append(distances[np.isfinite(distances)], 0.0))
    f = np.asarray(decay(d))
    if f.shape != d.shape or f.dtype.kind not in "buif":
        raise InvalidParameterError(
            f"decay must map an array of distances to an array of numbers of the same shape. For {d.size} distances it "
            f"gave shape {f.shape}, type {f.dtype}; np.vectorize makes such a function of one for single numbers."
        )
    if not np.isfinite(f).all() or (f < 0).any():
        worst = int(np.flatnonzero(~np.isfinite(f) | (f < 0))[0])
        raise InvalidParameterError(f"decay must be finite and not negative. Got {f[worst]} at distance {d[worst]}.")
    if f[0] == 0:
        raise InvalidParameterError("decay must be positive at distance 0, the distance of a row from itself. Got 0.")
    rise = np.flatnonzero(f[1:] > f[:-1] * (1 + 1e-12))
    if rise.size:
        at = int(rise[0])
        raise InvalidParameterError(
            f"decay must not increase with distance. Got {f[at]} at distance {d[at]} and {f[at + 1]} at {d[at + 1]}."
        )
