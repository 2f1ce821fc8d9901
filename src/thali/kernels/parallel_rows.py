"""Gibbs update of independent rows for X = Z A + noise, with features and weights drawn beside Z.

Given both, a row's bits are its own business if no column can lose its last owner by them. The columns that may change
here, the free ones, have an owner among the other rows; what other columns there are stays. Columns that a row alone
has are integrated out as in `conditional_rows`. So calls for disjoint rows can run side by side.
"""

import math

import numpy as np

from thali.kernels._jit import inlined, jit
from thali.kernels.row_draws import draw_new
from thali.kernels.streams import normal, start_stream, uniform

BLOCK = 128  # rows whose products with the features are computed together


def _count_owners(Z, half, counts):
    """Add the owners of each column to counts (2, K): those outside of the half first. Cost O(N K)."""
    for n in range(Z.shape[0]):
        side = 1 if half[n] else 0
        for k in range(Z.shape[1]):
            counts[side, k] += Z[n, k]


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


def _update_rows(
    X, offset, scale, missing_start, missing_dim, filled, Z, rows, columns, n_free, own, features, gram, odds,
    new_rate, noise_var, feature_var, key, most, n_new,
):  # fmt: skip
    """Draw the free bits of these rows, the number of columns that each alone has, their values, and missing cells.

    columns are those of Z to reckon with, the n_free free ones first, in an order that does not depend on the bits;
    features (D, columns) and gram (columns, columns) belong to them, odds (n_free) are log-odds of their weights. `own`
    are the columns that one of the rows alone has. Data are (X - offset) / scale; missing cells of row n are
    missing_dim[missing_start[n]:missing_start[n+1]] and are written to `filled`. Z changes in its free columns, n_new
    gets the number of each row's own columns. Returns the features of these, row by row; none if they are more than
    `most`. Cost O(D K + K^2) per row.
    """
    n_dims = X.shape[1]
    J = columns.size
    ridge = noise_var / feature_var
    unit = 1.0 / scale
    x = np.zeros((BLOCK, n_dims))
    bits = np.zeros((BLOCK, J))
    products = np.zeros((BLOCK, J))
    forms = np.zeros((BLOCK, J))
    g = np.zeros(J)
    square = np.zeros(J)
    delta = np.zeros(n_free)
    diagonal = np.diag(gram).copy()
    e = np.zeros(n_dims)
    is_seen = np.ones(n_dims, np.bool_)
    stream = np.zeros(1, np.uint64)
    terms = np.empty(64)
    born = np.empty((16, n_dims))
    n_born = 0
    for i in range(rows.size):
        if i % BLOCK == 0:
            for j in range(i, min(i + BLOCK, rows.size)):
                n = rows[j]
                for d in range(n_dims):
                    x[j - i, d] = (X[n, d] - offset[d]) * unit[d]
                for d in missing_dim[missing_start[n] : missing_start[n + 1]]:
                    x[j - i, d] = 0.0
                for k in range(J):
                    bits[j - i, k] = Z[n, columns[k]]
            if J > 0:
                np.dot(x, features, products)
                np.dot(bits, gram, forms)
        n = rows[i]
        x_n, z, b, Gz = x[i % BLOCK], bits[i % BLOCK], products[i % BLOCK], forms[i % BLOCK]
        cells = missing_dim[missing_start[n] : missing_start[n + 1]]
        start_stream(key, n, stream)

        # --- the row's forms over its observed cells: g = A (x - z A)', square = |A_k|^2
        for k in range(J):
            g[k] = b[k] - Gz[k]
            square[k] = diagonal[k]
        for d in cells:
            total = 0.0
            for k in range(J):
                total += z[k] * features[d, k]
            for k in range(J):
                g[k] += total * features[d, k]
                square[k] -= features[d, k] * features[d, k]

        # --- free bits, own columns in the variance
        n_own = 0
        for k in own:
            n_own += int(Z[n, k])
        half_precision = 0.5 / (noise_var + n_own * feature_var)
        next_bit = 0
        while next_bit < n_free:  # once, and again after each flip
            for k in range(next_bit, n_free):
                step = 1.0 - 2.0 * z[k]
                # eq: own.weighted-bit
                delta[k] = step * odds[k] + half_precision * (2.0 * step * g[k] - square[k])
            while next_bit < n_free:
                k = next_bit
                next_bit += 1
                if delta[k] > -40.0 and flips(delta[k], uniform(stream)):
                    step = 1.0 - 2.0 * z[k]
                    z[k] += step
                    Z[n, columns[k]] = 1 - Z[n, columns[k]]
                    for j in range(J):
                        g[j] -= step * gram[k, j]
                    for d in cells:
                        t = step * features[d, k]
                        for j in range(J):
                            g[j] += t * features[d, j]
                    break

        # --- own columns: their number, then their values given the residual
        count = 0
        if new_rate > 0.0:
            s = 0.0
            for d in range(n_dims):
                s += x_n[d] * x_n[d]
            for k in range(J):
                s -= z[k] * (b[k] + g[k])
            u = uniform(stream)
            count = draw_new(0.0, max(s, 0.0), n_dims - cells.size, ridge, 1.0 / noise_var, new_rate, terms, u)
        n_new[i] = count
        if n_born + count > most:
            return born[:0]
        while n_born + count > born.shape[0]:
            longer = np.empty((2 * born.shape[0], n_dims))
            longer[:n_born] = born[:n_born]
            born = longer
        for d in cells:
            is_seen[d] = False
        if count > 0:
            for d in range(n_dims):
                e[d] = x_n[d]
                for k in range(J):
                    e[d] -= z[k] * features[d, k]
            shrink = (1.0 - math.sqrt(ridge / (count + ridge))) / count
            for d in range(n_dims):
                total = 0.0
                for j in range(n_born, n_born + count):
                    born[j, d] = normal(stream)
                    total += born[j, d]
                for j in range(n_born, n_born + count):
                    if is_seen[d]:  # as eq: DV09.new-feature-values
                        born[j, d] = math.sqrt(feature_var) * (born[j, d] - shrink * total) + e[d] / (count + ridge)
                    else:
                        born[j, d] *= math.sqrt(feature_var)

        # --- missing cells given all of it
        for c in range(missing_start[n], missing_start[n + 1]):
            d = missing_dim[c]
            mean = 0.0
            for k in range(J):
                mean += z[k] * features[d, k]
            for j in range(n_born, n_born + count):
                mean += born[j, d]
            filled[c] = offset[d] + scale[d] * (mean + math.sqrt(noise_var) * normal(stream))
            is_seen[d] = True
        n_born += count
    return born[:n_born]


