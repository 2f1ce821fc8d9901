"""Twin of thali.kernels.weights.polya_gamma: densities in full, after section 4 and the appendix of the paper."""

import numpy as np
from scipy.stats import norm

BREAK = 0.64


def polya_gamma_moments(z):
    """By the infinite sum of gamma variables that defines PG(1, z); what is left of the sum by its integral."""
    i = np.arange(1, 200_001)
    scale = 1 / (2 * np.pi**2 * ((i - 0.5) ** 2 + z**2 / (4 * np.pi**2)))
    rest = 1 / (2 * np.pi**2 * i[-1])
    return scale.sum() + rest, np.sum(scale**2)


def coefficient(i, x):
    """a_i(x): the density of 4 PG(1, 0) is a_0 - a_1 + a_2 - ..."""
    if x <= BREAK:
        return np.pi * (i + 0.5) * (2 / (np.pi * x)) ** 1.5 * np.exp(-2 * (i + 0.5) ** 2 / x)
    return np.pi * (i + 0.5) * np.exp(-((i + 0.5) ** 2) * np.pi**2 * x / 2)


def chance_beyond(half):
    """By the integrals of a_0(x) exp(-half^2 x / 2) over either side."""
    if half > 30:
        return 0.0
    rate = np.pi**2 / 8 + half**2 / 2
    beyond = np.pi / (2 * rate) * np.exp(-rate * BREAK)
    root = np.sqrt(1 / BREAK)
    cdf = norm.cdf(root * (BREAK * half - 1)) + np.exp(2 * half) * norm.cdf(-root * (BREAK * half + 1))
    before = 2 * np.exp(-half) * cdf
    return beyond / (beyond + before)


def draw_before(half, rng):
    if half < 1 / BREAK:
        while True:
            first, second = rng.standard_exponential(), rng.standard_exponential()
            while first**2 > 2 * second / BREAK:
                first, second = rng.standard_exponential(), rng.standard_exponential()
            x = BREAK / (1 + BREAK * first) ** 2
            if rng.random() <= np.exp(-(half**2) * x / 2):
                return x
    mean = 1 / half
    while True:
        y = rng.standard_normal() ** 2
        x = mean + 0.5 * mean**2 * y - 0.5 * mean * np.sqrt(4 * mean * y + (mean * y) ** 2)
        if rng.random() > mean / (mean + x):
            x = mean**2 / x
        if x <= BREAK:
            return x


def draw_polya_gamma(z, rng):
    half = abs(z) / 2
    while True:
        if rng.random() < chance_beyond(half):
            x = BREAK + rng.standard_exponential() / (np.pi**2 / 8 + half**2 / 2)
        else:
            x = draw_before(half, rng)
        total = coefficient(0, x)
        height, i = rng.random() * total, 0
        while True:
            i += 1
            total += (-1) ** i * coefficient(i, x)
            if i % 2 == 1 and height <= total:
                return x / 4
            if i % 2 == 0 and height > total:
                break


def draw_polya_gamma_sum(n, z, rng):
    if n > 170:
        mean, var = polya_gamma_moments(z)
        return n * mean + np.sqrt(n * var) * rng.standard_normal()
    return sum(draw_polya_gamma(z, rng) for _ in range(n))
