"""Gibbs update of independent rows for X = Z A + noise, with features and weights drawn beside Z.

Given both, a row's bits are its own business if no column can lose its last owner by them. The columns that may change
here, the free ones, have an owner among the other rows; what other columns there are stays. Columns that a row alone
has are integrated out as in `conditional_rows`. So blocks of rows can be drawn side by side.
"""

import math

import numpy as np

from thali.kernels._jit import inlined, jit
from thali.kernels.bits.row_draws import draw_new
from thali.kernels.row_streams import normal, start_stream, uniform

BLOCK = 128  # rows that are drawn together: enough for vectors, and few enough for the cache


def _flips(delta, u):
    """Whether u < 1 / (1 + exp(-delta)), for u in [0, 1).

    exp is needed only where (1 - delta/16)^16 <= exp(-delta) <= (1 + delta/16)^-16 leave it open.
    """
    a = max(1.0 - 0.0625 * delta, 0.0)
    c = max(1.0 + 0.0625 * delta, 0.0)
    a *= a
    c *= c
    a *= a
    c *= c
    a *= a
    c *= c
    a *= a
    c *= c
    # eq: own.bit-bound
    if u * (1.0 + a) >= 1.0:
        return False
    return u * (1.0 + c) < c or u * (1.0 + math.exp(-delta)) < 1.0


def _block_room(n_columns, n_dims):
    """What `update_block` works in: arrays by row and dim, by column and row, by row, by column, streams, dims."""
    x = np.zeros((BLOCK, n_dims))
    bits = np.zeros((n_columns, BLOCK))
    forms = np.zeros((n_columns, BLOCK))
    g = np.zeros((n_columns, BLOCK))
    square = np.zeros((n_columns, BLOCK))
    of_rows, of_columns = np.zeros((3, BLOCK)), np.zeros((3, n_columns))
    return x, bits, forms, g, square, of_rows, of_columns, np.zeros(BLOCK, np.uint64), np.ones(n_dims, np.bool_)


