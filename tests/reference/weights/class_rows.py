"""Twin of thali.kernels.weights.class_rows: residuals and densities in full."""

import numpy as np
from scipy.special import logsumexp
from scipy.stats import bernoulli, norm

from reference.scan import is_heads
from reference.weights.polya_gamma import draw_polya_gamma_sum


def use_log_odds(curve, pull, precision, preference):
    """By the densities of a loading g before the data and after them: their ratio at g = 0 is what the data say."""
    before = norm.logpdf(0.0, preference, 1 / np.sqrt(precision))
    after = norm.logpdf(0.0, pull / curve, 1 / np.sqrt(curve))
    return preference + before - after


def log_class(g, precisions, preference):
    """Without the norm of Gaussian densities, which all classes share."""
    on = g != 0
    bits = bernoulli.logpmf(on, 1 / (1 + np.exp(-preference))).sum()
    return bits - 0.5 * np.sum(precisions[on] * (g[on] - preference[on]) ** 2)


def draw_loadings(Y, missing_start, missing_cell, G, F, precisions, noise_vars, classes, preferences, rng):
    for n in range(len(Y)):
        seen = np.ones(Y.shape[1], dtype=bool)
        seen[missing_cell[missing_start[n] : missing_start[n + 1]]] = False
        for k in range(len(F)):
            e = (Y[n] - np.delete(G[n], k) @ np.delete(F, k, axis=0))[seen]
            f, preference = F[k, seen], preferences[classes[n], k]
            curve = f @ f / noise_vars[n] + precisions[k]
            pull = f @ e / noise_vars[n] + precisions[k] * preference
            heads = is_heads(use_log_odds(curve, pull, precisions[k], preference), rng.random())
            G[n, k] = pull / curve + rng.standard_normal() / np.sqrt(curve) if heads else 0.0


def draw_classes(G, precisions, classes, preferences, rng):
    log_weights = np.array([[log_class(g, precisions, v) for v in preferences] for g in G])
    sums = logsumexp(log_weights, axis=1)
    for n, chances in enumerate(np.exp(log_weights - sums[:, None])):
        above = np.searchsorted(np.cumsum(chances), rng.random(), side="right")
        classes[n] = min(above, len(chances) - 1)
    return np.sum(sums - np.log(len(preferences)))


def preference_law(n_rows, n_on, total, precision, omega):
    """The product of N(0, 1), of n_rows logistic terms given omega, and of n_on loadings."""
    curves = np.array([1.0, omega, precision * n_on])
    pulls = np.array([0.0, n_on - n_rows / 2, precision * total])
    return pulls.sum() / curves.sum(), curves.sum()


def draw_preferences(G, precisions, classes, preferences, rng):
    for i in range(len(preferences)):
        mine = G[classes == i]
        for k in range(G.shape[1]):
            omega = draw_polya_gamma_sum(len(mine), preferences[i, k], rng)
            on = np.count_nonzero(mine[:, k])
            mean, curve = preference_law(len(mine), on, mine[:, k].sum(), precisions[k], omega)
            preferences[i, k] = mean + rng.standard_normal() / np.sqrt(curve)
