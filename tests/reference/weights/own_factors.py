"""Twin of thali.kernels.weights.own_factors: densities from scipy, covariances written out."""

import numpy as np
from scipy import stats
from scipy.linalg import sqrtm


def log_fit(power, square, n_seen, noise_var):
    def log_density(var):
        return -0.5 * n_seen * np.log(2 * np.pi * var) - 0.5 * square / var

    return log_density(noise_var + power) - log_density(noise_var)


def draw_own(loading_law, rng):
    shape, rate = loading_law
    precision = rng.standard_gamma(shape) / rate if shape > 0 else 1 / rate
    return rng.standard_normal() * precision**-0.5, precision


def power_of(own, n_own):
    return float(own[:n_own, 0] @ own[:n_own, 0])


def log_target(loadings, square, n_seen, noise_var, new_rate):
    """Of a set of own factors, but for the prior of their loadings, from which they are proposed."""
    number = stats.poisson.logpmf(len(loadings), new_rate)
    return number + log_fit(np.sum(np.square(loadings)), square, n_seen, noise_var)


def birth_or_death(own, n_own, square, n_seen, noise_var, new_rate, loading_law, rng):
    now = log_target(own[:n_own, 0], square, n_seen, noise_var, new_rate)
    if rng.random() < 0.5:
        new = draw_own(loading_law, rng)
        then = log_target(np.append(own[:n_own, 0], new[0]), square, n_seen, noise_var, new_rate)
        # a birth has the density of the prior, a death of it the chance 1 / (n + 1); sets have no order
        if np.log(1 - rng.random()) < then - now:
            own[n_own] = new
            return n_own + 1
    elif n_own > 0:
        j = int(rng.random() * n_own)
        then = log_target(np.delete(own[:n_own, 0], j), square, n_seen, noise_var, new_rate)
        if np.log(1 - rng.random()) < then - now:
            own[j] = own[n_own - 1]
            return n_own - 1
    return n_own


def log_noise(noise_var, noise_law):
    shape, rate, floor = noise_law
    return stats.invgamma.logpdf(noise_var, shape, scale=rate) if noise_var >= floor else -np.inf


def born_of_noise(own, n_own, noise_var, new_rate, loading_law, noise_law, rng):
    now = log_noise(noise_var, noise_law) + stats.poisson.logpmf(n_own, new_rate)
    if rng.random() < 0.5:
        new = draw_own(loading_law, rng)
        left = noise_var - new[0] ** 2
        then = log_noise(left, noise_law) + stats.poisson.logpmf(n_own + 1, new_rate) if left > 0 else -np.inf
        if np.log(1 - rng.random()) < then - now:
            own[n_own] = new
            return n_own + 1, left
    elif n_own > 0:
        j = int(rng.random() * n_own)
        more = noise_var + own[j, 0] ** 2
        then = log_noise(more, noise_law) + stats.poisson.logpmf(n_own - 1, new_rate)
        if np.log(1 - rng.random()) < then - now:
            own[j] = own[n_own - 1]
            return n_own - 1, more
    return n_own, noise_var


def log_number(n, rate):
    return stats.poisson.logpmf(n, rate)


def log_proposed(n, rate, share):
    with np.errstate(divide="ignore"):
        return np.log((1 - share) * stats.poisson.pmf(n, rate) + share * (n == 1))


def independent_own(own, n_own, room, square, n_seen, noise_var, new_rate, loading_law, proposal, rng):
    boost, share = proposal
    n_new = 1 if rng.random() < share else rng.poisson(boost * new_rate)
    if n_new > room:
        return n_own
    new = np.array([draw_own(loading_law, rng) for _ in range(n_new)]).reshape(n_new, 2)
    ratio = log_target(new[:, 0], square, n_seen, noise_var, new_rate)
    ratio -= log_target(own[:n_own, 0], square, n_seen, noise_var, new_rate)
    ratio += log_proposed(n_own, boost * new_rate, share) - log_proposed(n_new, boost * new_rate, share)
    if np.log(1 - rng.random()) >= ratio:
        return n_own
    own[:n_new] = new
    return n_new


def draw_own_values(own, n_own, e, is_seen, noise_var, F, K, rng):
    g = own[:n_own, 0]
    cov = np.linalg.inv(np.eye(n_own) + np.outer(g, g) / noise_var)
    root = np.real(sqrtm(cov))
    for c in range(len(e)):
        normal = np.array([rng.standard_normal() for _ in range(n_own)])
        F[K : K + n_own, c] = cov @ g * e[c] / noise_var + root @ normal if is_seen[c] else normal
