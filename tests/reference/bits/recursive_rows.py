"""Twin of thali.kernels.bits.recursive_rows: each feature has a whole covariance, and residuals are computed anew."""

import numpy as np
from scipy.special import expit, xlogy

from reference.bits.recursive_slots import CANDIDATES, NONE, keep_record, lose_weight, open_slots, row_odds, settle_row

# ---- with whole covariances


def fit_bit(k, o, b, log_odds, mu, Sigma, noise):
    """q(z_k) at its optimum."""
    rest = o - np.delete(b, k) @ np.delete(mu, k, axis=0)
    return expit(log_odds[k] - (-2 * mu[k] @ rest + np.trace(Sigma[k]) + mu[k] @ mu[k]) / (2 * noise))


def fit_feature(k, o, b, mu, mu0, Sigma0, noise):
    """(mu_k, Sigma_k) at their optimum."""
    rest = o - np.delete(b, k) @ np.delete(mu, k, axis=0)
    before = np.linalg.inv(Sigma0[k])
    Sigma = np.linalg.inv(before + b[k] / noise * np.eye(len(o)))
    return Sigma @ (before @ mu0[k] + b[k] / noise * rest), Sigma


def row_elbo(o, b, log_odds, mu, Sigma, mu0, Sigma0, noise):
    m = b @ mu
    second = [np.trace(S) + a @ a for S, a in zip(Sigma, mu, strict=True)]
    error = o @ o - 2 * o @ m + b @ second + m @ m - b**2 @ (mu**2).sum(axis=1)
    total = -0.5 * len(o) * np.log(2 * np.pi * noise) - error / (2 * noise)
    q = expit(log_odds)
    total -= np.sum(xlogy(b, b / q) + xlogy(1 - b, (1 - b) / (1 - q)))
    for k in range(len(b)):
        inverse, step = np.linalg.inv(Sigma0[k]), mu[k] - mu0[k]
        ratio = inverse @ Sigma[k]
        total -= 0.5 * (np.trace(ratio) - len(o) - np.linalg.slogdet(ratio)[1] + step @ inverse @ step)
    return total, error


def sweep(o, b, log_odds, mu, Sigma, mu0, Sigma0, noise, order):
    """Bits, then features; the arrays change in place."""
    for k in order:
        b[k] = fit_bit(k, o, b, log_odds, mu, Sigma, noise)
    for k in order:
        mu[k], Sigma[k] = fit_feature(k, o, b, mu, mu0, Sigma0, noise)


# ---- of the kernel's signatures


def in_order(backward, K):
    return range(K - 1, -1, -1) if backward else range(K)


def scan_bits(backward, K, n_dims, mean, r, b, log_odds, square, spread, noise):
    x = r[:n_dims] + b[:K] @ mean[:K, :n_dims]
    old = b[:K].copy()
    Sigma = [noise * spread[k] / max(n_dims, 1) * np.eye(n_dims) for k in range(K)]
    for k in in_order(backward, K):
        b[k] = fit_bit(k, x, b[:K], log_odds, mean[:K, :n_dims], Sigma, noise)
    r[:n_dims] = x - b[:K] @ mean[:K, :n_dims]
    return np.abs(b[:K] - old).max(initial=0.0)


def scan_means(backward, K, n_dims, mean, old, weight, share, r, b, square, spread):
    x = r[:n_dims] + b[:K] @ mean[:K, :n_dims]
    for k in in_order(backward, K):
        w = np.broadcast_to(weight[k], n_dims)
        new, Sigma = fit_feature(
            k, x, b[:K], mean[:K, :n_dims], old[:, :n_dims], {k: np.diag(1 / w)}, 1.0
        )  # in units of the noise
        mean[k, :n_dims] = share[k] * new + (1 - share[k]) * old[k, :n_dims]
        spread[k] = share[k] * np.trace(Sigma) + (1 - share[k]) * np.sum(1 / w)
        square[k] = mean[k, :n_dims] @ mean[k, :n_dims]
    r[:n_dims] = x - b[:K] @ mean[:K, :n_dims]


