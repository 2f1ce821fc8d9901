"""Proposals that replace whole columns of Z at once, with their Metropolis-Hastings ratios, for X = Z A + noise.

Single bits and small groups of bits cannot turn one description of the data into another. These proposals can: they
take some columns out, rebuild others from what is left unexplained (`propose_rebirth`), or re-encode a pair of columns
(`propose_recoding`). The target is the labelled form, columns in uniformly random order:

    log p(Z, X) = sum_k column_weight[m_k] - log K! + log p(X | Z),   m_k = members of column k.

New bits are drawn row by row given the posterior mean mu of the features of a *launch* state (the rows do not wait for
each other, so a scan costs O(N (D + K)) per new column, with e = x - z_rest mu_rest and G = mu mu'):

    log q(p) = sum_i p_i (w_i + (mu_i e - G_ii / 2) / noise_var) - sum_(i<j) p_i p_j G_ij / noise_var

with w_i = log((m_i + 1/2) / (N - m_i + 1/2)); any q would do, as its probability enters the ratio.
"""

import math

import numpy as np

from thali.kernels._jit import jit

_REFINEMENTS = 4
_LAUNCH_SCANS = 2


def _swap_columns(i, j, Z, gram, cross):
    """Exchange columns i and j of Z and their statistics."""
    if i == j:
        return
    for n in range(Z.shape[0]):
        Z[n, i], Z[n, j] = Z[n, j], Z[n, i]
    for d in range(cross.shape[1]):
        cross[i, d], cross[j, d] = cross[j, d], cross[i, d]
    for k in range(gram.shape[0]):
        gram[i, k], gram[j, k] = gram[j, k], gram[i, k]
    for k in range(gram.shape[0]):
        gram[k, i], gram[k, j] = gram[k, j], gram[k, i]


def _move_to_end(columns, K, Z, gram, cross):
    """Exchange these columns, all different, with the last ones; the first of them comes last of all."""
    moved = columns.copy()
    for i in range(moved.size):
        last = K - 1 - i
        swap_columns(moved[i], last, Z, gram, cross)
        for j in range(i + 1, moved.size):
            if moved[j] == last:
                moved[j] = moved[i]


def _pick_columns(K, n_columns, rng):
    """`n_columns` different columns, uniformly in order."""
    columns = np.arange(K)
    for i in range(n_columns):
        j = i + int(rng.random() * (K - i))
        columns[i], columns[j] = columns[j], columns[i]
    return columns[:n_columns].copy()


def _take_columns(Z, first, last):
    """A copy of these columns."""
    bits = np.empty((Z.shape[0], last - first), np.uint8)
    for n in range(Z.shape[0]):
        for k in range(first, last):
            bits[n, k - first] = Z[n, k]
    return bits


def _refresh_columns(X, Z, first, K, gram, cross):
    """gram = Z'Z and cross = Z'X anew for the columns from `first` to K. Cost O(N (K + D)) per column."""
    n_rows, n_dims = X.shape
    for k in range(first, K):
        for j in range(K):
            gram[k, j] = 0.0
        for d in range(n_dims):
            cross[k, d] = 0.0
        for n in range(n_rows):
            if Z[n, k]:
                for j in range(K):
                    gram[k, j] += Z[n, j]
                for d in range(n_dims):
                    cross[k, d] += X[n, d]
        for j in range(K):
            gram[j, k] = gram[k, j]


def _log_target(gram, cross, K, column_weight, noise_var, feature_var):
    """log p(Z, X) up to terms that do not depend on Z, columns in random order. Cost O(K^3 + K^2 D)."""
    total = -math.lgamma(K + 1.0)
    if K == 0:
        return total
    n_dims = cross.shape[1]
    ridge = noise_var / feature_var
    M = gram[:K, :K].copy()
    for k in range(K):
        total += column_weight[int(gram[k, k])]
        M[k, k] += ridge
    L = np.linalg.cholesky(M)
    mu = np.dot(np.linalg.inv(M), cross[:K])
    explained = 0.0
    for k in range(K):
        total += n_dims * (0.5 * math.log(ridge) - math.log(L[k, k]))
        for d in range(n_dims):
            explained += mu[k, d] * cross[k, d]
    # eq: own.labelled-target
    return total + 0.5 * explained / noise_var


