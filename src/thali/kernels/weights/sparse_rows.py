"""Gibbs sweep over the rows of sparse loadings G for Y = G F + noise, with a noise variance of each row.

Nonparametric sparse factor analysis (Knowles & Ghahramani 2011, corrected): g_nk ~ N(0, 1 / precision_k) where z_nk = 1
and 0 elsewhere, f_kc ~ N(0, 1). A bit is drawn with its loading integrated out, then the loading, in terms of F F' and
F y_n alone. The factors that a row alone has are born and die with their values integrated out; then their values are
drawn anew. A factor of one row is noise by another name, so it may also be born from that row's noise, and become noise
again, with the sum of both as it was. Bits are scanned in a fresh random order for each row, since factors that are
born come last.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.scan import is_heads, next_of, seen_forms
from thali.kernels.weights.own_factors import birth_or_death, born_of_noise, draw_own_values, independent_own


def _sparse_sweep(
    Y, missing_start, missing_cell, G, K, F, precisions, counts, cross, log_odds, new_rate, noise_vars,
    loading_law, noise_law, n_moves, proposal, start, rng,
):  # fmt: skip
    """Draw g_n given F and all else, for n = start, ..., N-1. All arrays but Y change in place.

    Y (N, C) is zero where a cell is missing: those of row n are missing_cell[missing_start[n]:missing_start[n+1]].
    G (N, capacity), F (capacity, C), precisions and counts (capacity) have K factors in use; cross (N, capacity) is
    Y F' to begin with. New precisions are Gamma(shape, rate), (shape, rate) = `loading_law`, or 1 / rate if the shape
    is 0. A noise variance is InverseGamma(shape, rate) above a floor, (shape, rate, floor) = `noise_law`, or fixed if
    the shape is 0. A row's own factors change by n_moves births and deaths; or, with n_moves = 0, by one proposal of
    all of them, (boost, share) = `proposal`: Poisson(boost new_rate) many, or with probability `share` one. Returns
    (K, next row): next row < N means that there is no room for more columns: enlarge the arrays, and call again. Cost
    O(N (K^2 + C (own factors + 1))).
    """
    n_rows, n_cells = Y.shape
    capacity = G.shape[1]
    grows = log_odds[0] == -np.inf
    gram = np.zeros((capacity, capacity))
    products = np.dot(F[:K], F[:K].T)
    for k in range(K):
        for j in range(K):
            gram[k, j] = products[k, j]
    seen_gram = np.zeros((capacity, capacity))
    g = np.zeros(capacity)
    r = np.zeros(capacity)
    order = np.zeros(capacity, np.int64)
    is_seen = np.ones(n_cells, np.bool_)
    is_stale = np.zeros(capacity, np.bool_)  # factors whose values have changed since `cross` was made
    own = np.zeros((capacity, 2))  # loading and precision
    e = np.zeros(n_cells)
    most = n_moves if n_moves > 0 else int(16.0 + 8.0 * proposal[0] * new_rate)
    for n in range(start, n_rows):
        if grows and K + most > capacity:
            return K, n
        y = Y[n]
        cells = missing_cell[missing_start[n] : missing_start[n + 1]]
        noise_var = noise_vars[n]
        for k in range(K):
            if is_stale[k]:
                cross[n, k] = np.dot(F[k], y)
        # --- F F' over the cells that are seen, and F (y - g F)
        forms = gram
        if cells.size > 0:
            forms = seen_gram
            seen_forms(gram, F, K, cells, seen_gram)
        for k in range(K):
            g[k] = G[n, k]
            r[k] = cross[n, k]
        for k in range(K):
            if g[k] != 0.0:
                for j in range(K):
                    r[j] -= g[k] * forms[k, j]

        # --- bits that other rows have too, with their loadings
        n_others = 0
        n_own = 0
        for k in range(K):
            if grows and counts[k] == 1 and g[k] != 0.0:
                own[n_own, 0], own[n_own, 1] = g[k], precisions[k]
                n_own += 1
            else:
                order[n_others] = k
                n_others += 1
        for i in range(n_others):
            k = next_of(order, i, n_others, rng.random())
            old = g[k]
            curve = forms[k, k] / noise_var + precisions[k]
            pull = (r[k] + old * forms[k, k]) / noise_var
            others = counts[k] - (1 if G[n, k] != 0.0 else 0)
            # eq: NSFA.bit
            delta = log_odds[others] + 0.5 * math.log(precisions[k] / curve) + 0.5 * pull * pull / curve
            u = rng.random()
            new = 0.0
            if is_heads(delta, u):
                new = (pull + math.sqrt(curve) * rng.standard_normal()) / curve
            if new != old:
                for j in range(K):
                    r[j] -= (new - old) * forms[k, j]
                g[k] = new
        for i in range(n_others):
            k = order[i]
            counts[k] += (1 if g[k] != 0.0 else 0) - (1 if G[n, k] != 0.0 else 0)
            G[n, k] = g[k]
        if not grows:
            continue

        # --- the row's own factors, by what all others leave of it: r = F (y - others) from here on
        for k in range(K):
            if g[k] != 0.0 and counts[k] == 1:
                for j in range(K):
                    r[j] += g[k] * forms[k, j]
        square = np.dot(y, y)
        for i in range(n_others):
            k = order[i]
            square -= g[k] * (cross[n, k] + r[k])
        square = max(square, 0.0)
        n_before = n_own
        n_seen = n_cells - cells.size
        if n_moves > 0:
            for _ in range(n_moves):
                if noise_law[0] > 0.0 and rng.random() < 0.5:
                    n_own, noise_var = born_of_noise(own, n_own, noise_var, new_rate, loading_law, noise_law, rng)
                else:
                    n_own = birth_or_death(own, n_own, square, n_seen, noise_var, new_rate, loading_law, rng)
            noise_vars[n] = noise_var
        else:
            n_own = independent_own(own, n_own, most, square, n_seen, noise_var, new_rate, loading_law, proposal, rng)
        # --- the row's own factors with values drawn anew, then their loadings given these
        if n_before > 0:
            K = drop_own(n, K, G, F, precisions, counts, cross, gram, is_stale)
        if n_own > 0:
            for c in range(n_cells):
                e[c] = y[c]
            for k in range(K):
                if G[n, k] != 0.0:
                    for c in range(n_cells):
                        e[c] -= G[n, k] * F[k, c]
            for c in cells:
                is_seen[c] = False
            draw_own_values(own, n_own, e, is_seen, noise_var, F, K, rng)
            for j in range(n_own):
                G[n, K + j], precisions[K + j], counts[K + j], is_stale[K + j] = own[j, 0], own[j, 1], 1, True
                for c in range(n_cells):
                    e[c] -= own[j, 0] * F[K + j, c]
            for j in range(n_own):
                f = F[K + j]
                curve, pull = own[j, 1], 0.0
                for c in range(n_cells):
                    if is_seen[c]:
                        curve += f[c] * f[c] / noise_var
                        pull += f[c] * (e[c] + own[j, 0] * f[c]) / noise_var
                new = (pull + math.sqrt(curve) * rng.standard_normal()) / curve
                for c in range(n_cells):
                    e[c] -= (new - own[j, 0]) * f[c]
                G[n, K + j] = new
            for j in range(n_own):
                for k in range(K + n_own):
                    gram[K + j, k] = gram[k, K + j] = np.dot(F[K + j], F[k])
            K += n_own
            for c in cells:
                is_seen[c] = True
    return K, n_rows


def _drop_own(n, K, G, F, precisions, counts, cross, gram, is_stale):
    """Remove the factors that row n alone has; the number of the others. The last ones take their places."""
    k = 0
    while k < K:
        if counts[k] == 1 and G[n, k] != 0.0:
            K -= 1
            for i in range(G.shape[0]):
                G[i, k], cross[i, k] = G[i, K], cross[i, K]
                G[i, K] = 0.0
            for c in range(F.shape[1]):
                F[k, c] = F[K, c]
            precisions[k], counts[k], is_stale[k] = precisions[K], counts[K], is_stale[K]
            for j in range(K):
                gram[k, j] = gram[K, j]
            for j in range(K):
                gram[j, k] = gram[j, K]
            gram[k, k] = gram[K, K]
        else:
            k += 1
    return K


drop_own = jit(_drop_own)
sparse_sweep = jit(_sparse_sweep)