def bits_bound(K, n_dims, r, b, log_odds, square, spread, noise):
    b, q = b[:K], expit(log_odds[:K])
    error = r[:n_dims] @ r[:n_dims] + np.sum(b * noise * spread[:K] + b * (1 - b) * square[:K])
    return -np.sum(xlogy(b, b / q) + xlogy(1 - b, (1 - b) / (1 - q))) - error / (2 * noise)


def start_bits(x, K, n_dims, mean, r, b, q, log_odds, square, spread, noise, n_passes, tol, first, second):
    ends = []
    for start in (q[:K].copy(), np.zeros(K)):
        b[:K], r[:n_dims] = start, x[:n_dims] - start @ mean[:K, :n_dims]
        for s in range(n_passes):
            if scan_bits(s % 2 == 1, K, n_dims, mean, r, b, log_odds, square, spread, noise) < tol:
                break
        ends.append((bits_bound(K, n_dims, r, b, log_odds, square, spread, noise), b[:K].copy()))
    b[:K] = ends[1][1] if ends[1][0] > ends[0][0] else ends[0][1]
    r[:n_dims] = x[:n_dims] - b[:K] @ mean[:K, :n_dims]


def search_bits(x, K, n_dims, mean, r, b, log_odds, square, spread, noise, n_passes, tol, first, second):
    """Every single and double flip of whole bits, as values of the whole row; the kernel looks for pairs among the 16
    best."""
    args = mean, log_odds, square, spread, noise
    before = bits_bound(K, n_dims, r, b, *args[1:])
    soft, left = b[:K].copy(), r[:n_dims].copy()

    def value(z):
        rest = x[:n_dims] - z @ mean[:K, :n_dims]
        return z @ log_odds[:K] - rest @ rest / (2 * noise) - 0.5 * z @ spread[:K]

    z = (soft > 0.5).astype(float)
    for _ in range(2 * K):
        ways = [[k] for k in range(K)] + [[i, j] for i in range(K) for j in range(i)]
        gains = [value(np.where(np.isin(np.arange(K), way), 1 - z, z)) - value(z) for way in ways]
        best = int(np.argmax(gains))
        if gains[best] <= tol:
            break
        z[ways[best]] = 1 - z[ways[best]]
    b[:K], r[:n_dims] = z, x[:n_dims] - z @ mean[:K, :n_dims]
    for s in range(n_passes):
        if scan_bits(s % 2 == 1, K, n_dims, mean, r, b, *args[1:]) < tol:
            break
    if bits_bound(K, n_dims, r, b, *args[1:]) <= before:
        b[:K], r[:n_dims] = soft, left


def row_bound(K, n_dims, mean, old, weight, share, used, r, b, log_odds, square, spread, noise):
    new, old = mean[:K, :n_dims], old[:K, :n_dims]
    w = np.broadcast_to(weight[:K], (K, n_dims)) if weight.shape[1] == 1 else weight[:K, :n_dims]
    part = share[:K, None]
    Sigma0 = [noise * np.diag(1 / row) for row in w]
    Sigma = [noise * np.diag(row) for row in part / (w + used[:K, None]) + (1 - part) / w]
    return row_elbo(r[:n_dims] + b[:K] @ new, b[:K], log_odds[:K], new, Sigma, old, Sigma0, noise)


def filter_rows(X, at, K, slots, totals, law, plan, notes):
    return filter_recorded(X, at, K, slots, totals, law, plan, notes, None)


