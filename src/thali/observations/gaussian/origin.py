"""The point of each dim from which a Gaussian model counts its data, so that sums of squares keep their digits.

A column of seconds since 1970 that varies by one second has a square of 3e18 and a variance of 1: in double precision
nothing is left of the variance when sums of squares are subtracted. So data that lie far from zero are counted from a
round number near them. It is subtracted once, when data come in, and added once, when values go out; all statistics,
offsets and filled cells between are counted from it.
"""

from typing import Any, NamedTuple

import numpy as np

from thali.core.distributions import NormalOffset
from thali.errors import InvalidDataError

Array = np.ndarray

# Squares of numbers 2^10 sds from zero lose 20 of 53 bits: 1e-10 of the variance, less than anybody sees. Nearer data
# stay as they are, and so does every bit of their fits.
_FAR = 2.0**10
# At 2^20 sds 40 bits are lost, 1e-4 of the variance. Where the model says that the data lie around another point than
# they do, this cannot be mended by counting from elsewhere.
_TOO_FAR = 2.0**20
_ROUNDING = 4.0  # units in the last place by which cells may differ and yet be the same number


class Spread(NamedTuple):
    """How the observed cells of each dim lie."""

    mean: Array
    var: Array
    constant: Array  # whether its cells differ by no more than the rounding of numbers of their size

    @property
    def sd(self) -> Array:
        """Of a constant dim, the smallest of the others, or 1."""
        sd = np.sqrt(self.var)
        return np.where(self.constant, sd[~self.constant].min() if not self.constant.all() else 1.0, sd)


def spread_of(X: Array) -> Spread:
    """Every dim has an observed cell."""
    mean, var = np.nanmean(X, axis=0), np.nanvar(X, axis=0)
    constant = np.sqrt(var) <= 2.0**-40 * np.abs(mean)  # perhaps: only then is it worth another look
    if constant.any():
        some = X[:, constant]
        highest, lowest = np.nanmax(some, axis=0), np.nanmin(some, axis=0)
        constant[constant] = highest - lowest <= _ROUNDING * np.spacing(np.maximum(np.abs(highest), np.abs(lowest)))
        constant |= var == 0.0  # the squares of tiny numbers vanish
    return Spread(mean, var, constant)


def locate(spec: Any, X: Array) -> tuple[Any, Spread]:
    """(the spec with an origin near the data if they lie far from zero, how the data lie counted from it).

    An offset that was given, or its centre, is then counted from the origin, too. A dim that was moved and is constant
    has no variance, whatever its last digits say.
    """
    if spec.origin is not None:  # the user knows better
        return spec, spread_of(X - spec.origin)
    spread = spread_of(X)
    learned = isinstance(spec.offset, NormalOffset)
    if not learned:
        _refuse_far(spread, spec)
    # without an offset the model says that the mean is zero: to count from elsewhere would be another model
    origin = None if spec.offset is None else find_origin(spread, None if learned else spec.offset)
    if origin is None:
        return spec, spread
    if not learned:
        offset = spec.offset - origin
    elif spec.offset.centre is None:
        offset = spec.offset
    else:
        offset = spec.offset.replace(centre=spec.offset.centre - origin)
    unsure = spread.constant & (origin != 0) & ~spread.constant.all()
    moved = spread_of(X - origin)
    return spec.replace(origin=origin, offset=offset), moved._replace(var=np.where(unsure, 0.0, moved.var))


def find_origin(spread: Spread, fixed_offset: Array | None) -> Array | None:
    """Zero where a dim lies near it, else a number near the dim; None if it is zero throughout.

    That is the offset, if it is fixed; else the mean, rounded to a power of two of about the sd, so that it does not
    hang on the last digits of the data. To subtract it is exact wherever a cell is within a factor of two of it
    (Sterbenz), as all but outliers are: nothing is lost that the data had.
    """
    sd = spread.sd
    near = spread.mean if fixed_offset is None else fixed_offset
    far = np.abs(near) >= _FAR * sd
    if not far.any():
        return None
    if fixed_offset is None:
        grid = np.exp2(np.floor(np.log2(sd, where=far, out=np.zeros_like(sd))))
        near = np.round(near / grid) * grid
    return np.where(far, near, 0.0)


def _refuse_far(spread: Spread, spec: Any) -> None:
    """An error where the data lie so far from a fixed offset (None: zero) that their squares are all that is left."""
    if spread.constant.all():
        return
    distance = np.abs(spread.mean if spec.offset is None else spread.mean - spec.offset) / spread.sd
    d = int(np.argmax(distance))
    if distance[d] >= _TOO_FAR:
        raise InvalidDataError(
            f"Dim {d} of X lies too far from {'zero' if spec.offset is None else 'its fixed offset'}: with mean "
            f"{spread.mean[d]:.6g} and sd {spread.sd[d]:.3g}, the digits that tell its rows apart are lost in squares. "
            "Let the offset be learned (offset=NormalOffset(), on the command line --offset learned), or subtract the "
            "mean of each dim."
        )