def _pattern_log_probs(X, Z, first, K, gram, cross, noise_var, feature_var):
    """log q of each of the 2^(K - first) patterns of the last columns, for every row; (n_rows, patterns)."""
    n_rows = X.shape[0]
    size = K - first
    n_patterns = 1 << size
    M = gram[:K, :K].copy()
    for k in range(K):
        M[k, k] += noise_var / feature_var
    mu = np.dot(np.linalg.inv(M), cross[:K])
    G = np.dot(mu[first:], mu.T)
    fit = np.dot(X, mu[first:].T)
    prior = np.empty(size)
    for i in range(size):
        m = gram[first + i, first + i]
        prior[i] = math.log((m + 0.5) / (n_rows - m + 0.5))
    evidence = np.empty(size)
    log_q = np.empty((n_rows, n_patterns))
    for n in range(n_rows):
        for i in range(size):
            e = fit[n, i]
            for j in range(first):
                if Z[n, j]:
                    e -= G[i, j]
            evidence[i] = prior[i] + (e - 0.5 * G[i, first + i]) / noise_var
        top = 0.0
        for p in range(n_patterns):
            w = 0.0
            for i in range(size):
                if (p >> i) & 1:
                    w += evidence[i]
                    for j in range(i):
                        if (p >> j) & 1:
                            w -= G[i, first + j] / noise_var
            # eq: own.column-proposal
            log_q[n, p] = w
            top = max(top, w)
        total = 0.0
        for p in range(n_patterns):
            total += math.exp(log_q[n, p] - top)
        total = math.log(total) + top
        for p in range(n_patterns):
            log_q[n, p] -= total
    return log_q


def _draw_patterns(log_q, rng, Z, first):
    """Draw each row's pattern into the columns from `first` on; the log probability of what was drawn."""
    n_rows, n_patterns = log_q.shape
    total = 0.0
    for n in range(n_rows):
        u = rng.random()
        p = 0
        while p < n_patterns - 1:
            u -= math.exp(log_q[n, p])
            if u < 0.0:
                break
            p += 1
        total += log_q[n, p]
        i = 0
        while n_patterns >> (i + 1):
            Z[n, first + i] = (p >> i) & 1
            i += 1
    return total


def _score_patterns(log_q, bits):
    """The log probability that `_draw_patterns` draws these bits."""
    total = 0.0
    for n in range(log_q.shape[0]):
        p = 0
        for i in range(bits.shape[1]):
            p += int(bits[n, i]) << i
        total += log_q[n, p]
    return total


def _residual(X, Z, K, gram, cross, noise_var, feature_var):
    """X - Z mu for the first K columns."""
    if K == 0:
        return X.copy()
    M = gram[:K, :K].copy()
    for k in range(K):
        M[k, k] += noise_var / feature_var
    mu = np.dot(np.linalg.inv(M), cross[:K])
    R = X.copy()
    for n in range(X.shape[0]):
        for k in range(K):
            if Z[n, k]:
                for d in range(X.shape[1]):
                    R[n, d] -= mu[k, d]
    return R


def _new_column(R, noise_var, ridge, rng, z):
    """A column from the residual R, into z: the rows that resemble a random one, refined by 2-means steps.

    Its share of R is then taken out of R.
    """
    n_rows, n_dims = R.shape
    seed = int(rng.random() * n_rows)
    a = R[seed].copy()
    square = np.dot(a, a)
    limit = 0.5 * max(square - n_dims * noise_var, 0.25 * square)
    for step in range(_REFINEMENTS + 1):
        t = np.dot(R, a)
        changed = False
        m = 0
        for n in range(n_rows):
            on = t[n] > limit or (step == 0 and n == seed)
            if on:
                m += 1
            if step == 0 or (z[n] != 0) != on:
                changed = True
        if m == 0 or not changed:
            break
        for n in range(n_rows):
            z[n] = 1 if t[n] > limit or (step == 0 and n == seed) else 0
        for d in range(n_dims):
            a[d] = 0.0
        for n in range(n_rows):
            if z[n]:
                for d in range(n_dims):
                    a[d] += R[n, d]
        for d in range(n_dims):
            a[d] /= m + ridge
        limit = 0.5 * np.dot(a, a) + noise_var * math.log((n_rows - m + 1.0) / (m + 0.5))
    for n in range(n_rows):
        if z[n]:
            for d in range(n_dims):
                R[n, d] -= a[d]


def _launch_columns(X, Z, first, K, gram, cross, R, noise_var, feature_var, rng):
    """Columns from `first` to K built from the others alone; returns log q of the next scan. R is the residual."""
    z = np.zeros(X.shape[0], np.uint8)
    rest = R.copy()
    for k in range(first, K):
        new_column(rest, noise_var, noise_var / feature_var, rng, z)
        for n in range(X.shape[0]):
            Z[n, k] = z[n]
    refresh_columns(X, Z, first, K, gram, cross)
    for _ in range(_LAUNCH_SCANS):
        log_q = pattern_log_probs(X, Z, first, K, gram, cross, noise_var, feature_var)
        draw_patterns(log_q, rng, Z, first)
        refresh_columns(X, Z, first, K, gram, cross)
    return pattern_log_probs(X, Z, first, K, gram, cross, noise_var, feature_var)


