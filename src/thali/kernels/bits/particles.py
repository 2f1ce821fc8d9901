"""A particle filter over the rows of X = Z A + noise with A ~ N(0, feature_var) integrated out.

Each particle has bits for all rows so far, and their statistics gram = Z'Z and cross = Z'X; P = (Z'Z + r I)^-1 and
G = mu mu', mu = P Z'X, are kept in step. Columns are only ever appended, so the arrays have room for more than are in
use. A row is drawn for all particles, then put in, then the particles may be resampled.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.feature_gram import rebuild
from thali.kernels.bits.particle_rows import draw_count, draw_row

_REBUILD_EVERY = 64  # rows after which P and G are computed anew
_REBUILD_ABOVE = 1e4  # z P z' beyond which putting a row in loses too many digits


def _insert_row(z, K, n_new, x, ridge, gram, cross, P, G, work):
    """Put the row x with bits z, the last `n_new` of them new columns, into the statistics. Returns the new K.

    `work` is room for 3 rows of K numbers.
    """
    n_dims = x.size
    for k in range(K, K + n_new):
        for d in range(n_dims):
            cross[k, d] = 0.0
        for j in range(k + 1):
            P[k, j] = P[j, k] = G[k, j] = G[j, k] = gram[k, j] = gram[j, k] = 0.0
        P[k, k] = 1.0 / ridge
    K += n_new
    y, g, h = work[0], work[1], work[2]
    q = 0.0
    s = 0.0
    for d in range(n_dims):
        s += x[d] * x[d]
    for k in range(K - n_new):
        dot = 0.0
        for d in range(n_dims):
            dot += cross[k, d] * x[d]
        y[k] = dot
    for k in range(K - n_new, K):
        y[k] = 0.0
    for k in range(K):
        b = Pz = Gz = 0.0
        for j in range(K):
            b += P[k, j] * y[j]
            Pz += P[k, j] * z[j]
            Gz += G[k, j] * z[j]
        g[k] = Pz
        h[k] = b - Gz
        q += z[k] * Pz
        s += z[k] * (Gz - 2.0 * b)
    for k in range(K):
        if z[k] != 0.0:
            for j in range(K):
                gram[k, j] += z[j]
            for d in range(n_dims):
                cross[k, d] += x[d]
    if q > _REBUILD_ABOVE:
        rebuild(gram, cross, K, ridge, P, G)
        return K
    for k in range(K):
        g[k] /= 1.0 + q
    for i in range(K):
        to_g = h[i] + s * g[i]
        out = g[i] * (1.0 + q)
        for j in range(K):
            # eq: own.row-insertion
            P[i, j] -= out * g[j]
            G[i, j] += g[i] * h[j] + to_g * g[j]
    return K


def _pick_ancestors(log_weight, u, source):
    """Systematic resampling: source[p] is the particle whose copy takes place p; survivors stay where they are."""
    n = log_weight.size
    offspring = np.zeros(n, np.int64)
    reached = 0.0
    made = 0
    for p in range(n):
        reached += n * math.exp(log_weight[p])
        if p == n - 1:
            reached = n + 1.0  # whatever rounding says
        while made < n and made + u < reached:
            offspring[p] += 1
            made += 1
    spare = 0
    for p in range(n):
        if offspring[p] > 0:
            source[p] = p
            offspring[p] -= 1
        else:
            source[p] = -1
    for p in range(n):
        if source[p] < 0:
            while offspring[spare] == 0:
                spare += 1
            source[p] = spare
            offspring[spare] -= 1


def _copy_particles(source, n_rows, n_cells, n_columns, Z, filled, gram, cross, P, G, roots):
    """Overwrite each particle by its source."""
    for p in range(source.size):
        a = source[p]
        if a == p:
            continue
        K = n_columns[a]
        n_columns[p] = K
        roots[p] = roots[a]
        for n in range(n_rows):
            for k in range(Z.shape[2]):
                Z[p, n, k] = Z[a, n, k]
        for c in range(n_cells):
            filled[p, c] = filled[a, c]
        for k in range(K):
            for d in range(cross.shape[2]):
                cross[p, k, d] = cross[a, k, d]
            for j in range(K):
                gram[p, k, j] = gram[a, k, j]
                P[p, k, j] = P[a, k, j]
                G[p, k, j] = G[a, k, j]


def _rebuild_particles(n_columns, gram, cross, ridge, P, G):
    """P and G of all particles anew."""
    for p in range(n_columns.size):
        rebuild(gram[p], cross[p], n_columns[p], ridge[p], P[p], G[p])


def _filter_rows(
    X, missing_start, missing_dim, Z, n_columns, gram, cross, P, G, filled, log_weight, roots, n_new, source,
    noise_var, feature_var, table_of, log_odds, new_rate, n_features,
    n_before, cells_before, start, drawn, group, resample_below, max_resamplings, trace, rng,
):  # fmt: skip
    """Take in the rows of X (zero where missing) from number `start` on. All arrays change in place.

    The first axis of Z, gram, cross, P, G, filled and of the vectors is the particle; Z and `filled` begin with
    `n_before` rows and `cells_before` missing cells from before. log_odds[t, i] and new_rate[t, i] are the prior's for
    row i of X, t = table_of[particle]; `n_features` is the number of columns of a finite prior, -1 for an infinite one.
    Columns that no row has are not held: those of a finite prior are all alike.
    Weights are kept normalised: trace[i] gets the log of the mean weight of row i, by which the evidence grows, the
    effective number of particles, and the mean number of columns. Whenever the effective number is below
    `resample_below`, particles are resampled: source[p] is the one that took place p. `group` as in `draw_row`.
    Returns (next row, drawn, resamplings): early after `max_resamplings`; with `drawn` if the bits of the next row are
    drawn and do not fit: enlarge the arrays and call again. Cost O(K D + K^2) per particle and row, besides the draws.
    """
    n_particles, _, capacity = Z.shape
    n_rows, n_dims = X.shape
    z = np.zeros(capacity)
    y = np.zeros(capacity)
    b = np.zeros(capacity)
    odds = np.zeros(capacity)
    mean = np.zeros(capacity)
    order = np.zeros(capacity, np.int64)
    work = np.zeros((6, max(capacity, 1 << group)))
    seen_gram = np.zeros((capacity, capacity))
    x = np.zeros(n_dims)
    n_resampled = 0
    for i in range(start, n_rows):
        cells = missing_dim[missing_start[i] : missing_start[i + 1]]
        row = n_before + i
        first_cell = cells_before + missing_start[i]
        n_seen = n_dims - cells.size
        square = 0.0
        for d in range(n_dims):
            square += X[i, d] * X[i, d]

        if not drawn:  # --- bits and weights
            top = -np.inf
            for p in range(n_particles):
                K = n_columns[p]
                t = table_of[p]
                ridge = noise_var[p] / feature_var[p]
                for k in range(K):
                    dot = 0.0
                    for d in range(n_dims):
                        dot += cross[p, k, d] * X[i, d]
                    y[k] = dot
                    odds[k] = log_odds[t, i, int(gram[p, k, k])]
                for k in range(K):
                    dot = 0.0
                    for j in range(K):
                        dot += P[p, k, j] * y[j]
                    b[k] = dot
                forms = G[p]
                if cells.size > 0:  # of the observed dims only
                    forms = seen_gram
                    for k in range(K):
                        for j in range(K):
                            forms[k, j] = G[p, k, j]
                    for d in cells:
                        cell_means(d, K, P[p], cross[p], mean)
                        for k in range(K):
                            for j in range(K):
                                forms[k, j] -= mean[k] * mean[j]
                if n_features < 0:
                    log_none, slope, lift = -new_rate[t, i], 0.0, new_rate[t, i]
                else:
                    chance = math.exp(log_odds[t, i, 0])
                    log_none, slope = -(n_features - K) * math.log1p(chance), -chance
                    lift = (n_features - K + 1) * chance
                law = (float(n_seen), ridge, 1.0 / noise_var[p], log_none, slope, lift)
                q, s, log_total, log_increment = draw_row(
                    z, K, odds, P[p], forms, b, square, law, group, work, order, rng
                )
                n_new[p] = draw_count(q, s, law, log_total, rng.random())
                log_weight[p] += log_increment - 0.5 * n_seen * math.log(2.0 * math.pi * noise_var[p])
                top = max(top, log_weight[p])
                for k in range(K):
                    Z[p, row, k] = 1 if z[k] != 0.0 else 0
            total = 0.0
            for p in range(n_particles):
                total += math.exp(log_weight[p] - top)
            # eq: WG07.evidence
            trace[i, 0] = top + math.log(total)
            for p in range(n_particles):
                log_weight[p] -= trace[i, 0]
        drawn = False
        for p in range(n_particles):
            if n_columns[p] + n_new[p] > capacity:
                return i, True, n_resampled

        # --- missing cells and statistics
        sum_squares = 0.0
        trace[i, 2] = 0.0
        for p in range(n_particles):
            K = n_columns[p]
            ridge = noise_var[p] / feature_var[p]
            for k in range(K):
                z[k] = Z[p, row, k]
            for d in range(n_dims):
                x[d] = X[i, d]
            if cells.size > 0:
                q = n_new[p] / ridge
                for k in range(K):
                    for j in range(K):
                        q += z[k] * z[j] * P[p, k, j]
                sd = math.sqrt(noise_var[p] * (1.0 + q))
                for c in range(cells.size):
                    cell_means(cells[c], K, P[p], cross[p], mean)
                    # eq: own.missing-cells
                    value = sd * rng.standard_normal()
                    for k in range(K):
                        value += z[k] * mean[k]
                    x[cells[c]] = value
                    filled[p, first_cell + c] = value
            for k in range(K, K + n_new[p]):
                z[k] = 1.0
                Z[p, row, k] = 1
            n_columns[p] = insert_row(z, K, n_new[p], x, ridge, gram[p], cross[p], P[p], G[p], work)
            if row % _REBUILD_EVERY == _REBUILD_EVERY - 1:
                rebuild(gram[p], cross[p], n_columns[p], ridge, P[p], G[p])
            weight = math.exp(log_weight[p])
            sum_squares += weight * weight
            trace[i, 2] += weight * n_columns[p]
        trace[i, 1] = 1.0 / sum_squares

        if trace[i, 1] < resample_below:
            n_cells = cells_before + missing_start[i + 1]
            pick_ancestors(log_weight, rng.random(), source)
            copy_particles(source, row + 1, n_cells, n_columns, Z, filled, gram, cross, P, G, roots)
            for p in range(n_particles):
                noise_var[p] = noise_var[source[p]]
                feature_var[p] = feature_var[source[p]]
                table_of[p] = table_of[source[p]]
                log_weight[p] = -math.log(n_particles)
            n_resampled += 1
            if n_resampled == max_resamplings:
                return i + 1, False, n_resampled
    return n_rows, False, n_resampled


def _cell_means(d, K, P, cross, mean):
    """mean[k] = mu_kd."""
    for k in range(K):
        mean[k] = 0.0
        for j in range(K):
            mean[k] += P[k, j] * cross[j, d]


insert_row = jit(_insert_row)
pick_ancestors = jit(_pick_ancestors)
copy_particles = jit(_copy_particles)
rebuild_particles = jit(_rebuild_particles)
cell_means = jit(_cell_means)
filter_rows = jit(_filter_rows)
