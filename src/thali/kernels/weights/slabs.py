"""The law of a weight that is on, p(w) = exp(-rate |w| - precision w^2 / 2 - log_norm), against a Gaussian likelihood.

Normal weights have rate 0, Laplace weights precision 0; the formulas hold for both together. With a likelihood
exp(b w - c w^2 / 2), the posterior of w is a normal distribution, or two halves of normal ones that meet at zero.
"""

import math

from thali.kernels._jit import jit

_SMALLEST = 1e-200  # of a curvature: without data and without precision the halves are exponential


def _log_slab(b, c, rate, precision, log_norm):
    """log of the integral of exp(b w - c w^2 / 2) p(w) over w."""
    curve = max(c + precision, _SMALLEST)
    if rate == 0.0:
        # eq: own.normal-slab
        return 0.5 * math.log(2.0 * math.pi / curve) + 0.5 * b * b / curve - log_norm
    up, down = _log_halves_(b, curve, rate)
    top = max(up, down)
    # eq: DV09.laplace-slab
    return top + math.log(math.exp(up - top) + math.exp(down - top)) - log_norm


def _draw_slab(b, c, rate, precision, rng):
    """w from its posterior."""
    curve = max(c + precision, _SMALLEST)
    root = math.sqrt(curve)
    if rate == 0.0:
        return b / curve + rng.standard_normal() / root
    up, down = _log_halves_(b, curve, rate)
    if rng.random() * (1.0 + math.exp(min(down - up, 700.0))) < 1.0:
        return _excess_((rate - b) / root, rng) / root
    return -_excess_((rate + b) / root, rng) / root


def _slab_moments(b, c, rate, precision):
    """(E w, E w^2) of the posterior."""
    _, first, second = slab_factor(b, c, rate, precision, 0.0)
    return first, second


def _slab_factor(b, c, rate, precision, log_norm):
    """(`log_slab`, E w, E w^2 of the posterior)."""
    curve = max(c + precision, _SMALLEST)
    if rate == 0.0:
        mean = b / curve
        # as eq: own.normal-slab
        return 0.5 * math.log(2.0 * math.pi / curve) + 0.5 * b * mean - log_norm, mean, mean * mean + 1.0 / curve
    scale = 1.0 / math.sqrt(curve)
    a_up, a_down = (b - rate) * scale, -(b + rate) * scale
    up, down = log_erfcx(-a_up / math.sqrt(2.0)), log_erfcx(-a_down / math.sqrt(2.0))
    gap = min(down - up, 700.0)
    share = 1.0 / (1.0 + math.exp(gap))  # of the weights above 0
    both = up + math.log1p(math.exp(gap)) if gap < 0.0 else down + math.log1p(math.exp(-gap))
    first_up, second_up = _half_moments_(a_up, up)
    first_down, second_down = _half_moments_(a_down, down)
    # eq: own.slab-moments
    first = share * first_up - (1.0 - share) * first_down
    second = share * second_up + (1.0 - share) * second_down
    return both + 0.5 * math.log(0.5 * math.pi / curve) - log_norm, first * scale, second / curve


def _log_halves(b, curve, rate):
    """Logs of the integrals over w > 0 and w < 0, up to the norm of p."""
    root = math.sqrt(curve)
    scale = 0.5 * math.log(math.pi / (2.0 * curve))
    return scale + log_erfcx(-(b - rate) / root / math.sqrt(2.0)), scale + log_erfcx((b + rate) / root / math.sqrt(2.0))


def _half_moments(a, log_tail):
    """First and second moment of y > 0 with density ~ exp(a y - y^2 / 2); log_tail is log_erfcx(-a / sqrt 2)."""
    if a < -30.0:  # nearly exponential: the differences below would lose their digits
        t = 1.0 / (a * a)
        return -(1.0 - t * (2.0 - t * (10.0 - 74.0 * t))) / a, t * (2.0 - t * (10.0 - t * (74.0 - 706.0 * t)))
    slope = math.sqrt(2.0 / math.pi) * math.exp(-log_tail)  # phi(a) / Phi(a)
    return a + slope, 1.0 + a * (a + slope)


