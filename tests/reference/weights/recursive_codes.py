"""Twin of thali.kernels.weights.recursive_codes: each feature has a whole covariance; products are computed anew."""

import numpy as np
from scipy.special import expit, logsumexp, xlogy

from reference.bits.recursive_slots import CANDIDATES, NONE, lose_weight, open_slots, row_odds, settle_row


def products(mu, Sigma):
    """E[A_k . A_j]."""
    return mu @ mu.T + np.diag([np.trace(S) for S in Sigma])


def of_bits(b):
    """E[z_k z_j]."""
    return np.outer(b, b) - np.diag(b * b - b)


def weights_of(o, b, mu, Sigma, noise, Sigma_w):
    """q(w) at its optimum: (phi, Phi)."""
    Phi = np.linalg.inv(np.linalg.inv(Sigma_w) + of_bits(b) * products(mu, Sigma) / noise)
    return Phi @ (b * (mu @ o)) / noise, Phi


def bit_of(k, o, b, log_odds, mu, Sigma, phi, E2, noise):
    M, others = products(mu, Sigma), np.delete(np.arange(len(b)), k)
    cross = np.sum(b[others] * E2[k, others] * M[k, others])
    return expit(log_odds[k] - (-2 * phi[k] * mu[k] @ o + E2[k, k] * M[k, k] + 2 * cross) / (2 * noise))


def feature_of(k, o, b, mu, mu0, Sigma0, phi, E2, noise):
    others = np.delete(np.arange(len(b)), k)
    before = np.linalg.inv(Sigma0[k])
    Sigma = np.linalg.inv(before + b[k] * E2[k, k] / noise * np.eye(len(o)))
    rest = phi[k] * o - (b[others] * E2[k, others]) @ mu[others]
    return Sigma @ (before @ mu0[k] + b[k] / noise * rest), Sigma


def row_elbo(o, b, log_odds, mu, Sigma, mu0, Sigma0, phi, Phi, noise, Sigma_w):
    E2 = np.outer(phi, phi) + Phi
    error = o @ o - 2 * o @ ((b * phi) @ mu) + np.sum(of_bits(b) * E2 * products(mu, Sigma))
    total = -0.5 * len(o) * np.log(2 * np.pi * noise) - error / (2 * noise)
    q, inverse = expit(log_odds), np.linalg.inv(Sigma_w)
    total -= np.sum(xlogy(b, b / q) + xlogy(1 - b, (1 - b) / (1 - q)))
    total -= 0.5 * (np.trace(inverse @ Phi) + phi @ inverse @ phi - len(b) - np.linalg.slogdet(inverse @ Phi)[1])
    for k in range(len(b)):
        step, ratio = mu[k] - mu0[k], np.linalg.solve(Sigma0[k], Sigma[k])
        total -= 0.5 * (
            np.trace(ratio) - len(o) - np.linalg.slogdet(ratio)[1] + step @ np.linalg.solve(Sigma0[k], step)
        )
    return total, error


def sweep(o, b, log_odds, mu, Sigma, mu0, Sigma0, noise, Sigma_w, order):
    """Weights, bits, features; the arrays change in place. Gives (phi, Phi)."""
    phi, Phi = weights_of(o, b, mu, Sigma, noise, Sigma_w)
    E2 = np.outer(phi, phi) + Phi
    for k in order:
        b[k] = bit_of(k, o, b, log_odds, mu, Sigma, phi, E2, noise)
    for k in order:
        mu[k], Sigma[k] = feature_of(k, o, b, mu, mu0, Sigma0, phi, E2, noise)
    return phi, Phi


# ---- of the kernel's signatures


def in_order(backward, K):
    return range(K - 1, -1, -1) if backward else range(K)


def fit_codes(K, b, M, p, noise, code_var, phi, E2, root):
    Phi = np.linalg.inv(np.eye(K) / code_var + of_bits(b[:K]) * M[:K, :K] / noise)
    new = Phi @ (b[:K] * p[:K]) / noise
    change = np.abs(new - phi[:K]).max(initial=0.0)
    phi[:K], E2[:K, :K] = new, Phi + np.outer(new, new)
    return np.linalg.slogdet(Phi)[1], np.trace(Phi), change


def scan_code_bits(backward, K, b, log_odds, M, p, phi, E2, noise):
    old = b[:K].copy()
    for k in in_order(backward, K):
        others = np.delete(np.arange(K), k)
        cross = np.sum(b[others] * E2[k, others] * M[k, others])
        b[k] = expit(log_odds[k] + (phi[k] * p[k] - 0.5 * E2[k, k] * M[k, k] - cross) / noise)
    return np.abs(b[:K] - old).max(initial=0.0)


