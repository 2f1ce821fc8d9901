"""Draws from normal distributions between two bounds, by rejection (Robert 1995): exact however far out they lie."""

import math

import numpy as np

from thali.kernels._jit import jit

_NEAR = 0.4  # sds from the mean below which a plain normal, or a uniform, is accepted often enough


def _draw_between(mean, sd, lower, upper, rng):
    """x_i ~ N(mean_i, sd_i^2) given that lower_i <= x_i <= upper_i, either of which may be infinite.

    In sds, and mirrored where most of the interval lies below the mean: a wide interval near it takes normals until one
    lies inside; a narrow one takes uniforms x with probability exp((p^2 - x^2)/2), p its densest point; a tail beyond
    `low` takes low + Exponential(rate), rate = (low + sqrt(low^2 + 4))/2, with probability exp(-(x - rate)^2 / 2).
    eq: own.interval-cells. Cost O(1) for each, at most about four tries on average.
    """
    x = np.empty(mean.size)
    for i in range(mean.size):
        low = (lower[i] - mean[i]) / sd[i]
        high = (upper[i] - mean[i]) / sd[i]
        sign = 1.0
        if low < -high:
            low, high = -high, -low
            sign = -1.0
        width = high - low
        if low <= _NEAR and width > 1.0:
            value = rng.standard_normal()
            while value < low or value > high:
                value = rng.standard_normal()
        elif low <= _NEAR or width * low < 1.0:
            peak = max(low, 0.0)
            value = low + width * rng.random()
            while rng.random() >= math.exp(0.5 * (peak - value) * (peak + value)):
                value = low + width * rng.random()
        else:
            root = math.sqrt(low * low + 4.0)
            beyond = 2.0 / (low + root)  # rate - low, without loss of digits
            excess = -math.log1p(-rng.random()) / (low + beyond)
            while excess > width or rng.random() >= math.exp(-0.5 * (excess - beyond) ** 2):
                excess = -math.log1p(-rng.random()) / (low + beyond)
            value = low + excess
        x[i] = min(max(mean[i] + sign * sd[i] * value, lower[i]), upper[i])
    return x


draw_between = jit(_draw_between)
