"""Twin of thali.kernels.bits.parallel_sweep: one thread, half by half, columns that come and go at once."""

import numpy as np

from reference.bits.parallel_rows import sum_chunk, update_block
from reference.row_streams import start_stream, uniform
from thali.kernels.bits.parallel_sweep import FULL, N_BORN, N_COLUMNS, N_KEPT, N_PHASES, PHASE


def row_of_half(key, pair, half):
    coin = start_stream(key, pair) >= 2**63
    return 2 * pair + (coin if half == 0 else 1 - coin)


def column_roles(outside, inside, is_infinite):
    free = [k for k in range(len(outside)) if outside[k] > 0 or not is_infinite]
    fixed = [k for k in range(len(outside)) if k not in free and inside[k] >= 2]
    own = [k for k in range(len(outside)) if k not in free and inside[k] == 1]
    return tuple(np.array(columns, dtype=np.int64) for columns in (free, fixed, own))


def shuffle(columns, key, number):
    stream = np.array([start_stream(key, number)], np.uint64)
    left = list(columns)
    for i in range(len(columns)):
        j = int(uniform(stream, 0) * len(left))
        left[0], left[j] = left[j], left[0]
        columns[i] = left.pop(0)


def sweep_rows(
    X, offset, scale, missing_start, missing_dim, filled, start, counts, A, odds, new_rate, noise_var, feature_var,
    keys, shared, Z, part_owners, owners, born, born_rows, kept, grams, crosses, is_last,
):  # fmt: skip
    n_rows, K = start.shape
    z, features, weights, spare = start.copy(), A[:K], odds[:K], list(odds[K:])
    for half in range(2):
        rows = np.array([row_of_half(keys[1], pair, half) for pair in range((n_rows + 1) // 2)])
        rows = rows[rows < n_rows]
        is_inside = np.isin(np.arange(n_rows), rows)
        roles = column_roles(z[~is_inside].sum(axis=0), z[is_inside].sum(axis=0), new_rate > 0)
        free, fixed, own = roles
        shuffle(free, keys[0], n_rows + half)
        columns, n_new = np.concatenate([free, fixed]), np.zeros(len(rows), np.int64)
        new, n_born = update_block(
            X, offset, scale, 1 / scale, missing_start, missing_dim, filled, z, rows, columns, len(free), own,
            features[columns], None, None, weights[free], new_rate, noise_var, feature_var, keys[0], np.inf, None,
            n_new, None,
        )  # fmt: skip
        if n_born > len(spare):
            shared[PHASE], shared[N_BORN], shared[N_COLUMNS] = FULL, n_born, len(A) - len(spare)
            return
        wide = np.zeros((n_rows, n_born), np.uint8)
        wide[np.repeat(rows, n_new), np.arange(n_born)] = 1
        z, features = np.hstack([z, wide]), np.vstack([features, new])
        weights, spare = np.concatenate([weights, spare[:n_born]]), spare[n_born:]
    columns = np.flatnonzero(z.any(axis=0) | (new_rate == 0))
    J = len(columns)
    grams[:, :J, :J], crosses[:, :J] = 0.0, 0.0
    sum_chunk(X, missing_start, missing_dim, filled, z, columns, 0, n_rows, kept, grams[0, :J, :J], crosses[0, :J])
    shared[PHASE], shared[N_KEPT] = N_PHASES, J