def scan_code_means(backward, K, n_dims, x, mean, old, weight, b, phi, E2, M, p, noise):
    for k in in_order(backward, K):
        Sigma0 = {k: np.diag(noise / np.broadcast_to(weight[k], n_dims))}
        mu, Sigma = feature_of(k, x[:n_dims], b[:K], mean[:K, :n_dims], old[:, :n_dims], Sigma0, phi, E2, noise)
        mean[k, :n_dims] = mu
        M[k, :K] = M[:K, k] = mean[:K, :n_dims] @ mu
        M[k, k] += np.trace(Sigma)
    p[:K] = mean[:K, :n_dims] @ x[:n_dims]


def code_row_bound(K, n_dims, x, mean, old, weight, b, log_odds, phi, E2, M, p, noise, code_var, log_det, trace):
    w = np.broadcast_to(weight[:K], (K, n_dims)) if weight.shape[1] == 1 else weight[:K, :n_dims]
    gain = (b[:K] * np.diag(E2)[:K])[:, None]
    Sigma0, Sigma = ([noise * np.diag(1 / row) for row in rows] for rows in (w, w + gain))
    Phi = E2[:K, :K] - np.outer(phi[:K], phi[:K])
    return row_elbo(
        x[:n_dims], b[:K], log_odds[:K], mean[:K, :n_dims], Sigma, old[:K, :n_dims], Sigma0, phi[:K], Phi, noise,
        code_var * np.eye(K),
    )  # fmt: skip


def log_new(square, n_dims, noise, feature, code_var):
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    var = noise + code_var * nodes**2 * feature
    return logsumexp(
        np.log(weights / weights.sum()) - 0.5 * n_dims * np.log(var / noise) + 0.5 * square * (1 / noise - 1 / var)
    )


def filter_codes(X, at, K, slots, totals, law, code_var, plan, notes):
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
        mu, Sigma, b, phi = mu0.copy(), [S.copy() for S in Sigma0], q[:K].copy(), np.zeros(K)
        for s in range(plan.n_inner):
            old, last = b.copy(), phi
            phi, Phi = weights_of(o, b, mu, Sigma, law.noise, code_var * np.eye(K))
            for k in in_order(s % 2 == 1, K):
                b[k] = bit_of(k, o, b, odds, mu, Sigma, phi, np.outer(phi, phi) + Phi, law.noise)
            if max(np.abs(b - old).max(initial=0), np.abs(phi - last).max(initial=0) / code_var**0.5) < plan.tol:
                break
        while len(b) < min(K + CANDIDATES, plan.most) and D:
            c, r = len(b), o - (b * phi) @ mu
            chance = expit(odds[c] + log_new(r @ r, D, law.noise, law.feature, code_var))
            if chance < NONE:
                break
            size = np.sqrt(r @ r / (D * law.feature))
            narrow = ridge + chance * size**2
            b, phi = np.append(b, chance), np.append(phi, size)
            mu, mu0 = np.vstack([mu, chance * size * r / narrow]), np.vstack([mu0, np.zeros(D)])
            Sigma.append(law.noise / narrow * np.eye(D))
            Sigma0.append(law.feature * np.eye(D))
        n = len(b)
        for s in range(plan.n_inner):
            old, last = b.copy(), phi
            phi, Phi = sweep(
                o, b, odds, mu, Sigma, mu0, Sigma0, law.noise, code_var * np.eye(n), in_order(s % 2 == 1, n)
            )
            if max(np.abs(b - old).max(initial=0), np.abs(phi - last).max(initial=0) / code_var**0.5) < plan.tol:
                break
        bound, error = row_elbo(o, b, odds[:n], mu, Sigma, mu0, Sigma0, phi, Phi, law.noise, code_var * np.eye(n))
        open_slots(slots, K, n)
        slots.mean[:n, seen] = mu
        gain = (b * np.diag(np.outer(phi, phi) + Phi))[:, None]
        if W > 1:
            slots.rows[:n, seen] += gain
        elif D:
            slots.rows[:n] += gain
        K, n_notes = settle_row(b, q, K, n, before, slots, totals, law, plan.fade, notes, n_notes)
        for total, more in ((totals.error, error), (totals.n_cells, D), (totals.bound, bound)):
            total += more
    return len(X), K, n_notes
