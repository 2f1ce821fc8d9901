"""Twins of thali.kernels.weights.mean_field_sparse: each factor from the expected log density, no algebra saved."""

import numpy as np
from scipy.special import expit, gammainc


def loadings_pass(g, forms, t, log_odds, precision, log_precision, sharpness, z_prob, mean, var, v, square):
    n_columns = len(g)
    product = g + forms @ v
    for k in range(len(z_prob)):
        others = np.delete(np.arange(n_columns), k)
        b = t * (product[k] - forms[k, others] @ v[others])
        curve = t * forms[k, k] + precision[k]
        # log of the integral of N(w; 0, 1 / lambda) exp(b w - t c w^2 / 2), with E log lambda
        log_slab = 0.5 * log_precision[k] - 0.5 * np.log(curve) + 0.5 * b**2 / curve
        total = log_odds[k] + log_slab
        z_prob[k] = float(total > 0) if sharpness == np.inf else expit(total)
        mean[k], var[k] = b / curve, 1.0 / curve
        v[k], square[k] = z_prob[k] * mean[k], z_prob[k] * (mean[k] ** 2 + var[k])
    g[:] = product - forms @ v


def square_left(power, product, g, forms, v, square):
    second = np.outer(v, v)
    np.fill_diagonal(second, square)
    return max(power - 2.0 * product @ v + np.sum(forms * second), 0.0)


def capped_mean(shape, rate, floor):
    if floor == 0:
        return shape / rate
    return shape / rate * gammainc(shape + 1, rate / floor) / gammainc(shape, rate / floor)


def sparse_factor_rows(
    products, sums, powers, n_seen, missing_start, missing_cell, forms, of_cells, totals, log_odds, precision,
    log_precision, noise_law, spread, heat, sharpness, n_passes, z_prob, mean, var, noise_shape, noise_rate,
    offset_mean, offset_var, v, square,
):  # fmt: skip
    n_rows, K = z_prob.shape
    v[:, :K], square[:, :K] = z_prob * mean, z_prob * (mean**2 + var)
    v[:, K:] = square[:, K:] = 1.0
    has_offset = len(totals) > 0
    for n in range(n_rows):
        cells = missing_cell[missing_start[n] : missing_start[n + 1]]
        mine = of_cells[np.delete(np.arange(len(of_cells)), cells)].sum(axis=0) if len(cells) else forms
        for _ in range(n_passes):
            product = products[n] - (offset_mean[n] * totals[n] if has_offset else 0.0)
            t = capped_mean(noise_shape[n], noise_rate[n], noise_law[2])
            g = product - mine @ v[n]
            loadings_pass(
                g, mine, t / heat, log_odds, precision, log_precision, sharpness, z_prob[n], mean[n], var[n],
                v[n], square[n],
            )  # fmt: skip
            if noise_law[0] > 0:
                second = offset_mean[n] ** 2 + offset_var[n]
                power = powers[n] - 2 * offset_mean[n] * sums[n] + n_seen[n] * second
                left = square_left(power, product, g, mine, v[n], square[n])
                noise_shape[n], noise_rate[n] = noise_law[0] + n_seen[n] / 2, noise_law[1] + left / 2
            if has_offset:
                t = capped_mean(noise_shape[n], noise_rate[n], noise_law[2])
                offset_var[n] = 1 / (t * n_seen[n] + 1 / spread)
                offset_mean[n] = offset_var[n] * t * (sums[n] - totals[n] @ v[n])
