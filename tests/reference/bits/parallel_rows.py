"""Twin of thali.kernels.bits.parallel_rows: residuals in full, nothing kept in step."""

import numpy as np

from reference.bits.row_draws import draw_new
from reference.row_streams import normal, start_stream, uniform


def flips(delta, u):
    return u < 1 / (1 + np.exp(-delta))


def block_room(n_columns, n_dims):
    """Nothing: the twin keeps nothing in step."""


def update_block(
    X, offset, scale, unit, missing_start, missing_dim, filled, Z, rows, columns, n_free, own, A, features, gram, odds,
    new_rate, noise_var, feature_var, key, most, room, n_new, born,
):  # fmt: skip
    ridge = noise_var / feature_var
    stream = np.zeros(1, np.uint64)
    born = np.zeros((0, X.shape[1]))
    for i, n in enumerate(rows):
        cells = slice(missing_start[n], missing_start[n + 1])
        seen = np.ones(X.shape[1], dtype=bool)
        seen[missing_dim[cells]] = False
        x = (X[n] - offset) / scale
        stream[0] = start_stream(key, n)
        var = noise_var + Z[n, own].sum() * feature_var
        Z[n, own] = 0
        for k in range(n_free):
            score = []
            for bit in (0, 1):
                row = Z[n, columns].astype(float)
                row[k] = bit
                score.append(-0.5 / var * np.sum((x - row @ A)[seen] ** 2) + bit * odds[k])
            bit = 1 - Z[n, columns[k]]
            delta = score[bit] - score[1 - bit]
            if delta > -40 and flips(delta, uniform(stream, 0)):
                Z[n, columns[k]] = bit
        e = np.where(seen, x - Z[n, columns] @ A, 0.0)
        count = 0
        if new_rate > 0:
            terms = np.empty(64)
            count = draw_new(0.0, e @ e, seen.sum(), ridge, 1 / noise_var, new_rate, terms, uniform(stream, 0))
        n_new[i] = count
        if len(born) + count > most:
            return born, len(born) + count
        mine = np.zeros((count, X.shape[1]))
        for d in range(X.shape[1]):
            values = np.array([normal(stream, 0) for _ in range(count)])
            if seen[d] and count:
                values -= (1 - np.sqrt(ridge / (count + ridge))) / count * values.sum()
            mine[:, d] = np.sqrt(feature_var) * values + seen[d] * e[d] / (count + ridge)
        born = np.vstack([born, mine])
        mean = Z[n, columns] @ A + mine.sum(axis=0)
        for c in range(*cells.indices(len(missing_dim))):
            d = missing_dim[c]
            filled[c] = offset[d] + scale[d] * (mean[d] + np.sqrt(noise_var) * normal(stream, 0))
    return born, len(born)


def sum_chunk(X, missing_start, missing_dim, filled, Z, columns, first, last, kept, gram, cross):
    full = X.copy()
    full[np.repeat(np.arange(len(X)), np.diff(missing_start)), missing_dim] = filled
    bits = Z[first:last, columns]
    kept[first * len(columns) : last * len(columns)] = bits.ravel()
    z = bits.astype(float)
    gram[:], cross[:] = z.T @ z, z.T @ full[first:last]