def _chunk_sums(X, missing_start, missing_dim, filled, Z, chunk, first, grams, crosses):
    """grams[i] = z'z and crosses[i] = z'X of chunk first + i of `chunk` rows each, missing cells filled.

    Sums over all chunks, in their order, have the same bits whichever thread made which. Cost O(K (K + D)) per row.
    """
    n_rows, K = Z.shape
    bits = np.zeros((BLOCK, K))
    gram = np.zeros((K, K))
    cross = np.zeros((K, X.shape[1]))
    for i in range(grams.shape[0]):
        end = min((first + i + 1) * chunk, n_rows)
        grams[i] = 0.0
        crosses[i] = 0.0
        for start in range((first + i) * chunk, end, BLOCK):
            stop = min(start + BLOCK, end)
            for n in range(start, stop):
                for k in range(K):
                    bits[n - start, k] = Z[n, k]
                for c in range(missing_start[n], missing_start[n + 1]):
                    for k in range(K):
                        crosses[i, k, missing_dim[c]] += bits[n - start, k] * filled[c]
            some = bits[: stop - start]
            np.dot(some.T, some, gram)
            np.dot(some.T, X[start:stop], cross)
            grams[i] += gram
            crosses[i] += cross


flips = inlined(_flips)
count_owners = jit(_count_owners)
update_rows = jit(_update_rows)
chunk_sums = jit(_chunk_sums)
