"""Twin of thali.kernels.weights.slabs: SciPy's special functions, and quadrature for the moments."""

from itertools import pairwise

import numpy as np
from scipy.integrate import quad
from scipy.special import erfcx, gammaln


def log_erfcx(x):
    with np.errstate(over="ignore"):
        value = erfcx(x)
    return np.log(value) if np.isfinite(value) else x * x + np.log(2.0)


def log_slab(b, c, rate, precision, log_norm):
    curve = max(c + precision, 1e-200)
    return 0.5 * np.log(np.pi / (2 * curve)) + np.logaddexp(*_log_halves(b, np.sqrt(curve), rate)) - log_norm


def _log_halves(b, root, rate):
    return [log_erfcx(-a / np.sqrt(2)) for a in ((b - rate) / root, -(b + rate) / root)]


def draw_slab(b, c, rate, precision, rng):
    curve = max(c + precision, 1e-200)
    root = np.sqrt(curve)
    if rate == 0.0:
        return b / curve + rng.standard_normal() / root
    up, down = _log_halves(b, root, rate)
    if rng.random() < 1.0 / (1.0 + np.exp(min(down - up, 700.0))):
        return _beyond((rate - b) / root, rng) / root
    return -_beyond((rate + b) / root, rng) / root


def _beyond(low, rng):
    if low < 0.45:
        z = rng.standard_normal()
        while z <= low:
            z = rng.standard_normal()
        return z - low
    slope = 0.5 * (low + np.sqrt(low * low + 4.0))
    while True:
        t = -np.log(1.0 - rng.random()) / slope
        if rng.random() < np.exp(-0.5 * (low + t - slope) ** 2):
            return t


def slab_moments(b, c, rate, precision):
    curve = c + precision
    centre = np.sign(b) * max(abs(b) - rate, 0.0) / curve  # of the posterior

    def part(power):
        def density(w):
            return w**power * np.exp((b * w - 0.5 * curve * w * w - rate * abs(w)) - top)

        reach = 40.0 / max(np.sqrt(curve), rate - abs(b), 1e-3)
        points = sorted({centre - reach, min(centre, 0.0), max(centre, 0.0), centre + reach})
        return sum(quad(density, low, high, epsabs=0, epsrel=1e-10, limit=200)[0] for low, high in pairwise(points))

    top = b * centre - 0.5 * curve * centre * centre - rate * abs(centre)
    total = part(0)
    return part(1) / total, part(2) / total


def slab_factor(b, c, rate, precision, log_norm):
    return log_slab(b, c, rate, precision, log_norm), *slab_moments(b, c, rate, precision)


def draw_scale(ard, rate, rng):
    if ard == 0.0:
        return 1.0
    return (ard / rng.standard_gamma(ard)) ** (0.5 if rate == 0.0 else 1.0)


def draw_own(residual, n_seen, own, n_own, noise_var, feature_var, new_rate, rate, precision, ard, candidates, rng):
    n_choices, most = candidates.shape[:2]
    mean = max(1.0, new_rate)

    def log_share(w):
        n, v = len(w), noise_var + feature_var * np.sum(np.square(w[:, 0]))
        proposal = n * np.log(mean / (1.0 + mean)) - (np.log1p(mean) if n < most else 0.0)
        target = n * np.log(new_rate) - gammaln(n + 1.0) - 0.5 * n_seen * np.log(v) - 0.5 * residual / v
        return target - proposal

    choices = [np.array(own[:n_own])]
    shares = [log_share(choices[0])]
    chosen = 0
    for i in range(n_choices):
        n_new = 0
        while n_new < most and rng.random() < mean / (1.0 + mean):
            n_new += 1
        for j in range(n_new):
            scale = draw_scale(ard, rate, rng)
            candidates[i, j] = scale * draw_slab(0.0, 0.0, rate, precision, rng), scale
        choices.append(candidates[i, :n_new].copy())
        shares.append(log_share(choices[-1]))
        if rng.random() < np.exp(shares[-1] - np.logaddexp.reduce(shares)):
            chosen = i + 1
    own[: len(choices[chosen])] = choices[chosen]
    return len(choices[chosen])
