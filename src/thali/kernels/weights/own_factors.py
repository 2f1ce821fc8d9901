"""Factors that one row alone has: they are born and die with their values integrated out; then values are drawn.

Only the sum of their squared loadings and what all other factors leave of the row matter (`log_fit`).
"""

import math

import numpy as np

from thali.kernels._jit import jit


def _log_fit(power, square, n_seen, noise_var):
    """log N(e; 0, noise_var + power) / N(e; 0, noise_var) of n_seen cells with |e|^2 = square.

    That is what own factors explain whose squared loadings sum to `power`, with their values integrated out.
    """
    # eq: NSFA.own-fit
    return -0.5 * n_seen * math.log1p(power / noise_var) + 0.5 * square * power / (noise_var * (noise_var + power))


def _draw_own(loading_law, rng):
    """(loading, precision) of a new factor, from their prior."""
    shape, rate = loading_law
    precision = rng.standard_gamma(shape) / rate if shape > 0.0 else 1.0 / rate
    return rng.standard_normal() / math.sqrt(precision), precision


def _power_of(own, n_own):
    """Sum of the squared loadings."""
    total = 0.0
    for j in range(n_own):
        total += own[j, 0] * own[j, 0]
    return total


def _birth_or_death(own, n_own, square, n_seen, noise_var, new_rate, loading_law, rng):
    """Propose one more own factor, from its prior, or one less; the number afterwards. own (capacity, 2) changes."""
    power = power_of(own, n_own)
    now = log_fit(power, square, n_seen, noise_var)
    if rng.random() < 0.5:
        loading, precision = draw_own(loading_law, rng)
        # eq: NSFA.birth
        ratio = log_fit(power + loading * loading, square, n_seen, noise_var) - now + math.log(new_rate / (n_own + 1))
        if math.log(1.0 - rng.random()) < ratio:
            own[n_own, 0], own[n_own, 1] = loading, precision
            return n_own + 1
    elif n_own > 0:
        j = int(rng.random() * n_own)
        left = max(power - own[j, 0] * own[j, 0], 0.0)
        ratio = log_fit(left, square, n_seen, noise_var) - now + math.log(n_own / new_rate)
        if math.log(1.0 - rng.random()) < ratio:
            own[j, 0], own[j, 1] = own[n_own - 1, 0], own[n_own - 1, 1]
            return n_own - 1
    return n_own


def _log_noise(noise_var, noise_law):
    """log p(noise variance), up to a constant."""
    shape, rate, floor = noise_law
    return -(shape + 1.0) * math.log(noise_var) - rate / noise_var if noise_var >= floor else -np.inf


def _born_of_noise(own, n_own, noise_var, new_rate, loading_law, noise_law, rng):
    """As `birth_or_death`, but the square of the loading is taken from the noise, or given to it: what the row shows of
    both, its own factors' values integrated out, stays as it is. (Number, noise variance) afterwards."""
    now = log_noise(noise_var, noise_law)
    if rng.random() < 0.5:
        loading, precision = draw_own(loading_law, rng)
        left = noise_var - loading * loading
        # eq: NSFA.born-of-noise
        ratio = log_noise(left, noise_law) - now + math.log(new_rate / (n_own + 1)) if left > 0.0 else -np.inf
        if math.log(1.0 - rng.random()) < ratio:
            own[n_own, 0], own[n_own, 1] = loading, precision
            return n_own + 1, left
    elif n_own > 0:
        j = int(rng.random() * n_own)
        more = noise_var + own[j, 0] * own[j, 0]
        ratio = log_noise(more, noise_law) - now + math.log(n_own / new_rate)
        if math.log(1.0 - rng.random()) < ratio:
            own[j, 0], own[j, 1] = own[n_own - 1, 0], own[n_own - 1, 1]
            return n_own - 1, more
    return n_own, noise_var


def _log_number(n, rate):
    """log Poisson(n; rate)."""
    return n * math.log(rate) - rate - math.lgamma(n + 1.0)


def _log_proposed(n, rate, share):
    """Log probability of n under (1 - share) Poisson(rate) + share {n = 1}."""
    value = math.log1p(-share) + log_number(n, rate) if share < 1.0 else -np.inf
    if n == 1 and share > 0.0:
        top = max(value, math.log(share))
        value = top + math.log(math.exp(value - top) + math.exp(math.log(share) - top))
    return value


def _independent_own(own, n_own, room, square, n_seen, noise_var, new_rate, loading_law, proposal, rng):
    """Propose another set of own factors, independent of the present one; the number afterwards. own changes.

    Sets of more than `room` are never accepted from either side: the number is cut off there.
    """
    boost, share = proposal
    n_new = 1 if rng.random() < share else rng.poisson(boost * new_rate)
    if n_new > room:
        return n_own
    others = np.zeros((n_new, 2))
    for j in range(n_new):
        others[j, 0], others[j, 1] = draw_own(loading_law, rng)
    # eq: NSFA.own-proposal
    ratio = log_fit(power_of(others, n_new), square, n_seen, noise_var) + log_number(n_new, new_rate)
    ratio -= log_fit(power_of(own, n_own), square, n_seen, noise_var) + log_number(n_own, new_rate)
    ratio += log_proposed(n_own, boost * new_rate, share) - log_proposed(n_new, boost * new_rate, share)
    if math.log(1.0 - rng.random()) >= ratio:
        return n_own
    for j in range(n_new):
        own[j, 0], own[j, 1] = others[j, 0], others[j, 1]
    return n_new


def _draw_own_values(own, n_own, e, is_seen, noise_var, F, K, rng):
    """Values F[K:K+n_own] of the own factors given their loadings a and what is left of the row.

    f_c ~ N(a e_c / (noise_var + |a|^2), I - a a' / (noise_var + |a|^2)) where a cell is seen, else N(0, I).
    """
    power = power_of(own, n_own)
    shrink = (1.0 - math.sqrt(noise_var / (noise_var + power))) / power if power > 0.0 else 0.0
    for c in range(e.size):
        total = 0.0
        for j in range(n_own):
            F[K + j, c] = rng.standard_normal()
            total += own[j, 0] * F[K + j, c]
        if is_seen[c]:
            for j in range(n_own):
                # eq: NSFA.own-values
                F[K + j, c] += own[j, 0] * (e[c] / (noise_var + power) - shrink * total)


log_fit = jit(_log_fit)
draw_own = jit(_draw_own)
power_of = jit(_power_of)
birth_or_death = jit(_birth_or_death)
log_noise = jit(_log_noise)
born_of_noise = jit(_born_of_noise)
log_number = jit(_log_number)
log_proposed = jit(_log_proposed)
independent_own = jit(_independent_own)
draw_own_values = jit(_draw_own_values)
