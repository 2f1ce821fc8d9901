"""Twin of `thali.kernels.bits.column_moves`: matrices, no loops where none are needed."""

import math

import numpy as np
from scipy.special import gammaln, log_softmax


def _mean(Z, X, noise_var, feature_var):
    Z = Z.astype(float)
    return np.linalg.solve(Z.T @ Z + noise_var / feature_var * np.eye(Z.shape[1]), Z.T @ X)


def swap_columns(i, j, Z, gram, cross):
    Z[:, [i, j]] = Z[:, [j, i]]
    cross[[i, j]] = cross[[j, i]]
    gram[[i, j]] = gram[[j, i]]
    gram[:, [i, j]] = gram[:, [j, i]]


def move_to_end(columns, K, Z, gram, cross):
    order = list(range(K))
    for i, column in enumerate(columns):
        a, b = order.index(column), K - 1 - i
        order[a], order[b] = order[b], order[a]
    Z[:, :K] = Z[:, order]
    cross[:K] = cross[order]
    gram[:K, :K] = gram[np.ix_(order, order)]


def pick_columns(K, n_columns, rng):
    left = list(range(K))
    for i in range(n_columns):
        j = i + int(rng.random() * (K - i))
        left[i], left[j] = left[j], left[i]
    return np.array(left[:n_columns], dtype=np.int64)


def take_columns(Z, first, last):
    return Z[:, first:last].copy()


def refresh_columns(X, Z, first, K, gram, cross):
    dense = Z[:, :K].astype(float)
    gram[first:K, :K] = dense[:, first:].T @ dense
    gram[:K, first:K] = gram[first:K, :K].T
    cross[first:K] = dense[:, first:].T @ X


def log_target(gram, cross, K, column_weight, noise_var, feature_var):
    M = gram[:K, :K] / noise_var + np.eye(K) / feature_var
    determinant = np.linalg.slogdet(feature_var * M)[1]
    explained = np.sum(cross[:K] * np.linalg.solve(M, cross[:K])) / noise_var**2
    weights = column_weight[np.diag(gram)[:K].astype(int)].sum()
    return weights - gammaln(K + 1) - 0.5 * cross.shape[1] * determinant + 0.5 * explained


def pattern_log_probs(X, Z, first, K, gram, cross, noise_var, feature_var):
    n_rows, size = len(X), K - first
    mu = np.linalg.solve(gram[:K, :K] + noise_var / feature_var * np.eye(K), cross[:K])
    m = np.diag(gram)[first:K]
    left = X - Z[:, :first] @ mu[:first]
    weights = np.empty((n_rows, 2**size))
    for p in range(2**size):
        bits = np.array([p >> i & 1 for i in range(size)], dtype=float)
        misfit = np.sum((left - bits @ mu[first:]) ** 2, axis=1)
        weights[:, p] = bits @ np.log((m + 0.5) / (n_rows - m + 0.5)) - 0.5 * misfit / noise_var
    return log_softmax(weights, axis=1)


def draw_patterns(log_q, rng, Z, first):
    size = int(math.log2(log_q.shape[1]))
    total = 0.0
    for n, row in enumerate(log_q):
        p = min(int(np.searchsorted(np.cumsum(np.exp(row)), rng.random(), side="right")), log_q.shape[1] - 1)
        Z[n, first : first + size] = [p >> i & 1 for i in range(size)]
        total += row[p]
    return total


def score_patterns(log_q, bits):
    return log_q[np.arange(len(log_q)), bits.astype(int) @ 2 ** np.arange(bits.shape[1])].sum()


def residual(X, Z, K, gram, cross, noise_var, feature_var):
    return X - Z[:, :K] @ _mean(Z[:, :K], X, noise_var, feature_var)


def new_column(R, noise_var, ridge, rng, z):
    n_rows, n_dims = R.shape
    seed = int(rng.random() * n_rows)
    square = R[seed] @ R[seed]
    on = R @ R[seed] > 0.5 * max(square - n_dims * noise_var, 0.25 * square)
    on[seed] = True
    for _ in range(4):
        a = R[on].sum(axis=0) / (on.sum() + ridge)
        again = R @ a > 0.5 * a @ a + noise_var * math.log((n_rows - on.sum() + 1) / (on.sum() + 0.5))
        if not again.any():
            break
        on = again
    z[:] = on
    R[on] -= R[on].sum(axis=0) / (on.sum() + ridge)


def recode(table, Z, first):
    Z[:, first] = table[Z[:, first], Z[:, first + 1]]


def launch_columns(X, Z, first, K, gram, cross, R, noise_var, feature_var, rng):
    rest, z = R.copy(), np.zeros(len(X), np.uint8)
    for k in range(first, K):
        new_column(rest, noise_var, noise_var / feature_var, rng, z)
        Z[:, k] = z
    refresh_columns(X, Z, first, K, gram, cross)
    for _ in range(2):
        draw_patterns(pattern_log_probs(X, Z, first, K, gram, cross, noise_var, feature_var), rng, Z, first)
        refresh_columns(X, Z, first, K, gram, cross)
    return pattern_log_probs(X, Z, first, K, gram, cross, noise_var, feature_var)


def propose_rebirth(X, Z, K, gram, cross, column_weight, noise_var, feature_var, old_columns, n_new, rng):
    numbers = (column_weight, noise_var, feature_var)
    before = log_target(gram, cross, K, *numbers)
    move_to_end(old_columns, K, Z, gram, cross)
    first = K - len(old_columns)
    old = Z[:, first:K].copy()
    R = residual(X, Z, first, gram, cross, noise_var, feature_var)

    def launch(size):
        return launch_columns(X, Z, first, first + size, gram, cross, R, noise_var, feature_var, rng)

    forward = backward = 0.0
    if n_new:
        log_q = launch(n_new)
        forward = draw_patterns(log_q, rng, Z, first)
    new = Z[:, first : first + n_new].copy()
    if len(old_columns):
        backward = score_patterns(log_q if n_new == len(old_columns) else launch(len(old_columns)), old)
    Z[:, first:] = 0
    Z[:, first : first + n_new] = new
    refresh_columns(X, Z, first, first + n_new, gram, cross)
    return first + n_new, log_target(gram, cross, first + n_new, *numbers) - before + backward - forward


def propose_recoding(X, Z, K, gram, cross, column_weight, noise_var, feature_var, pair, table, rng):
    numbers = (column_weight, noise_var, feature_var)
    before = log_target(gram, cross, K, *numbers)
    move_to_end(pair, K, Z, gram, cross)
    old = Z[:, K - 2 : K].copy()

    def scan_of(bits):
        Z[:, K - 2 : K] = bits
        recode(table, Z, K - 2)
        refresh_columns(X, Z, K - 2, K, gram, cross)
        return pattern_log_probs(X, Z, K - 2, K, gram, cross, noise_var, feature_var)

    forward = draw_patterns(scan_of(old), rng, Z, K - 2)
    new = Z[:, K - 2 : K].copy()
    backward = score_patterns(scan_of(new), old)
    Z[:, K - 2 : K] = new
    refresh_columns(X, Z, K - 2, K, gram, cross)
    return log_target(gram, cross, K, *numbers) - before + backward - forward


def propose_exclusive_or(X, Z, K, gram, cross, column_weight, noise_var, feature_var, pair):
    before = log_target(gram, cross, K, column_weight, noise_var, feature_var)
    other, column = pair
    Z[:, column] ^= Z[:, other]
    move_to_end(pair, K, Z, gram, cross)
    refresh_columns(X, Z, 0, K, gram, cross)
    return log_target(gram, cross, K, column_weight, noise_var, feature_var) - before