def filter_recorded(X, at, K, slots, totals, law, plan, notes, record):
    room, W = len(slots.mean), slots.rows.shape[1]
    ridge, n_notes = law.noise / law.feature, 0
    for row in range(at, len(X)):
        if room < K + CANDIDATES or n_notes + room > len(notes):
            return row, K, n_notes
        lose_weight(slots, totals, K, plan.keep, ridge)
        before = law.concentration + totals.weight[0]
        q, odds = np.zeros(K + CANDIDATES), np.zeros(K + CANDIDATES)
        row_odds(slots, K, before, law, q, odds, None, None, None, None)
        seen = np.flatnonzero(~np.isnan(X[row]))
        o, D = X[row, seen], len(seen)
        w = ridge + (slots.rows[:K, seen] if W > 1 else np.repeat(slots.rows[:K], D, axis=1))
        mu0, Sigma0 = slots.mean[:K][:, seen], [law.noise * np.diag(1 / v) for v in w]
        mu, Sigma, b = mu0.copy(), [S.copy() for S in Sigma0], q[:K].copy()
        if plan.seeks:
            b = _started(o, K, mu, Sigma, q, odds, law, plan)
        while len(b) < min(K + CANDIDATES, plan.most) and D:
            c, r = len(b), o - b @ mu
            p = q[c]
            if plan.seeks:
                p = expit(odds[c] + log_new(r @ r, D, law))
            if p < NONE:
                break
            gain = p / (ridge + p) if plan.seeks else 0.0
            b, mu = np.append(b, p), np.vstack([mu, gain * r])
            Sigma.append((law.noise / (ridge + p) if plan.seeks else law.feature) * np.eye(D))
            mu0, w = np.vstack([mu0, np.zeros(D)]), np.vstack([w, np.full(D, ridge)])
            Sigma0.append(law.feature * np.eye(D))
        n = len(b)
        counts = np.append(slots.counts[:K], np.zeros(n - K))
        share = np.ones(n)
        for s in range(plan.n_inner):
            old, order = b.copy(), in_order(s % 2 == 1, n)
            if plan.seeks:
                sweep(o, b, odds, mu, Sigma, mu0, Sigma0, law.noise, order)
            else:
                share = b / (b + plan.ossify * counts)
                for k in order:
                    new, narrow = fit_feature(k, o, b, mu, mu0, Sigma0, law.noise)
                    mu[k] = share[k] * new + (1 - share[k]) * mu0[k]
                    Sigma[k] = share[k] * narrow + (1 - share[k]) * Sigma0[k]
                for k in order:
                    b[k] = fit_bit(k, o, b, odds, mu, Sigma, law.noise)
            if np.abs(b - old).max(initial=0.0) < plan.tol:
                break
        bound, error = row_elbo(o, b, odds[:n], mu, Sigma, mu0, Sigma0, law.noise)
        open_slots(slots, K, n)
        slots.mean[:n, seen] = mu
        if D:
            precision = np.array([np.diag(S) for S in Sigma]).reshape(n, D)
            after = np.maximum(law.noise / precision - ridge, 0.0)
            if W > 1:
                slots.rows[:n, seen] = after
            else:
                slots.rows[:n] = after[:, :1]
        if record is not None:
            keep_record(row, K, n, b, odds, slots, totals, record)
        K, n_notes = settle_row(b, q, K, n, before, slots, totals, law, plan.fade, notes, n_notes)
        for total, more in ((totals.error, error), (totals.n_cells, D), (totals.bound, bound)):
            total += more
    return len(X), K, n_notes


def log_new(square, D, law):
    """log p(residual | one new feature) - log p(residual | none)."""
    whole = law.noise + law.feature
    return -0.5 * D * np.log(whole / law.noise) - square / (2 * whole) + square / (2 * law.noise)


def _started(o, K, mu, Sigma, q, odds, law, plan):
    """Bits of the known features given these as they are, from the prior or from nothing, and searched for if what they
    leave looks new."""
    b, r = q[:K].copy(), o.copy()
    spread = np.array([np.trace(S) for S in Sigma]) / law.noise
    args = (mu**2).sum(axis=1), spread, law.noise, plan.n_inner, plan.tol, None, None
    start_bits(o, K, len(o), mu, r, b, q, odds, *args)
    if K > 1 and r @ r > law.noise * len(o):
        search_bits(o, K, len(o), mu, r, b, odds, *args)
    return b
