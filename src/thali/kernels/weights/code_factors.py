"""The variational factor of one bit and its weight: q(z, w) joint, or q(z) q(w), against a Gaussian likelihood.

E log likelihood = z (b w - c w^2 / 2) + const for the bit z and the weight w of one row and feature; a weight has the
law (rate, precision, log_norm) of `slabs`. Joint: q(w | z=0) is that law, q(w | z=1) ~ p(w) exp(b w - c w^2/2).
Independent: q(w) is Laplace if p(w) has a rate (and no precision), else normal; `spread` is its scale or its variance.
"""

import math

from thali.kernels._jit import jit
from thali.kernels.weights.slabs import slab_factor

_ALTERNATIONS = 4  # of location and spread
_SMALLEST = 1e-200  # of a curvature


def _best_bit(log_odds, sharpness):
    """(q(z = 1) that is best for these log-odds, its entropy): sharpness 1, or infinity for a bit that is 0 or 1."""
    if sharpness == math.inf:
        return (1.0 if log_odds > 0.0 else 0.0), 0.0
    size = min(abs(log_odds), 700.0)
    small = math.exp(-size)
    likelier = 1.0 / (1.0 + small)
    entropy = math.log1p(small) + size * small * likelier
    return (likelier if log_odds > 0.0 else small * likelier), entropy


def _bit_entropy(p):
    if p <= 0.0 or p >= 1.0:
        return 0.0
    return -p * math.log(p) - (1.0 - p) * math.log1p(-p)


# ---- joint


def _joint_divergence(b, c, rate, precision, log_norm):
    """(KL from q(w | z=1) to p(w), E w, E w^2)."""
    log_integral, first, second = slab_factor(b, c, rate, precision, log_norm)
    # eq: own.joint-divergence
    return b * first - 0.5 * c * second - log_integral, first, second


# ---- independent


def _square_of(mean, spread, rate):
    """E w^2 under q(w)."""
    return mean * mean + (2.0 * spread * spread if rate > 0.0 else spread)


def _weight_divergence(mean, spread, rate, precision, log_norm):
    """KL from q(w) to p(w)."""
    half = 0.5 * precision * square_of(mean, spread, rate) + log_norm
    if rate == 0.0:
        return half - 0.5 * math.log(2.0 * math.pi * math.e * spread)
    size = abs(mean) / spread
    # eq: DV09.laplace-bound
    return half + rate * spread * (size + math.exp(-size)) - math.log(2.0 * math.e * spread)


def _independent_weight(b, c, mean, spread, rate, precision):
    """(mean, spread) of q(w) that are best for E log likelihood = b w - c w^2/2; a Laplace factor from the given ones.

    Its location and its scale are each at their optimum given the other, in turn: nothing says that both together have
    one optimum only.
    """
    curve = max(c + precision, _SMALLEST)
    if rate == 0.0:
        return b / curve, 1.0 / curve
    b, curve = b / rate, curve / (rate * rate)  # of rate w
    mean, spread = rate * mean, rate * spread
    for _ in range(_ALTERNATIONS):
        mean = best_location(b, curve, spread)
        spread = best_spread(curve, mean)
    return mean / rate, spread / rate


def _best_location(b, c, spread):
    """argmax over m of b m - c m^2/2 - |m| - spread exp(-|m| / spread): the optimum of a concave function.

    |m| = spread t with |b| - 1 - c spread t + exp(-t) = 0, the root that the Wright omega function gives; here by
    Newton's method from below, which cannot overshoot and does not cancel where c is small.
    """
    size, slope = abs(b), c * spread
    t = max(size / (1.0 + slope), (size - 1.0) / slope)
    for _ in range(100):
        e = math.exp(-t)
        # eq: DV09.laplace-location
        step = (size - 1.0 - slope * t + e) / (slope + e)
        t += step
        if step <= 1e-14 * t:
            break
    return math.copysign(spread * t, b)


def _best_spread(c, mean):
    """The root in h of 1 - (h + |mean|) exp(-|mean| / h) - 2 c h^2, which falls: where the bound is largest."""
    m = abs(mean)
    low, high = 2.0 / (1.0 + math.sqrt(1.0 + 8.0 * c)), 1.0 / math.sqrt(2.0 * c)
    h = low  # the root itself if the mean is 0
    for _ in range(200):
        e = math.exp(-m / h)
        # eq: DV09.laplace-spread
        value = 1.0 - (h + m) * e - 2.0 * c * h * h
        if value > 0.0:
            low = h
        else:
            high = h
        step = value / (e * (1.0 + m / h + (m / h) ** 2) + 4.0 * c * h)
        if abs(step) <= 1e-14 * h:
            return h + step
        h += step
        if not low < h < high:  # too far
            h = math.sqrt(low * high) if high > 4.0 * low else 0.5 * (low + high)
    return h


best_bit = jit(_best_bit)
bit_entropy = jit(_bit_entropy)
joint_divergence = jit(_joint_divergence)
square_of = jit(_square_of)
weight_divergence = jit(_weight_divergence)
best_location = jit(_best_location)
best_spread = jit(_best_spread)
independent_weight = jit(_independent_weight)
