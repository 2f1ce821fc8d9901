"""One column of Z held apart from the others: what the likelihood says of a change of some of its rows.

With the features integrated out, H = Z_'Z_ + r I of the other columns and r = noise_var / feature_var,

    u = Z_'z,   s = z'z + r - u' H^-1 u,   v = X'z - (X'Z_) H^-1 u,
    log p(X | Z) = log p(X | Z_) + (D/2) log r - (D/2) log s + |v|^2 / (2 noise_var s).

Only u, v and three numbers change with the rows of z, so that a change of T rows costs O(T (K + D)) and the square of
the number of other columns that these rows have; H^-1 stays as it is until another column is taken.
"""

import math

import numpy as np

from thali.kernels._jit import jit

_REBUILD_ABOVE = 30.0  # (z'z + r) / s beyond which taking a column out of the inverse loses too many digits


def _invert(columns, K, apart, ridge):
    """P and mu from gram and cross, without the column `apart` (-1 for none), whose entries are zero. Cost O(K^3)."""
    if K == 0:
        return
    M = columns.gram[:K, :K].copy()
    for k in range(K):
        M[k, k] += ridge
    if apart >= 0:
        for k in range(K):
            M[k, apart] = M[apart, k] = 0.0
        M[apart, apart] = 1.0
    inverse = np.linalg.inv(M)
    if apart >= 0:
        inverse[apart, apart] = 0.0
    for i in range(K):
        for j in range(K):
            M[i, j] = 0.5 * (inverse[i, j] + inverse[j, i])
            columns.P[i, j] = M[i, j]
    mu = np.dot(M, columns.cross[:K])
    for i in range(K):
        for d in range(mu.shape[1]):
            columns.mu[i, d] = mu[i, d]


def _weigh_part(columns, part, K, k, ridge):
    """Pu, v and forms of the column k from u and its row of cross. Cost O(K (K + D))."""
    n_dims = columns.X.shape[1]
    uPu = 0.0
    for i in range(K):
        total = 0.0
        for j in range(K):
            total += columns.P[i, j] * part.u[j]
        part.Pu[i] = total
        uPu += part.u[i] * total
    for d in range(n_dims):
        part.v[d] = columns.cross[k, d]
    for i in range(K):
        if part.u[i] != 0.0:
            for d in range(n_dims):
                part.v[d] -= part.u[i] * columns.mu[i, d]
    vv = 0.0
    for d in range(n_dims):
        vv += part.v[d] * part.v[d]
    part.forms[1] = uPu
    part.forms[2] = vv


def _take_column(columns, part, K, k, ridge):
    """Hold column k apart: its entries of P and mu are zero from here on. Cost O(K (K + D))."""
    P, mu = columns.P, columns.mu
    n_dims = mu.shape[1]
    size = columns.gram[k, k]
    if (size + ridge) * P[k, k] > _REBUILD_ABOVE:
        invert(columns, K, k, ridge)
    else:
        # eq: DD.column-inverse
        for i in range(K):
            if i != k:
                share = P[i, k] / P[k, k]
                if share != 0.0:
                    for j in range(K):
                        P[i, j] -= share * P[k, j]
                    for d in range(n_dims):
                        mu[i, d] -= share * mu[k, d]
        for i in range(K):
            P[i, k] = P[k, i] = 0.0
        for d in range(n_dims):
            mu[k, d] = 0.0
    for i in range(K):
        part.u[i] = columns.gram[k, i]
        part.delta[i] = 0.0
    part.u[k] = 0.0
    part.forms[0] = size
    weigh_part(columns, part, K, k, ridge)


def _put_column(columns, part, K, k, ridge):
    """Put column k back, as it is now. Cost O(K (K + D))."""
    P, mu, gram = columns.P, columns.mu, columns.gram
    n_dims = mu.shape[1]
    weigh_part(columns, part, K, k, ridge)
    s = max(part.forms[0] + ridge - part.forms[1], ridge)
    for i in range(K):
        gram[i, k] = gram[k, i] = part.u[i]
        share = part.Pu[i] / s
        if share != 0.0:
            for j in range(K):
                P[i, j] += share * part.Pu[j]
            for d in range(n_dims):
                mu[i, d] -= share * part.v[d]
        P[i, k] = P[k, i] = -share
    gram[k, k] = part.forms[0]
    P[k, k] = 1.0 / s
    for d in range(n_dims):
        mu[k, d] = part.v[d] / s


