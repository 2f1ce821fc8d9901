"""Twin of thali.kernels.weights.code_factors: SciPy's special functions and root finders, formulas as written."""

import numpy as np
from scipy.optimize import brentq
from scipy.special import entr, expit, wrightomega

from reference.weights.slabs import log_slab, slab_moments


def best_bit(log_odds, sharpness):
    p = float(log_odds > 0) if np.isinf(sharpness) else float(expit(log_odds))
    return p, bit_entropy(p)


def bit_entropy(p):
    return float(entr(p) + entr(1.0 - p))


def joint_divergence(b, c, rate, precision, log_norm):
    first, second = slab_moments(b, c, rate, precision)
    return b * first - 0.5 * c * second - log_slab(b, c, rate, precision, log_norm), first, second


def square_of(mean, spread, rate):
    return mean**2 + (2 * spread**2 if rate > 0 else spread)


def weight_divergence(mean, spread, rate, precision, log_norm):
    """E log q - E log p."""
    size = abs(mean) + spread * np.exp(-abs(mean) / spread)  # E|w| of a Laplace law
    entropy = 1 + np.log(2 * spread) if rate > 0 else 0.5 * np.log(2 * np.pi * np.e * spread)
    return -entropy + log_norm + rate * size + 0.5 * precision * square_of(mean, spread, rate)


def independent_weight(b, c, mean, spread, rate, precision):
    curve = max(c + precision, 1e-200)
    if rate == 0:
        return b / curve, 1 / curve
    for _ in range(4):
        mean = best_location(b / rate, curve / rate**2, rate * spread) / rate
        spread = best_spread(curve / rate**2, rate * mean) / rate
    return mean, spread


def best_location(b, c, spread):
    d = (1 - abs(b)) / (c * spread)
    return np.sign(b) * spread * (wrightomega(d - np.log(c * spread)) - d)


def best_spread(c, mean):
    def slope(log_h):
        t = abs(mean) * np.exp(-log_h)
        return np.exp(-log_h) - (1 + t) * np.exp(-t) - 2 * c * np.exp(log_h)

    low, high = np.log(2 / (1 + np.sqrt(1 + 8 * c))), -0.5 * np.log(2 * c)
    return np.exp(brentq(slope, low - 1e-6, high + 1e-6, xtol=1e-14, rtol=1e-14))
