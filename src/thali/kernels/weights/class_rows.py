"""Gibbs sweeps over sparse loadings G whose owners belong to classes, for Y = G F + noise.

Each class l has a preference V_lk ~ N(0, 1) for every factor (Biron Lattes, section 6): an owner of the class has the
factor with probability 1 / (1 + exp(-V_lk)), and then with a loading from N(V_lk, 1 / precision_k). All classes are as
likely. Given preferences and factors rows are independent of each other, and the number of factors is fixed, so they
are scanned in the order in which they stand.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.scan import is_heads, seen_forms
from thali.kernels.weights.polya_gamma import draw_polya_gamma_sum


def _use_log_odds(curve, pull, precision, preference):
    """Log-odds of a loading that is not zero, which is then N(pull / curve, 1 / curve)."""
    # eq: NSFA.class-bit
    return (
        preference
        + 0.5 * math.log(precision / curve)
        + 0.5 * pull * pull / curve
        - 0.5 * precision * preference * preference
    )


def _log_class(g, precisions, preference):
    """log p(loadings g | a class with this preference), up to what is the same for all classes."""
    total = 0.0
    for k in range(g.size):
        v = preference[k]
        # eq: NSFA.class
        total -= max(v, 0.0) + math.log1p(math.exp(-abs(v)))
        if g[k] != 0.0:
            total += v - 0.5 * precisions[k] * (g[k] - v) * (g[k] - v)
    return total


def _draw_loadings(Y, missing_start, missing_cell, G, F, precisions, noise_vars, classes, preferences, rng):
    """Draw the loadings of every row given its class and all else. G changes in place.

    Y (N, C) is zero where a cell is missing: those of row n are missing_cell[missing_start[n]:missing_start[n+1]].
    G (N, K), F (K, C), preferences (L, K). Cost O(N K (C + K)).
    """
    K = F.shape[0]
    gram = np.dot(F, F.T)
    cross = np.dot(Y, F.T)
    seen_gram = np.zeros((K, K))
    for n in range(Y.shape[0]):
        cells = missing_cell[missing_start[n] : missing_start[n + 1]]
        forms = gram
        if cells.size > 0:
            forms = seen_gram
            seen_forms(gram, F, K, cells, seen_gram)
        for k in range(K):
            precision, preference = precisions[k], preferences[classes[n], k]
            left = cross[n, k]  # f_k (y - all other factors)
            for j in range(K):
                if j != k:
                    left -= G[n, j] * forms[j, k]
            curve = forms[k, k] / noise_vars[n] + precision
            pull = left / noise_vars[n] + precision * preference
            G[n, k] = 0.0
            if is_heads(use_log_odds(curve, pull, precision, preference), rng.random()):
                G[n, k] = (pull + math.sqrt(curve) * rng.standard_normal()) / curve


def _draw_classes(G, precisions, classes, preferences, rng):
    """Draw the class of every row given its loadings and the preferences; log p(loadings), classes summed out, up to
    what is the same for all classes. They change in place.

    Nothing else is given: the Polya-Gamma variables that serve to draw preferences belong to classes as they were.
    """
    n_classes = preferences.shape[0]
    log_weights = np.zeros(n_classes)
    fit = -G.shape[0] * math.log(n_classes)
    for n in range(G.shape[0]):
        for i in range(n_classes):
            log_weights[i] = log_class(G[n], precisions, preferences[i])
        top = log_weights.max()
        total = 0.0
        for i in range(n_classes):
            total += math.exp(log_weights[i] - top)
            log_weights[i] = total
        fit += top + math.log(total)
        u = rng.random() * total
        i = 0
        while i < n_classes - 1 and u >= log_weights[i]:
            i += 1
        classes[n] = i
    return fit


def _preference_law(n_rows, n_on, total, precision, omega):
    """(mean, precision) of a preference, given a Polya-Gamma variable omega of a class with n_rows owners of whom n_on
    have the factor, with loadings that sum to `total`."""
    # eq: NSFA.preference
    curve = 1.0 + omega + precision * n_on
    return (n_on - 0.5 * n_rows + precision * total) / curve, curve


def _draw_preferences(G, precisions, classes, preferences, rng):
    """Preferences given loadings and classes; those of a class without owners from their prior. They change in place.

    Each by a fresh Polya-Gamma variable, given its present value, that is then forgotten.
    """
    n_classes, K = preferences.shape
    n_rows = np.zeros(n_classes, np.int64)
    n_on = np.zeros((n_classes, K))
    totals = np.zeros((n_classes, K))
    for n in range(G.shape[0]):
        i = classes[n]
        n_rows[i] += 1
        for k in range(K):
            if G[n, k] != 0.0:
                n_on[i, k] += 1.0
                totals[i, k] += G[n, k]
    for i in range(n_classes):
        for k in range(K):
            omega = draw_polya_gamma_sum(n_rows[i], preferences[i, k], rng)
            mean, curve = preference_law(n_rows[i], n_on[i, k], totals[i, k], precisions[k], omega)
            preferences[i, k] = mean + rng.standard_normal() / math.sqrt(curve)


use_log_odds = jit(_use_log_odds)
log_class = jit(_log_class)
draw_loadings = jit(_draw_loadings)
draw_classes = jit(_draw_classes)
preference_law = jit(_preference_law)
draw_preferences = jit(_draw_preferences)
