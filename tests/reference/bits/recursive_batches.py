"""Twin of thali.kernels.bits.recursive_batches: whole covariances, residuals anew, rows in plain loops."""

import numpy as np
from scipy.special import expit, xlogy

from reference.bits import recursive_rows as rows_twin
from reference.bits.recursive_slots import CANDIDATES, existence, fade_out
from thali.kernels.bits.recursive_slots import Record


def batch_elbo(X, bits, log_odds, mu, Sigma, mu0, Sigma0, noise):
    """The bound of a batch; rows may lack cells."""
    total = 0.0
    for x, b, odds in zip(X, bits, log_odds, strict=True):
        seen, q = ~np.isnan(x), expit(odds)
        second = np.array([np.trace(S[np.ix_(seen, seen)]) + a[seen] @ a[seen] for S, a in zip(Sigma, mu, strict=True)])
        m = b @ mu[:, seen]
        error = x[seen] @ x[seen] - 2 * x[seen] @ m + b @ second + m @ m - b**2 @ (mu[:, seen] ** 2).sum(axis=1)
        total -= 0.5 * seen.sum() * np.log(2 * np.pi * noise) + error / (2 * noise)
        total -= np.sum(xlogy(b, b / q) + xlogy(1 - b, (1 - b) / (1 - q)))
    for k in range(len(mu)):
        inverse, step = np.linalg.inv(Sigma0[k]), mu[k] - mu0[k]
        ratio = inverse @ Sigma[k]
        total -= 0.5 * (np.trace(ratio) - X.shape[1] - np.linalg.slogdet(ratio)[1] + step @ inverse @ step)
    return total


def scan_rows(backward, K, mean, seen, complete, R, bits, log_odds, square, spread, variance, noise):
    old = bits.copy()
    for i in range(len(R)):
        cells = np.flatnonzero(seen[i])
        r, mu = R[i, cells], mean[:, cells]
        rows_twin.scan_bits(
            backward, K, len(cells), mu, r, bits[i], log_odds[i], (mu**2).sum(axis=1), variance[:, cells].sum(axis=1),
            noise,
        )  # fmt: skip
        R[i, cells] = r
    return np.abs(bits - old).max(initial=0.0)


def scan_features(backward, K, mean, old, weight, seen, share, R, bits, square, spread, variance):
    X = R + bits @ mean
    for k in rows_twin.in_order(backward, K):
        rest = X - np.delete(bits, k, axis=1) @ np.delete(mean, k, axis=0)
        p = (share * bits[:, k])[:, None] * seen
        variance[k] = 1 / (weight[k] + p.sum(axis=0))
        mean[k] = variance[k] * (weight[k] * old[k] + (p * rest).sum(axis=0))
    square[:], spread[:] = (mean**2).sum(axis=1), variance.sum(axis=1)
    R[:] = np.where(seen, X - bits @ mean, 0.0)


def batch_bound(K, mean, old, weight, seen, share, R, bits, log_odds, variance, noise):
    X = np.where(seen, R + bits @ mean, np.nan)
    Sigma, Sigma0 = ([noise * np.diag(v) for v in rows] for rows in (variance, 1 / weight))
    left = np.where(seen, R**2 + bits @ (noise * variance + mean**2) - bits**2 @ mean**2, 0.0)
    bound = batch_elbo(X, bits, log_odds, mean, Sigma, old, Sigma0, noise)
    return bound, share @ left.sum(axis=1), share @ seen.sum(axis=1)


def columns_of(slots, K, record, bits, log_odds):
    for i, known in enumerate(record.n_known):
        place = {int(number): j for j, number in enumerate(record.number[i]) if number >= 0}
        new = [j for j in range(known, known + CANDIDATES) if record.number[i, j] < 0] or [known + CANDIDATES - 1]
        names = [int(number) for number in slots.number[:K]]
        unborn = [name for name in names if name not in place]
        for k, name in enumerate(names):
            if name in place:
                bits[i, k], at = record.bits[i, place[name]], place[name]
            else:
                bits[i, k], at = 0.0, new[min(unborn.index(name), len(new) - 1)]
            log_odds[i, k] = record.log_odds[i, at]


def filter_batch(X, K, slots, totals, law, plan, notes):
    n, D = X.shape
    W, ridge, fresh = slots.rows.shape[1], law.noise / law.feature, int(totals.n_born[0])
    start = {int(slots.number[k]): k for k in range(K)}
    before = type(slots)(*(part.copy() for part in slots))
    totals_before = type(totals)(*(part.copy() for part in totals))
    record = Record(*(np.zeros((n, len(slots.mean)), kind) for kind in (float, float, int)), np.zeros(n, int))
    record.number[:] = -1
    K, n_notes = rows_twin.filter_recorded(X, 0, K, slots, totals, law, plan, notes, record)[1:]
    names = [int(number) for number in slots.number[:K]]
    b, L = np.zeros((n, K)), np.zeros((n, K))
    columns_of(slots, K, record, b, L)
    share = plan.keep ** np.arange(n - 1, -1, -1.0)
    keep = plan.keep**n
    mean, old, weight = slots.mean[:K].copy(), np.zeros((K, D)), np.full((K, D), ridge)
    for k, name in enumerate(names):
        if name < fresh:
            rows = np.broadcast_to(before.rows[start[name]], D)
            weight[k] = ridge + keep * rows
            old[k] = before.mean[start[name]] * keep * (ridge + rows) / weight[k]
    seen = ~np.isnan(X)
    R = np.where(seen, X - b @ mean, 0.0)
    square, spread, variance = np.zeros(K), np.zeros(K), np.zeros((K, D))
    scan_features(False, K, mean, old, weight, seen, share, R, b, square, spread, variance)
    for s in range(plan.n_inner):
        back = s % 2 == 1
        change = scan_rows(back, K, mean, seen, seen.all(axis=1), R, b, L, square, spread, variance, law.noise)
        scan_features(back, K, mean, old, weight, seen, share, R, b, square, spread, variance)
        if change < plan.tol:
            break
    bound, error, cells = batch_bound(K, mean, old, weight, seen, share, R, b, L, variance, law.noise)
    totals.error[0] = keep * totals_before.error[0] + error
    totals.n_cells[0] = keep * totals_before.n_cells[0] + cells
    totals.bound[0] = totals_before.bound[0] + bound
    both = (b * share[:, None]).T @ b
    np.fill_diagonal(both, share @ b)
    for k, name in enumerate(names):
        j = start.get(name)
        count, exists = (0.0, 0.0) if j is None else (before.counts[j], before.exists[j])
        weight_now = totals_before.weight[0]
        for i in range(n):
            count, exists, weight_now = plan.keep * count, plan.keep * exists, plan.keep * weight_now
            c, q = law.concentration + weight_now, expit(L[i, k])
            exists = existence(law, exists, count, b[i, k], q, c)
            count += b[i, k]
            weight_now += 1
        slots.counts[k], slots.exists[k] = count, exists
        for m, other in enumerate(names):
            i = start.get(other)
            slots.together[k, m] = both[k, m] + (0.0 if j is None or i is None else keep * before.together[j, i])
    slots.mean[:K] = mean
    slots.rows[:K] = np.maximum(1 / variance - ridge, 0.0)[:, :W]
    return fade_out(K, slots, law, plan.fade, totals.n_rows[0] - 1, notes, n_notes)