def _update_block(
    X, offset, scale, unit, missing_start, missing_dim, filled, Z, rows, columns, n_free, own, A, features, gram, odds,
    new_rate, noise_var, feature_var, key, most, room, n_new, born,
):  # fmt: skip
    """Draw the free bits of these rows, the number of columns that each alone has, their values, and missing cells.

    rows: BLOCK at most. columns are those of Z to reckon with, the n_free free ones first, in an order that does not
    depend on the bits; A (columns, D), features = A' and gram = A A' belong to them, odds (n_free) are log-odds of
    their weights. `own` are the columns that one of the rows alone has, and loses. Data are (X - offset) / scale, with
    unit = 1 / scale; missing cells of row n are missing_dim[missing_start[n]:missing_start[n+1]] and are written to
    `filled`. Z changes in free and own columns, n_new gets the number of each row's new own columns. Returns the
    features of these, row by row, in `born` or a longer array, and their number; it stops if there are more than
    `most`. Cost O(D K + K^2) per row.

    Each bit is drawn for all rows before the next: loops over rows are long enough for vectors, those over bits not.
    """
    x, bits, forms, g, square, of_rows, of_columns, streams, is_seen = room
    n_dims = X.shape[1]
    J = columns.size
    ridge = noise_var / feature_var
    s, delta, half_precision = of_rows[0], of_rows[1], of_rows[2]
    z, more_g, less_square = of_columns[0], of_columns[1], of_columns[2]

    # --- data, bits, and forms over observed cells: s = |x - z A|^2, g = A (x - z A)', square_k = |A_k|^2
    for r in range(rows.size):
        n = rows[r]
        streams[r] = start_stream(key, n)
        total = 0.0
        for d in range(n_dims):
            x[r, d] = (X[n, d] - offset[d]) * unit[d]
            total += x[r, d] * x[r, d]
        if missing_start[n + 1] > missing_start[n]:
            for c in range(missing_start[n], missing_start[n + 1]):
                x[r, missing_dim[c]] = 0.0
            total = 0.0
            for d in range(n_dims):
                total += x[r, d] * x[r, d]
        s[r] = total
        for k in range(J):
            bits[k, r] = Z[n, columns[k]]
        n_own = 0
        for k in range(own.size):
            n_own += Z[n, own[k]]
            Z[n, own[k]] = 0
        half_precision[r] = 0.5 / (noise_var + n_own * feature_var)
    if J > 0:
        np.dot(A, x.T, g)
        np.dot(gram, bits, forms)
    for k in range(J):
        for r in range(BLOCK):
            s[r] -= bits[k, r] * (2.0 * g[k, r] - forms[k, r])
            g[k, r] -= forms[k, r]
            square[k, r] = gram[k, k]
    for r in range(rows.size):
        n = rows[r]
        if missing_start[n + 1] > missing_start[n]:
            for k in range(J):
                z[k] = bits[k, r]
                more_g[k] = 0.0
                less_square[k] = 0.0
            for c in range(missing_start[n], missing_start[n + 1]):
                d = missing_dim[c]
                total = 0.0
                for k in range(J):
                    total += z[k] * features[d, k]
                s[r] -= total * total
                for k in range(J):
                    more_g[k] += total * features[d, k]
                    less_square[k] += features[d, k] * features[d, k]
            for k in range(J):
                g[k, r] += more_g[k]
                square[k, r] -= less_square[k]

    # --- free bits, own columns in the variance
    for k in range(n_free):
        for r in range(BLOCK):
            step = 1.0 - 2.0 * bits[k, r]
            # eq: own.weighted-bit
            delta[r] = step * odds[k] + half_precision[r] * (2.0 * step * g[k, r] - square[k, r])
        for r in range(rows.size):
            if delta[r] > -40.0 and flips(delta[r], uniform(streams, r)):
                n = rows[r]
                step = 1.0 - 2.0 * bits[k, r]
                bits[k, r] += step
                Z[n, columns[k]] = 1 - Z[n, columns[k]]
                s[r] += square[k, r] - 2.0 * step * g[k, r]
                for j in range(J):
                    g[j, r] -= step * gram[k, j]
                if missing_start[n + 1] > missing_start[n]:
                    for j in range(J):
                        more_g[j] = 0.0
                    for c in range(missing_start[n], missing_start[n + 1]):
                        d = missing_dim[c]
                        for j in range(J):
                            more_g[j] += step * features[d, k] * features[d, j]
                    for j in range(J):
                        g[j, r] += more_g[j]

    # --- own columns: their number, then their values given the residual; missing cells given all of it
    n_born = 0
    terms = np.empty(64)
    for r in range(rows.size):
        n = rows[r]
        n_cells = missing_start[n + 1] - missing_start[n]
        count = 0
        if new_rate > 0.0:
            u = uniform(streams, r)
            count = draw_new(0.0, max(s[r], 0.0), n_dims - n_cells, ridge, 1.0 / noise_var, new_rate, terms, u)
        n_new[r] = count
        if count == 0 and n_cells == 0:
            continue
        if n_born + count > most:
            return born, n_born + count
        while n_born + count > born.shape[0]:
            longer = np.empty((2 * born.shape[0], n_dims))
            for j in range(n_born):
                for d in range(n_dims):
                    longer[j, d] = born[j, d]
            born = longer
        for k in range(J):
            z[k] = bits[k, r]
        for c in range(missing_start[n], missing_start[n + 1]):
            is_seen[missing_dim[c]] = False
        if count > 0:
            shrink = (1.0 - math.sqrt(ridge / (count + ridge))) / count
            for d in range(n_dims):
                e = x[r, d]
                for k in range(J):
                    e -= z[k] * features[d, k]
                total = 0.0
                for j in range(n_born, n_born + count):
                    born[j, d] = normal(streams, r)
                    total += born[j, d]
                for j in range(n_born, n_born + count):
                    if is_seen[d]:  # as eq: DV09.new-feature-values
                        born[j, d] = math.sqrt(feature_var) * (born[j, d] - shrink * total) + e / (count + ridge)
                    else:
                        born[j, d] *= math.sqrt(feature_var)
        for c in range(missing_start[n], missing_start[n + 1]):
            d = missing_dim[c]
            mean = 0.0
            for k in range(J):
                mean += z[k] * features[d, k]
            for j in range(n_born, n_born + count):
                mean += born[j, d]
            filled[c] = offset[d] + scale[d] * (mean + math.sqrt(noise_var) * normal(streams, r))
            is_seen[d] = True
        n_born += count
    return born, n_born


def _sum_chunk(X, missing_start, missing_dim, filled, Z, columns, first, last, kept, gram, cross):
    """kept, flat, gets these columns of rows first to last; gram and cross their z'z and z'X, missing cells filled.

    Cost O(K (K + D)) per row.
    """
    J = columns.size
    bits = np.zeros((BLOCK, J))
    part_gram = np.zeros((J, J))
    part_cross = np.zeros((J, X.shape[1]))
    gram[:] = 0.0
    cross[:] = 0.0
    for start in range(first, last, BLOCK):
        stop = min(start + BLOCK, last)
        for n in range(start, stop):
            for k in range(J):
                bits[n - start, k] = Z[n, columns[k]]
                kept[n * J + k] = Z[n, columns[k]]
            for c in range(missing_start[n], missing_start[n + 1]):
                for k in range(J):
                    cross[k, missing_dim[c]] += bits[n - start, k] * filled[c]
        some = bits[: stop - start]
        np.dot(some.T, some, part_gram)
        np.dot(some.T, X[start:stop], part_cross)
        gram += part_gram
        cross += part_cross


flips = inlined(_flips)
block_room = jit(_block_room)
update_block = jit(_update_block)
sum_chunk = jit(_sum_chunk)
