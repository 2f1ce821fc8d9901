"""Draws of Polya-Gamma variables, given which a logistic likelihood is Gaussian (Polson, Scott & Windle 2013).

PG(1, z) is a quarter of a variable whose density is an alternating series, which Devroye's rejection squeezes: a
proposal is accepted or rejected as soon as a partial sum decides. Either of two series serves where it falls fast. No
number is cut off, so draws are exact. PG(n, z) is a sum of n of them.
"""

import math

from thali.kernels._jit import jit

_BREAK = 0.64  # where one series takes over from the other
_MANY = 170  # summands beyond which a sum is as good as normal
_LARGE = 30.0  # half of a tilt for which nothing lies beyond the break


def _polya_gamma_moments(z):
    """(mean, variance) of PG(1, z)."""
    half = 0.5 * abs(z)
    if half < 0.01:  # the differences below would lose their digits
        square = half * half
        return (
            0.25 - square / 12.0 + square * square / 30.0,
            1.0 / 24.0 - square / 30.0 + square * square * 17.0 / 840.0,
        )
    t = math.tanh(half)
    # eq: PSW13.moments
    return 0.25 * t / half, (t - half * (1.0 - t * t)) / (16.0 * half * half * half)


def _chance_beyond(half):
    """The share of proposals that lie beyond the break, for the tilt exp(-half^2 x / 2)."""
    if half > _LARGE:
        return 0.0
    rate = 0.125 * math.pi * math.pi + 0.5 * half * half
    root = math.sqrt(_BREAK)
    log_mass = math.log(rate) + rate * _BREAK
    # an inverse Gaussian variable with mean 1 / half lies before the break
    near = math.log(0.5 * math.erfc((1.0 - half * _BREAK) / (root * math.sqrt(2.0))))
    far = math.log(0.5 * math.erfc((1.0 + half * _BREAK) / (root * math.sqrt(2.0))))
    # eq: PSW13.proposal
    return 1.0 / (1.0 + 4.0 / math.pi * (math.exp(log_mass - half + near) + math.exp(log_mass + half + far)))


def _draw_before(half, rng):
    """An inverse Gaussian variable with mean 1 / half and shape 1, given that it lies before the break."""
    if half * _BREAK < 1.0:
        while True:  # by its limit for half = 0, the inverse of a squared normal variable
            e = rng.standard_exponential()
            while e * e > 2.0 * rng.standard_exponential() / _BREAK:
                e = rng.standard_exponential()
            x = _BREAK / ((1.0 + _BREAK * e) * (1.0 + _BREAK * e))
            if rng.random() <= math.exp(-0.5 * half * half * x):
                return x
    while True:
        y = rng.standard_normal()
        w = 0.5 * y * y / half
        # the smaller root, written so that it does not lose its digits, or the larger one
        x = 1.0 / (half * (1.0 + w + math.sqrt(2.0 * w + w * w)))
        if rng.random() * (1.0 + half * x) > 1.0:
            x = 1.0 / (half * half * x)
        if x <= _BREAK:
            return x


def _draw_polya_gamma(z, rng):
    """PG(1, z)."""
    half = 0.5 * abs(z)
    rate = 0.125 * math.pi * math.pi + 0.5 * half * half
    beyond = chance_beyond(half)
    while True:
        if rng.random() < beyond:
            x = _BREAK + rng.standard_exponential() / rate
            speed = 0.5 * math.pi * math.pi * x
        else:
            x = draw_before(half, rng)
            speed = 2.0 / x
        u = rng.random()
        total = 1.0
        i = 0
        while True:  # partial sums over their first term: below the density after odd terms, above it after even ones
            i += 1
            # eq: PSW13.series
            term = (2.0 * i + 1.0) * math.exp(-i * (i + 1.0) * speed)
            if i % 2 == 1:
                total -= term
                if u <= total:
                    return 0.25 * x
            else:
                total += term
                if u > total:
                    break


def _draw_polya_gamma_sum(n, z, rng):
    """PG(n, z): exact up to 170, else normal with the same mean and variance."""
    if n > _MANY:
        mean, var = polya_gamma_moments(z)
        return n * mean + math.sqrt(n * var) * rng.standard_normal()
    total = 0.0
    for _ in range(n):
        total += draw_polya_gamma(z, rng)
    return total


polya_gamma_moments = jit(_polya_gamma_moments)
chance_beyond = jit(_chance_beyond)
draw_before = jit(_draw_before)
draw_polya_gamma = jit(_draw_polya_gamma)
draw_polya_gamma_sum = jit(_draw_polya_gamma_sum)
