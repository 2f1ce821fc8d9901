"""Twin of thali.kernels.weights.mean_field_codes: sums are taken anew for each feature."""

import numpy as np

from reference.weights.code_factors import (
    best_bit,
    bit_entropy,
    independent_weight,
    joint_divergence,
    square_of,
    weight_divergence,
)
from reference.weights.slabs import draw_slab, log_slab, slab_moments


def _pulls(g, forms, v):
    """(A x' of all features, function of v that gives b and c of feature k)."""
    product = g + forms[: len(v), : len(v)] @ v

    def of(k, v):
        others = np.arange(len(v)) != k
        return product[k] - forms[k, : len(v)][others] @ v[others], max(forms[k, k], 0.0)

    return product, of


def joint_pass(g, forms, log_odds, rate, precision, log_norm, sharpness, z_prob, mean, pull, curve, v, square):
    product, of = _pulls(g, forms, v)
    for k in range(len(v)):
        pull[k], curve[k] = of(k, v)
        _, mean[k], second = joint_divergence(pull[k], curve[k], rate, precision, log_norm)
        z_prob[k], _ = best_bit(log_odds[k] + log_slab(pull[k], curve[k], rate, precision, log_norm), sharpness)
        v[k], square[k] = z_prob[k] * mean[k], z_prob[k] * second
    g[:] = product - forms[: len(v), : len(v)] @ v
    return joint_moments(rate, precision, log_norm, z_prob, pull, curve, v, square)


def joint_moments(rate, precision, log_norm, z_prob, pull, curve, v, square):
    total = 0.0
    for k in range(len(v)):
        divergence, first, second = joint_divergence(pull[k], curve[k], rate, precision, log_norm)
        v[k], square[k] = z_prob[k] * first, z_prob[k] * second
        total += bit_entropy(z_prob[k]) - z_prob[k] * divergence
    return total


def independent_pass(
    g, forms, log_odds, rate, precision, log_norm, sharpness, z_prob, mean, spread, v, square
):  # fmt: skip
    law = rate, precision, log_norm
    product, of = _pulls(g, forms, v)
    for k in range(len(v)):
        b, c = of(k, v)
        if np.isinf(sharpness):
            on = independent_weight(b, c, mean[k], spread[k], rate, precision)
            worth = log_odds[k] + b * on[0] - 0.5 * c * square_of(*on, rate) - weight_divergence(*on, *law)
            z_prob[k] = worth > 0
            mean[k], spread[k] = on if worth > 0 else (0.0, 1 / (rate if rate > 0 else precision))
        else:
            p = z_prob[k]
            mean[k], spread[k] = independent_weight(p * b, p * c, mean[k], spread[k], rate, precision)
            odds = log_odds[k] + b * mean[k] - 0.5 * c * square_of(mean[k], spread[k], rate)
            z_prob[k], _ = best_bit(odds, sharpness)
        v[k] = z_prob[k] * mean[k]
    g[:] = product - forms[: len(v), : len(v)] @ v
    return independent_moments(rate, precision, log_norm, z_prob, mean, spread, v, square)


def independent_moments(rate, precision, log_norm, z_prob, mean, spread, v, square):
    total = 0.0
    for k in range(len(v)):
        v[k], square[k] = z_prob[k] * mean[k], z_prob[k] * square_of(mean[k], spread[k], rate)
        total += bit_entropy(z_prob[k]) - weight_divergence(mean[k], spread[k], rate, precision, log_norm)
    return total


def begin_row(cells, product, forms, of_dims, is_seen, v, g, own):
    forms = forms - of_dims[cells].sum(axis=0) if len(cells) else forms
    codes = np.append(v, np.ones(len(forms) - len(v)))  # an offset's is 1
    g[:] = product - forms[: len(v)] @ codes
    return forms


def joint_rows(
    products, missing_start, missing_dim, forms, of_dims, log_odds, rate, precision, log_norm, sharpness, n_passes,
    z_prob, mean, pull, curve, v, square,
):  # fmt: skip
    law, total = (rate, precision, log_norm), 0.0
    for n in range(len(products)):
        row = z_prob[n], mean[n], pull[n], curve[n], v[n], square[n]
        term = joint_moments(*law, z_prob[n], *row[2:])
        v[n] = z_prob[n] * mean[n] if n_passes else v[n]
        g = np.zeros(len(v[n]))
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        mine = begin_row(cells, products[n], forms, of_dims, None, v[n], g, None)
        for _ in range(n_passes):
            term = joint_pass(g, mine, log_odds, *law, sharpness, *row)
        total += term
    return total


def independent_rows(
    products, missing_start, missing_dim, forms, of_dims, log_odds, rate, precision, log_norm, sharpness, n_passes,
    z_prob, mean, spread, v, square,
):  # fmt: skip
    law, total = (rate, precision, log_norm), 0.0
    for n in range(len(products)):
        row = z_prob[n], mean[n], spread[n], v[n], square[n]
        term = independent_moments(*law, *row)
        g = np.zeros(len(v[n]))
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        mine = begin_row(cells, products[n], forms, of_dims, None, v[n], g, None)
        for _ in range(n_passes):
            term = independent_pass(g, mine, log_odds, *law, sharpness, *row)
        total += term
    return total


def weights_on(pull, curve, rate, precision, mean, square):
    for at in np.ndindex(pull.shape):
        mean[at], square[at] = slab_moments(pull[at], curve[at], rate, precision)


def draw_joint(bits, pull, curve, rate, precision, codes, rng):
    for at in np.ndindex(bits.shape):
        codes[at] = draw_slab(pull[at], curve[at], rate, precision, rng) if bits[at] else 0.0
