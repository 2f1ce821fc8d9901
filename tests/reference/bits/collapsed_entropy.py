"""Plain NumPy twin of `thali.kernels.bits.collapsed_entropy`: all rows at once, and every entropy."""

import numpy as np


def collapsed_entropy(X, square, Z, P, mean, odds_on, odds_off, noise_var):
    Z = Z.astype(float)
    G = mean @ mean.T
    b, Pz, Gz = X @ mean.T, Z @ P, Z @ G
    q, zb, zGz = np.sum(Z * Pz, axis=1), np.sum(Z * b, axis=1), np.sum(Z * Gz, axis=1)
    left = np.maximum(1.0 - q, 1e-12)[:, None]
    g, h, e = Pz / left, b - Gz, (square - 2 * zb + zGz)[:, None]
    b = b - g * (square - zb)[:, None]
    Gz = Gz + g * (e * q[:, None] / left - (zb - zGz)[:, None]) - h * q[:, None] / left
    q_out = np.sum(Z * g, axis=1, keepdims=True)
    s_out = square[:, None] + np.sum(Z * (Gz - 2 * b), axis=1, keepdims=True)
    step = 1.0 - 2.0 * Z
    q_new = q_out + 2 * step * g + np.diag(P) + left * g * g
    s_new = s_out + 2 * step * (Gz - b) + np.diag(G) - 2 * g * h + e * g * g
    odds = np.where(Z == 1, odds_on, odds_off)
    free = np.isfinite(odds)
    v, w = 1.0 / (1.0 + np.maximum(q_new, 0.0)), 1.0 / (1.0 + np.maximum(q_out, 0.0))
    size = 0.5 * X.shape[1] * np.log(v / w) + 0.5 / noise_var * (s_out * w - s_new * v)
    size = np.abs(np.where(free, size + step * np.where(free, odds, 0.0), 0.0))
    with np.errstate(under="ignore"):
        t = np.exp(-size)
    return float(np.sum(np.where(free, np.log1p(t) + size * t / (1.0 + t), 0.0)))
