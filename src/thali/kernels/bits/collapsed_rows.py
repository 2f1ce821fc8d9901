"""Collapsed Gibbs sweep over the rows of Z for X = Z A + noise with A ~ N(0, feature_var) integrated out.

With r = noise_var / feature_var, and all rows but n,

    P = (Z'Z + r I)^-1,   mu = P Z'X,   x_n | z ~ N(z mu, noise_var (1 + z P z') I),

so a row's evidence needs only two quadratic forms of z, in P and in G = mu mu', and the vector b = mu x_n. Everything
is kept in this "K-space"; nothing of size D is touched inside a block of rows except by one matrix product per block.

Taking row n out is *lazy*: with p = P z, c = 1 / (1 - z p), g = c p, e = x_n - z mu and h = mu e,

    P_out = P + g p' = P + (1 - z p) g g',   b_out = b - g (e x_n),   G_out = G - g h' - h g' + (e e) g g',

are held as these vectors, so that a row whose bits do not change touches no K x K array. Evaluating a flip is O(1), an
accepted flip O(K), a changed row O(K^2).

Three conditions of correctness: the columns that row n alone owns stay in its predictive variance while the other bits
are drawn, and are then replaced; the bits are scanned in a fresh random order for each row (groups: in the order of
keys that are independent of the bits); rows whose removal is ill-conditioned (c > 30) get P and G rebuilt from the
integer matrix Z'Z.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.feature_gram import add_flips, append_column, delete_column, rebuild
from thali.kernels.bits.row_draws import draw_new, scan_bits, scan_groups

BLOCK = 32  # rows per matrix product
_REBUILD_ABOVE = 30.0  # 1/(1 - leverage) beyond which a rank-one removal loses too many digits


def _collapsed_sweep(
    X, square, block_gram, missing_start, missing_dim, Z, K, gram, cross,
    log_odds, new_rate, noise_var, feature_var, group, keys, start, pending, rng,
):  # fmt: skip
    """Draw z_n and the missing cells of x_n given all else, for n = start, ..., N-1. All arrays change in place.

    Z (N, capacity) uint8 has K columns in use; gram = Z'Z and cross = Z'X hold the same columns; missing cells of row n
    are missing_dim[missing_start[n]:missing_start[n+1]]; block_gram[n, t] = x_n . x_(first row of n's block + t) and
    square[n] = |x_n|^2. `log_odds[m]` and `new_rate` are the prior's. Bits are drawn `group` at a time: columns that
    are neighbours in the order of `keys` (one per column, changed in place; new ones get a uniform one) form a group.
    Returns (K, next row, pending, changed rows, rebuilds, drift): next row < N means that `pending` new columns did not
    fit: enlarge Z, gram and cross, and call again from that row. drift = max |P (Z'Z + r I) - I| at the end.
    Cost O(N K D) as matrix products, O(K) per row and O(K^2) per changed row besides.
    """
    n_rows, n_dims = X.shape
    capacity = Z.shape[1]
    precision = 1.0 / noise_var
    ridge = noise_var / feature_var
    grows = log_odds[0] == -np.inf  # an infinite prior: columns without other members are the row's own

    P = np.zeros((capacity, capacity))
    G = np.zeros((capacity, capacity))
    Y = np.zeros((BLOCK, capacity))
    flips = np.zeros((capacity, BLOCK))
    counts = np.zeros(capacity, np.int64)
    others = np.zeros(capacity, np.int64)
    order = np.zeros(capacity, np.int64)
    by_key = np.zeros(capacity, np.int64)
    n_sorted = -1  # columns that by_key holds, -1 when they have changed
    z = np.zeros(capacity)
    old = np.zeros(capacity)
    g = np.zeros(capacity)
    h = np.zeros(capacity)
    b = np.zeros(capacity)
    y = np.zeros(capacity)
    Pz = np.zeros(capacity)
    Gz = np.zeros(capacity)
    zero = np.zeros(capacity)
    terms = np.empty(64)
    work = np.zeros((6, 2 * capacity))  # of scan_bits
    stored = np.empty(BLOCK)
    g_in = np.zeros(capacity)
    h_in = np.zeros(capacity)
    widest = 0
    for n in range(n_rows):
        widest = max(widest, missing_start[n + 1] - missing_start[n])
    mu = np.zeros((widest, capacity))  # of the row's missing cells

    for k in range(K):
        counts[k] = int(gram[k, k])
    rebuild(gram, cross, K, ridge, P, G)
    n_changed = 0
    n_rebuilt = 0
    next_row = n_rows
    next_pending = -1

    n = start
    while n < n_rows and next_row == n_rows:
        first = n - n % BLOCK
        last = min(first + BLOCK, n_rows)
        if K > 0:
            product = np.dot(X[first:last], cross[:K].T)
            for t in range(last - first):
                for k in range(K):
                    Y[t, k] = product[t, k]
        flips[:] = 0.0
        dirty = False
        while n < last:
            row = n - first
            cells = missing_dim[missing_start[n] : missing_start[n + 1]]

            # --- the columns that only this row has: delete, remember how many
            n_own = 0
            if grows:
                k = int(n - n)  # not a literal, which would compile delete_column twice
                while k < K:
                    if counts[k] == 1 and Z[n, k] == 1:
                        delete_column(n, k, K, Z, counts, P, G, gram, cross, Y, flips)
                        K -= 1
                        keys[k] = keys[K]
                        n_sorted = -1
                        n_own += 1
                    else:
                        k += 1

            # --- take the row out, lazily
            for k in range(K):
                y[k] = Y[row, k]
                z[k] = Z[n, k]
                old[k] = z[k]
                others[k] = counts[k] - Z[n, k]
            for k in range(K):
                b_k = Pz_k = Gz_k = 0.0
                for j in range(K):
                    b_k += P[k, j] * y[j]
                    Pz_k += P[k, j] * z[j]
                    Gz_k += G[k, j] * z[j]
                b[k] = b_k
                Pz[k] = Pz_k
                Gz[k] = Gz_k
            q = 0.0
            zb = 0.0
            zGz = 0.0
            for k in range(K):
                q += z[k] * Pz[k]
                zb += z[k] * b[k]
                zGz += z[k] * Gz[k]
            shrink = 1.0 - q
            c = 1.0 / shrink
            ee = square[n] - 2.0 * zb + zGz
            # eq: own.row-removal
            for k in range(K):
                g[k] = c * Pz[k]
                h[k] = b[k] - Gz[k]
            for k in range(K):
                Pz[k] = g[k]
                b[k] -= g[k] * (square[n] - zb)
            for k in range(K):
                Gz[k] += g[k] * (ee * c * q - zb + zGz) - h[k] * (c * q)
            unstable = not (0.0 < c <= _REBUILD_ABOVE)
            removed = unstable or cells.size > 0
            if removed:  # take it out of gram, cross, P and G for real
                if dirty:
                    add_flips(flips, X[first:last], K, cross)
                    dirty = False
                for i in range(K):
                    y[i] -= z[i] * square[n]  # y = Z_out' X_out x_n from here on
                    if old[i] != 0.0:
                        for d in range(n_dims):
                            cross[i, d] -= X[n, d]
                    for j in range(K):
                        gram[i, j] -= old[i] * old[j]
                        P[i, j] += shrink * g[i] * g[j]
                        G[i, j] += (ee * g[i] - h[i]) * g[j] - g[i] * h[j]
                if unstable:
                    n_rebuilt += 1
                    rebuild(gram, cross, K, ridge, P, G)
                for k in range(K):
                    g[k] = 0.0
                    h[k] = 0.0
                    b[k] = 0.0
                    Pz[k] = 0.0
                    Gz[k] = 0.0
                ee = 0.0
                for k in range(K):
                    for j in range(K):
                        b[j] += P[k, j] * y[k]
                    if z[k] != 0.0:
                        for j in range(K):
                            Pz[j] += P[k, j]
                            Gz[j] += G[k, j]

            # --- draw the bits from the observed cells
            used_dims = n_dims
            xx = square[n]
            if cells.size > 0:  # restrict G z, b and |x|^2 to the observed dims of this row
                for i in range(cells.size):
                    for j in range(K):
                        g_in[j] = cross[j, cells[i]]  # side by side in memory, as P's row is
                    for k in range(K):
                        mean = 0.0
                        for j in range(K):
                            mean += P[k, j] * g_in[j]
                        mu[i, k] = mean
                used_dims = n_dims - cells.size
                for i in range(cells.size):
                    x = X[n, cells[i]]
                    xx -= x * x
                    mean = 0.0
                    for k in range(K):
                        b[k] -= mu[i, k] * x
                        mean += mu[i, k] * z[k]
                    for k in range(K):
                        Gz[k] -= mu[i, k] * mean
            s = xx
            q = 0.0
            for k in range(K):
                s += z[k] * (Gz[k] - 2.0 * b[k])
                q += z[k] * Pz[k]
            own_var = n_own / ridge
            if pending < 0:
                if group == 1:
                    q, s = scan_bits(
                        z, order, K, others, log_odds, P, G, mu, cells.size, g, h, shrink, ee, b, Pz, Gz,
                        q + own_var, s, used_dims, precision, rng, work,
                    )  # fmt: skip
                else:
                    if n_sorted != K:
                        n_sorted = K
                        for k in range(K):
                            i = k
                            while i > 0 and keys[by_key[i - 1]] > keys[k]:
                                by_key[i] = by_key[i - 1]
                                i -= 1
                            by_key[i] = k
                    q, s = scan_groups(
                        z, by_key, group, K, others, log_odds, P, G, mu, cells.size, g, h, shrink, ee, b, Pz, Gz,
                        q + own_var, s, used_dims, precision, rng,
                    )  # fmt: skip
                q -= own_var
                n_new = draw_new(q, s, used_dims, ridge, precision, new_rate, terms, rng.random())
            else:  # this row's bits were drawn before the arrays had to grow
                n_new = pending
                pending = -1
            if K + n_new > capacity:
                next_row = n
                next_pending = n_new
                n_new = n_own  # leave the row as it is but for its new bits

            # --- fill the missing cells
            x_before = block_gram[n]
            if cells.size > 0:
                for t in range(BLOCK):
                    stored[t] = block_gram[n, t]
                x_before = stored
                sd = math.sqrt(noise_var * (1.0 + q + n_new / ridge))
                for i in range(cells.size):
                    mean = 0.0
                    for k in range(K):
                        mean += z[k] * mu[i, k]
                    x = X[n, cells[i]]
                    # eq: own.missing-cells
                    dx = mean + sd * rng.standard_normal() - x
                    for k in range(K):
                        y[k] += cross[k, cells[i]] * dx
                    for t in range(last - first):
                        if t != row:
                            block_gram[n, t] += dx * X[first + t, cells[i]]
                            block_gram[first + t, row] = block_gram[n, t]
                    square[n] += dx * (2.0 * x + dx)
                    X[n, cells[i]] = x + dx
                block_gram[n, row] = square[n]
                for k in range(K):
                    b[k] = 0.0
                    Gz[k] = 0.0
                for k in range(K):
                    for j in range(K):
                        b[j] += P[k, j] * y[k]
                        Gz[j] += G[k, j] * z[k]
                s = square[n]
                for k in range(K):
                    s += z[k] * (Gz[k] - 2.0 * b[k])

            # --- put the row back
            changed = removed or n_own > 0 or n_new > 0
            if not changed:
                for k in range(K):
                    if z[k] != old[k]:
                        changed = True
            if changed:
                n_changed += 1
                for _ in range(n_new):
                    append_column(K, ridge, counts, P, G, gram, cross, Y, flips)
                    if group > 1:
                        keys[K] = rng.random()
                    n_sorted = -1
                    z[K] = 1.0
                    old[K] = g[K] = h[K] = b[K] = Gz[K] = 0.0
                    Pz[K] = 1.0 / ridge
                    q += 1.0 / ridge
                    K += 1
                for k in range(K):
                    g_in[k] = Pz[k] / (1.0 + q)
                    h_in[k] = b[k] - Gz[k]
                for i in range(K):
                    from_g = ee * g[i] - h[i]
                    to_g = h_in[i] + s * g_in[i]
                    out = shrink * g[i]
                    for j in range(K):
                        # eq: own.row-insertion
                        P[i, j] += out * g[j] - g_in[i] * Pz[j]
                    for j in range(K):
                        G[i, j] += from_g * g[j] - g[i] * h[j] + g_in[i] * h_in[j] + to_g * g_in[j]
                was = zero if removed else old  # the row's bits that gram and cross still hold
                for k in range(K):
                    if z[k] != was[k]:
                        for j in range(K):
                            gram[k, j] += z[k] * z[j] - was[k] * was[j]
                            if z[j] == was[j]:
                                gram[j, k] = gram[k, j]
                        if removed:
                            for d in range(n_dims):
                                cross[k, d] += X[n, d]
                        else:
                            flips[k, row] = z[k] - was[k]
                            dirty = True
                    if removed or z[k] != was[k]:
                        for t in range(row + 1, last - first):  # the rows still to come
                            Y[t, k] += z[k] * block_gram[n, t] - old[k] * x_before[t]
                    counts[k] += int(z[k] - old[k])
                    Z[n, k] = 1 if z[k] != 0.0 else 0
            n += 1
            if next_row < n_rows:
                break
        if dirty:
            add_flips(flips, X[first:last], K, cross)

    drift = 0.0
    for i in range(K):
        for j in range(K):
            a = ridge * P[i, j]
            for k in range(K):
                a += P[i, k] * gram[k, j]
            drift = max(drift, abs(a - 1.0 if i == j else a))
    return K, next_row, next_pending, n_changed, n_rebuilt, drift


collapsed_sweep = jit(_collapsed_sweep)
