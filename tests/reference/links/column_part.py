"""Twins of `thali.kernels.links.column_part`: every inverse and every sum from scratch."""

import numpy as np


def invert(columns, K, apart, ridge):
    others = np.array([k for k in range(K) if k != apart], dtype=int)
    block = np.ix_(others, others)
    columns.P[:K, :K] = 0.0
    columns.mu[:K] = 0.0
    columns.P[block] = np.linalg.inv(columns.gram[block] + ridge * np.eye(len(others)))
    columns.mu[others] = columns.P[block] @ columns.cross[others]


def weigh_part(columns, part, K, k, ridge):
    part.Pu[:K] = columns.P[:K, :K] @ part.u[:K]
    part.v[:] = columns.cross[k] - part.u[:K] @ columns.mu[:K]
    part.forms[1:] = part.u[:K] @ part.Pu[:K], part.v @ part.v


def take_column(columns, part, K, k, ridge):
    invert(columns, K, k, ridge)
    part.u[:K] = columns.gram[k, :K]
    part.u[k] = 0.0
    part.delta[:K] = 0.0
    part.forms[0] = columns.gram[k, k]
    weigh_part(columns, part, K, k, ridge)


def put_column(columns, part, K, k, ridge):
    weigh_part(columns, part, K, k, ridge)
    columns.gram[:K, k] = columns.gram[k, :K] = part.u[:K]
    columns.gram[k, k] = part.forms[0]
    invert(columns, K, -1, ridge)


def column_gain(forms, n_dims, noise_var, ridge):
    size, uPu, vv = forms
    s = size + ridge - uPu
    return -0.5 * n_dims * np.log(s / ridge) + vv / (2 * noise_var * s)


def weigh_rows(columns, part, K, rows, n_changed, sign, visit):
    some = rows[:n_changed]
    part.delta[:K] = sign * columns.Z[some, :K].sum(axis=0, dtype=float)
    part.dv[:] = sign * (columns.X[some] - columns.Z[some, :K] @ columns.mu[:K]).sum(axis=0)
    u, v = part.u[:K] + part.delta[:K], part.v + part.dv
    part.new_forms[:] = part.forms[0] + sign * n_changed, u @ columns.P[:K, :K] @ u, v @ v
    touched = np.flatnonzero(part.delta[:K])
    part.touched[: len(touched)] = touched
    return len(touched)


def change_rows(columns, part, K, k, rows, n_changed, sign, n_touched):
    some = rows[:n_changed]
    columns.Z[some, k] = sign > 0
    columns.cross[k] += sign * columns.X[some].sum(axis=0)
    part.u[:K] += np.where(np.arange(K) == k, 0.0, part.delta[:K])
    part.Pu[:K] = columns.P[:K, :K] @ part.u[:K]
    part.v[:] += part.dv
    part.forms[:] = part.new_forms


def forget_change(part, n_touched):
    part.delta[:] = 0.0


def log_likelihood(X, Z, noise_var, ridge):
    """Columns x_d ~ N(0, noise_var (I + ZZ' / ridge)), with a matrix of all rows."""
    dense = Z.astype(float)
    cov = noise_var * (np.eye(len(X)) + dense @ dense.T / ridge)
    quadratic = np.sum(X * np.linalg.solve(cov, X))
    return -0.5 * (X.shape[1] * np.linalg.slogdet(2 * np.pi * cov)[1] + quadratic)


def column_change(columns, part, K, k, rows, noise_var, ridge):
    Z = columns.Z[:, :K].copy()
    before = log_likelihood(columns.X, Z, noise_var, ridge)
    Z[rows, k] ^= 1
    return log_likelihood(columns.X, Z, noise_var, ridge) - before