def _column_gain(forms, n_dims, noise_var, ridge):
    """log p(X | Z) - log p(X | Z without the column)."""
    s = max(forms[0] + ridge - forms[1], ridge)
    # eq: DD.column-gain
    return 0.5 * n_dims * math.log(ridge / s) + 0.5 * forms[2] / (noise_var * s)


def _weigh_rows(columns, part, K, rows, n_changed, sign, visit):
    """What the column would be with the first n_changed of these rows added (sign 1) or taken out (-1).

    The change stays in delta, touched, dv and new_forms until it is made (`change_rows`) or weighed anew. Returns the
    number of columns that it touches. Cost O(n_changed (K + D)) and its square in the columns that the rows have.
    """
    Z, mu = columns.Z, columns.mu
    n_dims = mu.shape[1]
    n_touched = 0
    for d in range(n_dims):
        part.dv[d] = 0.0
    for t in range(n_changed):
        n = rows[t]
        fresh = part.known[n] != visit
        if fresh:
            part.known[n] = visit
            for d in range(n_dims):
                part.residual[n, d] = columns.X[n, d]
        for j in range(K):
            if Z[n, j]:
                if part.delta[j] == 0.0:
                    part.touched[n_touched] = j
                    n_touched += 1
                part.delta[j] += sign
                if fresh:
                    for d in range(n_dims):
                        part.residual[n, d] -= mu[j, d]
        for d in range(n_dims):
            part.dv[d] += sign * part.residual[n, d]
    cross = square = 0.0
    for a in range(n_touched):
        i = part.touched[a]
        cross += part.delta[i] * part.Pu[i]
        for b in range(n_touched):
            j = part.touched[b]
            square += part.delta[i] * columns.P[i, j] * part.delta[j]
    vv = 0.0
    for d in range(n_dims):
        v = part.v[d] + part.dv[d]
        vv += v * v
    part.new_forms[0] = part.forms[0] + sign * n_changed
    part.new_forms[1] = part.forms[1] + 2.0 * cross + square
    part.new_forms[2] = vv
    return n_touched


def _change_rows(columns, part, K, k, rows, n_changed, sign, n_touched):
    """Make the change that was weighed last."""
    bit = 1 if sign > 0 else 0
    for t in range(n_changed):
        n = rows[t]
        columns.Z[n, k] = bit
        for d in range(columns.X.shape[1]):
            columns.cross[k, d] += sign * columns.X[n, d]
    for a in range(n_touched):
        i = part.touched[a]
        if i != k:
            part.u[i] += part.delta[i]
            for j in range(K):
                part.Pu[j] += columns.P[j, i] * part.delta[i]
    for d in range(part.v.size):
        part.v[d] += part.dv[d]
    for i in range(3):
        part.forms[i] = part.new_forms[i]


def _forget_change(part, n_touched):
    """Make room for the next change."""
    for a in range(n_touched):
        part.delta[part.touched[a]] = 0.0


def _column_change(columns, part, K, k, rows, noise_var, ridge):
    """The change of log p(X | Z) if the bits of these rows of column k are flipped; Z, P and mu stay as they are.

    Cost O(K^3 + T (K + D)) for T rows.
    """
    n_dims = columns.X.shape[1]
    invert(columns, K, -1, ridge)
    take_column(columns, part, K, k, ridge)
    before = column_gain(part.forms, n_dims, noise_var, ridge)
    some = np.empty(rows.size, np.int64)
    for sign in (-1.0, 1.0):
        n_some = 0
        for t in range(rows.size):
            if columns.Z[rows[t], k] == (1 if sign < 0 else 0):
                some[n_some] = rows[t]
                n_some += 1
        n_touched = weigh_rows(columns, part, K, some, n_some, sign, 0)
        for a in range(n_touched):
            i = part.touched[a]
            for j in range(K):
                part.Pu[j] += columns.P[j, i] * part.delta[i]
        for d in range(n_dims):
            part.v[d] += part.dv[d]
        for i in range(3):
            part.forms[i] = part.new_forms[i]
        forget_change(part, n_touched)
    after = column_gain(part.forms, n_dims, noise_var, ridge)
    return after - before


invert = jit(_invert)
weigh_part = jit(_weigh_part)
take_column = jit(_take_column)
put_column = jit(_put_column)
column_gain = jit(_column_gain)
weigh_rows = jit(_weigh_rows)
change_rows = jit(_change_rows)
forget_change = jit(_forget_change)
column_change = jit(_column_change)
