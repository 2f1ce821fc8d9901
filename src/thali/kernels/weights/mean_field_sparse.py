"""Variational rows of Y = offset + (Z * W) F + noise, a noise level and perhaps an offset for each row: q(z, w), q(tau)
and q(offset) of every row, each at its optimum given the others.

    E log p(y | z, w) = z_k (b w_k - t E|f_k|^2 w_k^2 / 2) + const,
    b = t (E[f_k] (y - m)' - sum_{l != k} E[f_k f_l'] E[v_l]),  v = z w,  t = E tau,  m = E offset

`forms` = E[F F'] over the cells that the row sees; a column beyond the K features has the code 1 in every row.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.mean_field_rows import own_forms
from thali.kernels.capped_gamma import capped_mean
from thali.kernels.weights.code_factors import best_bit


def _loadings_pass(g, forms, t, log_odds, precision, log_precision, sharpness, z_prob, mean, var, v, square):
    """One pass over the loadings of a row, p(w_k) = N(0, 1 / lambda_k): E and E log of lambda_k are `precision` and
    `log_precision`.

    g = E[F] (y - m)' - forms v (columns), which changes with v = E[z w], square = E[z w^2]. sharpness: 1, or infinity
    for bits that are 0 or 1. Cost O(K^2).
    """
    for k in range(z_prob.size):
        c = max(forms[k, k], 0.0)  # rounding
        # eq: NSFA.mean-field-loading
        curve = t * c + precision[k]
        b = t * (g[k] + c * v[k])
        first = b / curve
        p, _ = best_bit(log_odds[k] + 0.5 * (log_precision[k] - math.log(curve) + b * first), sharpness)
        step = p * first - v[k]
        for j in range(g.size):
            g[j] -= step * forms[k, j]
        z_prob[k], mean[k], var[k] = p, first, 1.0 / curve
        v[k], square[k] = p * first, p * (first * first + 1.0 / curve)


def _square_left(power, product, g, forms, v, square):
    """E|y - m - v F|^2 = |y - m|^2 - 2 v.product + E[v forms v'], with product = E[F] (y - m)' and g as above."""
    total = power
    for k in range(v.size):
        # eq: NSFA.mean-field-square
        total += forms[k, k] * (square[k] - v[k] * v[k]) - v[k] * (product[k] + g[k])
    return max(total, 0.0)


def _sparse_factor_rows(
    products, sums, powers, n_seen, missing_start, missing_cell, forms, of_cells, totals, log_odds, precision,
    log_precision, noise_law, spread, heat, sharpness, n_passes, z_prob, mean, var, noise_shape, noise_rate,
    offset_mean, offset_var, v, square,
):  # fmt: skip
    """n_passes over the rows' loadings, noise and offset; with none of them v and square alone.

    products (N, C) = Y E[F]' and totals (N, C) = E[F] summed over the cells that a row sees (totals (0, C) if rows have
    no offset); sums, powers, n_seen (N) of y, y^2 and of cells. Missing cells of row n are
    missing_cell[missing_start[n]:missing_start[n+1]]; forms (C, C) of all cells, of_cells of each. tau ~
    Gamma(shape, rate) below 1 / floor, (shape, rate, floor) = noise_law, unless the shape is 0; offset ~ N(0, spread).
    Loadings see tau / heat. Those from z_prob on change in place: q(tau) = Gamma(noise_shape, noise_rate) below 1 /
    floor, v and square are (N, C).
    """
    n_rows, K = z_prob.shape
    n_columns = forms.shape[0]
    has_offset = totals.shape[0] > 0
    flat = of_cells.reshape(of_cells.shape[0], forms.size)
    g, product, own = np.zeros(n_columns), np.zeros(n_columns), np.zeros(forms.shape)
    is_seen = np.ones(of_cells.shape[0], np.bool_)
    ceiling = 1.0 / noise_law[2] if noise_law[2] > 0.0 else np.inf
    for n in range(n_rows):
        for k in range(K):
            v[n, k] = z_prob[n, k] * mean[n, k]
            square[n, k] = z_prob[n, k] * (mean[n, k] * mean[n, k] + var[n, k])
        for k in range(K, n_columns):
            v[n, k] = square[n, k] = 1.0
        if n_passes == 0:
            continue
        cells = missing_cell[missing_start[n] : missing_start[n + 1]]
        mine = forms
        if cells.size > 0:
            own_forms(forms.reshape(-1), flat, cells, is_seen, own.reshape(-1))
            mine = own
        for _ in range(n_passes):
            t, m = capped_mean(noise_shape[n], noise_rate[n], ceiling), offset_mean[n]
            for k in range(n_columns):
                product[k] = products[n, k] - (m * totals[n, k] if has_offset else 0.0)
                g[k] = product[k]
                for j in range(n_columns):
                    g[k] -= mine[k, j] * v[n, j]
            loadings_pass(
                g, mine, t / heat, log_odds, precision, log_precision, sharpness, z_prob[n], mean[n], var[n],
                v[n], square[n],
            )  # fmt: skip
            if noise_law[0] > 0.0:
                power = powers[n] + m * (n_seen[n] * m - 2.0 * sums[n]) + n_seen[n] * offset_var[n]
                left = square_left(power, product, g, mine, v[n], square[n])
                # eq: NSFA.mean-field-noise
                noise_shape[n] = noise_law[0] + 0.5 * n_seen[n]
                noise_rate[n] = noise_law[1] + 0.5 * left
                t = capped_mean(noise_shape[n], noise_rate[n], ceiling)
            if has_offset:
                total = sums[n]
                for k in range(n_columns):
                    total -= totals[n, k] * v[n, k]
                # eq: NSFA.mean-field-offset
                offset_var[n] = 1.0 / (t * n_seen[n] + 1.0 / spread)
                offset_mean[n] = t * total * offset_var[n]


loadings_pass = jit(_loadings_pass)
square_left = jit(_square_left)
sparse_factor_rows = jit(_sparse_factor_rows)