def _propose_rebirth(X, Z, K, gram, cross, column_weight, noise_var, feature_var, old_columns, n_new, rng):
    """Replace these columns by `n_new` that are rebuilt from the others. Returns (K, log ratio).

    Z (N, capacity), gram = Z'Z and cross = Z'X become those of the proposal; keep a copy. The launches depend on the
    other columns only, so their law is the same in both directions. If the old columns were chosen uniformly in order,
    that choice and the random places of the new ones give factors that cancel. Hence

        log ratio = log p(Z', X) - log p(Z, X) + log q(old | launch of n_old) - log q(new | launch of n_new).
    """
    n_rows = X.shape[0]
    n_old = old_columns.size
    before = log_target(gram, cross, K, column_weight, noise_var, feature_var)
    move_to_end(old_columns, K, Z, gram, cross)
    first = K - n_old
    old = take_columns(Z, first, K)
    R = residual(X, Z, first, gram, cross, noise_var, feature_var)
    log_forward = 0.0
    log_backward = 0.0
    new = take_columns(Z, first, first)
    if n_new > 0:
        log_q = launch_columns(X, Z, first, first + n_new, gram, cross, R, noise_var, feature_var, rng)
        log_forward = draw_patterns(log_q, rng, Z, first)
        new = take_columns(Z, first, first + n_new)
        if n_old == n_new:
            log_backward = score_patterns(log_q, old)
    if n_old > 0 and n_old != n_new:
        log_q = launch_columns(X, Z, first, K, gram, cross, R, noise_var, feature_var, rng)
        log_backward = score_patterns(log_q, old)
    for n in range(n_rows):
        for k in range(first, Z.shape[1]):
            Z[n, k] = new[n, k - first] if k < first + n_new else 0
    K = first + n_new
    refresh_columns(X, Z, first, K, gram, cross)
    after = log_target(gram, cross, K, column_weight, noise_var, feature_var)
    # eq: own.rebirth-ratio
    return K, after - before + log_backward - log_forward


def _propose_recoding(X, Z, K, gram, cross, column_weight, noise_var, feature_var, pair, table, rng):
    """Give one of a pair of columns (l, k) the bits table[z_k, z_l], then scan both jointly.

    Returns the log ratio if the pair was chosen uniformly in order, with T the map of the table:
    log p(Z', X) - log p(Z, X) + log q(old | T(new)) - log q(new | T(old)).
    """
    before = log_target(gram, cross, K, column_weight, noise_var, feature_var)
    move_to_end(pair, K, Z, gram, cross)
    first = K - 2
    old = take_columns(Z, first, K)
    recode(table, Z, first)
    refresh_columns(X, Z, first, K, gram, cross)
    log_q = pattern_log_probs(X, Z, first, K, gram, cross, noise_var, feature_var)
    log_forward = draw_patterns(log_q, rng, Z, first)
    new = take_columns(Z, first, K)
    recode(table, Z, first)
    refresh_columns(X, Z, first, K, gram, cross)
    log_q = pattern_log_probs(X, Z, first, K, gram, cross, noise_var, feature_var)
    log_backward = score_patterns(log_q, old)
    for n in range(Z.shape[0]):
        for i in range(2):
            Z[n, first + i] = new[n, i]
    refresh_columns(X, Z, first, K, gram, cross)
    after = log_target(gram, cross, K, column_weight, noise_var, feature_var)
    # eq: own.recoding-ratio
    return after - before + log_backward - log_forward


def _propose_exclusive_or(X, Z, K, gram, cross, column_weight, noise_var, feature_var, pair):
    """z_k <- z_k xor z_l for a pair (l, k) picked uniformly: its own inverse, so the log ratio is the target's."""
    before = log_target(gram, cross, K, column_weight, noise_var, feature_var)
    move_to_end(pair, K, Z, gram, cross)
    recode(np.array([[0, 1], [1, 0]], np.uint8), Z, K - 2)
    refresh_columns(X, Z, K - 2, K, gram, cross)
    return log_target(gram, cross, K, column_weight, noise_var, feature_var) - before


def _recode(table, Z, first):
    """z_k <- table[z_k, z_l] for the columns k = first, l = first + 1."""
    for n in range(Z.shape[0]):
        Z[n, first] = table[Z[n, first], Z[n, first + 1]]


swap_columns = jit(_swap_columns)
move_to_end = jit(_move_to_end)
pick_columns = jit(_pick_columns)
take_columns = jit(_take_columns)
refresh_columns = jit(_refresh_columns)
log_target = jit(_log_target)
pattern_log_probs = jit(_pattern_log_probs)
draw_patterns = jit(_draw_patterns)
score_patterns = jit(_score_patterns)
residual = jit(_residual)
new_column = jit(_new_column)
recode = jit(_recode)
launch_columns = jit(_launch_columns)
propose_rebirth = jit(_propose_rebirth)
propose_recoding = jit(_propose_recoding)
propose_exclusive_or = jit(_propose_exclusive_or)
