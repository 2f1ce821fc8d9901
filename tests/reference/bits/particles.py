"""Twin of thali.kernels.bits.particles: statistics from all rows anew, particles one after the other."""

import numpy as np

from reference.bits.particle_rows import draw_count, draw_row


def cell_means(d, K, P, cross, mean):
    mean[:K] = P[:K, :K] @ cross[:K, d]


def insert_row(z, K, n_new, x, ridge, gram, cross, P, G, work):
    old, K = K, K + n_new
    gram[old:K] = 0
    gram[:, old:K] = 0
    cross[old:K] = 0
    gram[:K, :K] += np.outer(z[:K], z[:K])
    cross[:K] += np.outer(z[:K], x)
    _rebuild(gram, cross, K, ridge, P, G)
    return K


def _rebuild(gram, cross, K, ridge, P, G):
    P[:K, :K] = np.linalg.inv(gram[:K, :K] + ridge * np.eye(K))
    mu = P[:K, :K] @ cross[:K]
    G[:K, :K] = mu @ mu.T


def rebuild_particles(n_columns, gram, cross, ridge, P, G):
    for p, K in enumerate(n_columns):
        _rebuild(gram[p], cross[p], K, ridge[p], P[p], G[p])


def pick_ancestors(log_weight, u, source):
    n = len(log_weight)
    points = np.searchsorted(np.cumsum(np.exp(log_weight)) * n, np.arange(n) + u, side="right")
    offspring = np.bincount(np.minimum(points, n - 1), minlength=n)
    spare = np.repeat(np.arange(n), np.maximum(offspring - 1, 0))
    source[:] = np.arange(n)
    source[offspring == 0] = spare


def copy_particles(source, n_rows, n_cells, n_columns, Z, filled, gram, cross, P, G, roots):
    for array in (Z, filled, gram, cross, P, G, n_columns, roots):
        array[:] = array[source]


def filter_rows(
    X, missing_start, missing_dim, Z, n_columns, gram, cross, P, G, filled, log_weight, roots, n_new, source,
    noise_var, feature_var, table_of, log_odds, new_rate, n_features,
    n_before, cells_before, start, drawn, group, resample_below, max_resamplings, trace, rng,
):  # fmt: skip
    n_particles, _, capacity = Z.shape
    n_resampled = 0
    for i in range(start, len(X)):
        row = n_before + i
        cells = missing_dim[missing_start[i] : missing_start[i + 1]]
        if not drawn:
            for p in range(n_particles):
                K, t = n_columns[p], table_of[p]
                mu = P[p, :K, :K] @ cross[p, :K]
                mu[:, cells] = 0
                counts = np.diag(gram[p])[:K].astype(int)
                law = (
                    float(X.shape[1] - len(cells)), noise_var[p] / feature_var[p], 1 / noise_var[p],
                    *_new_law(new_rate[t, i], log_odds[t, i, 0], K, n_features),
                )  # fmt: skip
                z, work, order = np.zeros(K), np.zeros((6, max(K, 1 << group))), np.zeros(K, np.int64)
                q, s, log_total, log_increment = draw_row(
                    z, K, log_odds[t, i, counts], P[p, :K, :K], mu @ mu.T, mu @ X[i], X[i] @ X[i],
                    law, group, work, order, rng,
                )  # fmt: skip
                n_new[p] = draw_count(q, s, law, log_total, rng.random())
                log_weight[p] += log_increment - 0.5 * law[0] * np.log(2 * np.pi * noise_var[p])
                Z[p, row, :K] = z
            trace[i, 0] = np.logaddexp.reduce(log_weight)
            log_weight -= trace[i, 0]
        drawn = False
        if (n_columns + n_new).max() > capacity:
            return i, True, n_resampled
        for p in range(n_particles):
            K, ridge = n_columns[p], noise_var[p] / feature_var[p]
            x, z = X[i].copy(), Z[p, row].astype(float)
            sd = np.sqrt(noise_var[p] * (1 + z[:K] @ P[p, :K, :K] @ z[:K] + n_new[p] / ridge))
            for c, d in enumerate(cells, start=cells_before + missing_start[i]):
                x[d] = filled[p, c] = z[:K] @ P[p, :K, :K] @ cross[p, :K, d] + sd * rng.standard_normal()
            Z[p, row, K : K + n_new[p]] = z[K : K + n_new[p]] = 1
            n_columns[p] = insert_row(z, K, n_new[p], x, ridge, gram[p], cross[p], P[p], G[p], None)
        weight = np.exp(log_weight)
        trace[i, 1:] = 1 / (weight @ weight), weight @ n_columns
        if trace[i, 1] < resample_below:
            pick_ancestors(log_weight, rng.random(), source)
            n_cells = cells_before + missing_start[i + 1]
            copy_particles(source, row + 1, n_cells, n_columns, Z, filled, gram, cross, P, G, roots)
            for array in (noise_var, feature_var, table_of):
                array[:] = array[source]
            log_weight[:] = -np.log(n_particles)
            n_resampled += 1
            if n_resampled == max_resamplings:
                return i + 1, False, n_resampled
    return len(X), False, n_resampled


def _new_law(rate, log_odds, K, n_features):
    """(log p(0), a, b) of the number of new columns."""
    if n_features < 0:
        return -rate, 0.0, rate
    odds = np.exp(log_odds)
    return -(n_features - K) * np.log1p(odds), -odds, (n_features - K + 1) * odds
