"""Variational rows of X = (Z * W) A + noise, given what is known of A: each q(z, w) at its optimum given the others.

    E log p(x | z, w) = z_k (b w_k - c w_k^2 / 2) + const,
    b = E[A_k] x' - sum_{l != k} E[A_k A_l'] E[v_l],  c = E[A_k A_k'],  v = z w,  all in units of the noise

In a pass over the features of one row, all arrays but `forms` have an entry per feature and change in place.
forms = E[A A'], g = E[A] x' - forms v, both over the row's observed cells. (rate, precision, log_norm) is the law of a
weight (`slabs`). sharpness: 1, or infinity for bits that are 0 or 1. A pass returns the row's term of the bound besides
the likelihood and the prior of its bits, sum_k H(q(z_k)) - KL(q(w_k | z_k), p(w)). Cost O(K^2).
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.mean_field_rows import own_forms
from thali.kernels.weights.code_factors import (
    best_bit,
    bit_entropy,
    independent_weight,
    joint_divergence,
    square_of,
    weight_divergence,
)
from thali.kernels.weights.slabs import draw_slab, slab_factor


def _joint_pass(
    g, forms, log_odds, rate, precision, log_norm, sharpness, z_prob, mean, pull, curve, v, square
):  # fmt: skip
    """q(z, w) with q(w | z=0) = p(w), q(w | z=1) ~ p(w) exp(pull w - curve w^2/2), whose mean is `mean`.

    v = E[z w], square = E[z w^2].
    """
    total = 0.0
    for k in range(v.size):
        # eq: own.joint-code
        c = max(forms[k, k], 0.0)  # rounding
        b = g[k] + c * v[k]
        log_integral, first, second = slab_factor(b, c, rate, precision, log_norm)
        p, entropy = best_bit(log_odds[k] + log_integral, sharpness)
        step = p * first - v[k]
        for j in range(v.size):
            g[j] -= step * forms[k, j]
        z_prob[k], mean[k], pull[k], curve[k] = p, first, b, c
        v[k], square[k] = p * first, p * second
        # eq: own.joint-divergence
        total += entropy - p * (b * first - 0.5 * c * second - log_integral)
    return total


def _joint_moments(rate, precision, log_norm, z_prob, pull, curve, v, square):
    """v, square and the term of the bound of a row as it is."""
    total = 0.0
    for k in range(v.size):
        divergence, first, second = joint_divergence(pull[k], curve[k], rate, precision, log_norm)
        v[k], square[k] = z_prob[k] * first, z_prob[k] * second
        total += bit_entropy(z_prob[k]) - z_prob[k] * divergence
    return total


def _independent_pass(
    g, forms, log_odds, rate, precision, log_norm, sharpness, z_prob, mean, spread, v, square
):  # fmt: skip
    """q(z) q(w), q(w) Laplace with this mean and scale `spread`, or normal with variance `spread` (`code_factors`).

    A bit that is 0 or 1 is chosen together with its weight, which has its prior where the bit is 0.
    """
    total = 0.0
    hard = sharpness == math.inf
    for k in range(v.size):
        c = max(forms[k, k], 0.0)  # rounding
        b = g[k] + c * v[k]
        p = 1.0 if hard else z_prob[k]
        m, s = independent_weight(p * b, p * c, mean[k], spread[k], rate, precision)
        second = square_of(m, s, rate)
        divergence = weight_divergence(m, s, rate, precision, log_norm)
        # eq: DV09.independent-bit
        odds = log_odds[k] + b * m - 0.5 * c * second - (divergence if hard else 0.0)
        p, entropy = best_bit(odds, sharpness)
        if hard and p == 0.0:
            m, s, divergence = 0.0, 1.0 / (rate if rate > 0.0 else precision), 0.0
        step = p * m - v[k]
        for j in range(v.size):
            g[j] -= step * forms[k, j]
        z_prob[k], mean[k], spread[k] = p, m, s
        v[k], square[k] = p * m, p * second
        total += entropy - divergence
    return total


def _independent_moments(rate, precision, log_norm, z_prob, mean, spread, v, square):
    """As `joint_moments`."""
    total = 0.0
    for k in range(v.size):
        v[k], square[k] = z_prob[k] * mean[k], z_prob[k] * square_of(mean[k], spread[k], rate)
        total += bit_entropy(z_prob[k]) - weight_divergence(mean[k], spread[k], rate, precision, log_norm)
    return total


# ---- all rows of a part of the data


def _begin_row(cells, product, forms, of_dims, is_seen, v, g, own):
    """E[A A'] over the row's observed cells, which is `own` if some are missing; sets g = product - E[A A'] v.

    forms (C, C) of all dims, of_dims (D, C, C) of each; a last column C > K is that of an offset, whose code is 1.
    is_seen (D) is work space, all True.
    """
    K, n_columns = v.size, forms.shape[0]
    if cells.size > 0:
        flat_dims = of_dims.reshape(of_dims.shape[0], forms.size)
        own_forms(forms.reshape(-1), flat_dims, cells, is_seen, own.reshape(-1))
        forms = own
    for k in range(K):
        total = product[k]
        for j in range(K):
            total -= forms[k, j] * v[j]
        g[k] = total - forms[k, K] if n_columns > K else total
    return forms


def _joint_rows(
    products, missing_start, missing_dim, forms, of_dims, log_odds, rate, precision, log_norm, sharpness, n_passes,
    z_prob, mean, pull, curve, v, square,
):  # fmt: skip
    """`joint_pass` of every row, n_passes times; with none of them the moments alone. Returns the sum of their terms.

    products (N, K) = X E[A]'; missing cells of row n are missing_dim[missing_start[n]:missing_start[n+1]]. The last
    six are (N, K) and change in place.
    """
    n_rows, K = z_prob.shape
    g, own, is_seen = np.zeros(K), np.zeros(forms.shape), np.ones(of_dims.shape[0], np.bool_)
    total = 0.0
    for n in range(n_rows):
        if n_passes == 0:
            total += joint_moments(rate, precision, log_norm, z_prob[n], pull[n], curve[n], v[n], square[n])
            continue
        for k in range(K):
            v[n, k] = z_prob[n, k] * mean[n, k]
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        mine = begin_row(cells, products[n], forms, of_dims, is_seen, v[n], g, own)
        term = 0.0
        for _ in range(n_passes):
            term = joint_pass(
                g, mine, log_odds, rate, precision, log_norm, sharpness, z_prob[n], mean[n], pull[n], curve[n],
                v[n], square[n],
            )  # fmt: skip
        total += term
    return total


def _independent_rows(
    products, missing_start, missing_dim, forms, of_dims, log_odds, rate, precision, log_norm, sharpness, n_passes,
    z_prob, mean, spread, v, square,
):  # fmt: skip
    """As `joint_rows`."""
    n_rows, K = z_prob.shape
    g, own, is_seen = np.zeros(K), np.zeros(forms.shape), np.ones(of_dims.shape[0], np.bool_)
    total = 0.0
    for n in range(n_rows):
        term = independent_moments(rate, precision, log_norm, z_prob[n], mean[n], spread[n], v[n], square[n])
        if n_passes > 0:
            cells = missing_dim[missing_start[n] : missing_start[n + 1]]
            mine = begin_row(cells, products[n], forms, of_dims, is_seen, v[n], g, own)
            for _ in range(n_passes):
                term = independent_pass(
                    g, mine, log_odds, rate, precision, log_norm, sharpness, z_prob[n], mean[n], spread[n],
                    v[n], square[n],
                )  # fmt: skip
        total += term
    return total


def _weights_on(pull, curve, rate, precision, mean, square):
    """mean = E[w | z=1] and square = E[w^2 | z=1] of joint factors, all (N, K)."""
    for n in range(pull.shape[0]):
        for k in range(pull.shape[1]):
            _, mean[n, k], square[n, k] = slab_factor(pull[n, k], curve[n, k], rate, precision, 0.0)


def _draw_joint(bits, pull, curve, rate, precision, codes, rng):
    """codes (N, K) = weights drawn from their joint factors, where the bits are on."""
    for n in range(bits.shape[0]):
        for k in range(bits.shape[1]):
            codes[n, k] = draw_slab(pull[n, k], curve[n, k], rate, precision, rng) if bits[n, k] else 0.0


begin_row = jit(_begin_row)
weights_on = jit(_weights_on)
draw_joint = jit(_draw_joint)
joint_pass = jit(_joint_pass)
joint_moments = jit(_joint_moments)
joint_rows = jit(_joint_rows)
independent_pass = jit(_independent_pass)
independent_moments = jit(_independent_moments)
independent_rows = jit(_independent_rows)
