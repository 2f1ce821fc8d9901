"""Twin of thali.kernels.parallel_rows: residuals in full, nothing kept in step."""

import numpy as np

from reference.row_draws import draw_new
from reference.streams import normal, start_stream, uniform


def count_owners(Z, half, counts):
    counts += [Z[~half].sum(axis=0, dtype=int), Z[half].sum(axis=0, dtype=int)]


def flips(delta, u):
    return u < 1 / (1 + np.exp(-delta))


def update_rows(
    X, offset, scale, missing_start, missing_dim, filled, Z, rows, columns, n_free, own, features, gram, odds,
    new_rate, noise_var, feature_var, key, most, n_new,
):  # fmt: skip
    A, ridge = features.T, noise_var / feature_var
    stream = np.zeros(1, np.uint64)
    born = np.zeros((0, X.shape[1]))
    for i, n in enumerate(rows):
        cells = slice(missing_start[n], missing_start[n + 1])
        seen = np.ones(X.shape[1], dtype=bool)
        seen[missing_dim[cells]] = False
        x = (X[n] - offset) / scale
        start_stream(key, n, stream)
        var = noise_var + Z[n, own].sum() * feature_var
        for k in range(n_free):
            score = []
            for bit in (0, 1):
                row = Z[n, columns].astype(float)
                row[k] = bit
                score.append(-0.5 / var * np.sum((x - row @ A)[seen] ** 2) + bit * odds[k])
            bit = 1 - Z[n, columns[k]]
            delta = score[bit] - score[1 - bit]
            if delta > -40 and flips(delta, uniform(stream)):
                Z[n, columns[k]] = bit
        e = np.where(seen, x - Z[n, columns] @ A, 0.0)
        count = 0
        if new_rate > 0:
            terms = np.empty(64)
            count = draw_new(0.0, e @ e, seen.sum(), ridge, 1 / noise_var, new_rate, terms, uniform(stream))
        n_new[i] = count
        if len(born) + count > most:
            return born[:0]
        mine = np.zeros((count, X.shape[1]))
        for d in range(X.shape[1]):
            values = np.array([normal(stream) for _ in range(count)])
            if seen[d] and count:
                values -= (1 - np.sqrt(ridge / (count + ridge))) / count * values.sum()
            mine[:, d] = np.sqrt(feature_var) * values + seen[d] * e[d] / (count + ridge)
        born = np.vstack([born, mine])
        mean = Z[n, columns] @ A + mine.sum(axis=0)
        for c in range(*cells.indices(len(missing_dim))):
            d = missing_dim[c]
            filled[c] = offset[d] + scale[d] * (mean[d] + np.sqrt(noise_var) * normal(stream))
    return born


def chunk_sums(X, missing_start, missing_dim, filled, Z, chunk, first, grams, crosses):
    full = X.copy()
    full[np.repeat(np.arange(len(X)), np.diff(missing_start)), missing_dim] = filled
    for i in range(len(grams)):
        rows = slice((first + i) * chunk, (first + i + 1) * chunk)
        z = Z[rows].astype(float)
        grams[i], crosses[i] = z.T @ z, z.T @ full[rows]