def _log_erfcx(x):
    """log(exp(x^2) erfc(x)) without overflow or loss of digits."""
    if x < 3.0:
        return x * x + math.log(math.erfc(x))
    tail = 0.0  # of the continued fraction of Mills' ratio, as far as rounding lets it matter
    for j in range(8 + int(180.0 / (x * x)), 0, -1):
        tail = 0.5 * j / (x + tail)
    return -0.5 * math.log(math.pi) - math.log(x + tail)


def _excess(low, rng):
    """z - low for a standard normal z > low (Robert 1995)."""
    if low < 0.45:
        while True:
            z = rng.standard_normal()
            if z > low:
                return z - low
    slope = 0.5 * (low + math.sqrt(low * low + 4.0))
    while True:
        t = -math.log(1.0 - rng.random()) / slope
        if rng.random() < math.exp(-0.5 * (low + t - slope) ** 2):
            return t


def _draw_own(residual, n_seen, own, n_own, noise_var, feature_var, new_rate, rate, precision, ard, candidates, rng):
    """Choose anew how many features a row alone has, and their weights; the features' values are integrated out.

    The present choice own[:n_own], weights and their scales (capacity, 2), competes with the rows of `candidates`
    (choices, most, 2), which are drawn here, by posterior over proposal density (iterated sampling-importance-
    resampling): the number has a geometric proposal, weights their prior. `residual` is the square of what the row's
    other features leave in its n_seen cells; the weights enter by the sum of their squares alone. own changes in place;
    returns the number.
    """
    n_choices, most = candidates.shape[0], candidates.shape[1]
    mean = max(1.0, new_rate)
    power = 0.0
    for j in range(n_own):
        power += own[j, 0] * own[j, 0]
    top = _log_share_(n_own, power, residual, n_seen, noise_var, feature_var, new_rate, mean, most)
    total = 1.0
    chosen, n_chosen = -1, n_own
    for i in range(n_choices):
        n_new = 0
        while n_new < most and rng.random() * (1.0 + mean) < mean:
            n_new += 1
        power = 0.0
        for j in range(n_new):
            scale = draw_scale(ard, rate, rng)
            candidates[i, j, 0] = scale * draw_slab(0.0, 0.0, rate, precision, rng)
            candidates[i, j, 1] = scale
            power += candidates[i, j, 0] ** 2
        share = _log_share_(n_new, power, residual, n_seen, noise_var, feature_var, new_rate, mean, most)
        if share > top:  # in one pass: what was chosen so far stands for all before
            total = total * math.exp(top - share) + 1.0
            top = share
        else:
            total += math.exp(share - top)
        if rng.random() * total < math.exp(share - top):
            chosen, n_chosen = i, n_new
    if chosen >= 0:
        for j in range(n_chosen):
            own[j, 0], own[j, 1] = candidates[chosen, j, 0], candidates[chosen, j, 1]
    return n_chosen


def _draw_scale(ard, rate, rng):
    """How much larger the weights of a feature are than their law says: 1 without ARD (ard = 0), else from its prior.

    The scale of Laplace weights, and the squared one of normal weights, is InverseGamma(ard, ard).
    """
    if ard == 0.0:
        return 1.0
    # eq: own.ard
    value = ard / rng.standard_gamma(ard)
    return math.sqrt(value) if rate == 0.0 else value


def _log_share(n, power, residual, n_seen, noise_var, feature_var, new_rate, mean, most):
    """Log of Poisson(n; new_rate) N(e; 0, noise_var + feature_var power) over the geometric proposal of n."""
    v = noise_var + feature_var * power
    # eq: own.iterated-births
    share = n * (math.log(new_rate) + math.log1p(1.0 / mean)) - math.lgamma(n + 1.0)
    share -= 0.5 * n_seen * math.log(v) + 0.5 * residual / v
    return share - math.log1p(mean) if n == most else share  # the proposal ends there


draw_scale = jit(_draw_scale)
_log_share_ = jit(_log_share)
log_erfcx = jit(_log_erfcx)
_excess_ = jit(_excess)
_log_halves_ = jit(_log_halves)
_half_moments_ = jit(_half_moments)
log_slab = jit(_log_slab)
draw_slab = jit(_draw_slab)
slab_factor = jit(_slab_factor)
slab_moments = jit(_slab_moments)
draw_own = jit(_draw_own)
