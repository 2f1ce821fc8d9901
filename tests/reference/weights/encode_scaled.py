"""Twin of thali.kernels.weights.encode_scaled: densities written out, residuals in full."""

import numpy as np
from scipy.special import expit, logsumexp

from reference.weights.slabs import draw_slab, log_slab
from thali.kernels.weights.slabs import slab_moments  # which has a twin by quadrature


def encode_scaled(
    x, seen, A, log_odds, noise_var, unknown_share, unknown_var, rate, precision, log_norm,
    n_scans, n_kept, n_paths, n_temps, rng,
):  # fmt: skip
    K = len(A)
    x, A = x[seen], A[:, seen]
    variances = noise_var + unknown_var
    kept, kept_var = np.zeros((n_kept, K)), np.zeros(n_kept)

    def log_likelihood(v, var):
        e = x - v @ A
        return -0.5 * len(x) * np.log(2 * np.pi * var) - 0.5 * e @ e / var

    def forms(v, k, var):
        e = x - v @ A + v[k] * A[k]
        return A[k] @ e / var, A[k] @ A[k] / var

    def pick(logs):
        return int(np.searchsorted(np.cumsum(np.exp(logs - logsumexp(logs))), rng.random(), side="right"))

    warm = n_scans // 5
    p_sum, first, second, visits = np.zeros(K), np.zeros(K), np.zeros(K), np.zeros(len(variances))
    v, node = np.zeros(K), 0
    for scan in range(n_scans):
        for k in range(K):
            pull, curve = forms(v, k, variances[node])
            p = expit(log_odds[k] + log_slab(pull, curve, rate, precision, log_norm))
            if scan >= warm:
                mean, moment = slab_moments(pull, curve, rate, precision)
                p_sum[k], first[k], second[k] = p_sum[k] + p, first[k] + p * mean, second[k] + p * moment
            v[k] = draw_slab(pull, curve, rate, precision, rng) if rng.random() < p else 0.0
        logs = np.log(unknown_share) + [log_likelihood(v, var) for var in variances]
        node = pick(logs)
        if scan >= warm:
            visits += np.exp(logs - logsumexp(logs)) if len(logs) > 64 else np.arange(len(logs)) == node
            i = (scan - warm) * n_kept // (n_scans - warm)
            kept[i], kept_var[i] = v, variances[node]
    n = n_scans - warm
    chance = np.clip(p_sum / n, 0.01, 0.99)
    total = np.maximum(p_sum, 1e-12)
    centre = first / total
    spread = np.maximum(second / total - centre**2, 1e-12)
    start = 0.95 * visits / n + 0.05 / len(visits) if len(visits) > 64 else (visits + 1) / (n + len(visits))

    def log_first(v, node):
        on = np.log(chance) - 0.5 * np.log(2 * np.pi * spread) - 0.5 * (v - centre) ** 2 / spread
        return np.log(start[node]) + np.where(v != 0, on, np.log1p(-chance)).sum()

    def log_joint(v, node):
        on = log_odds - rate * np.abs(v) - 0.5 * precision * v * v - log_norm
        prior = np.where(v != 0, on, 0.0).sum() - np.logaddexp(0.0, log_odds).sum()
        return prior + np.log(unknown_share[node]) + log_likelihood(v, variances[node])

    log_weights = []
    for _ in range(n_paths):
        for k in range(K):
            is_on = rng.random() < chance[k]
            v[k] = centre[k] + np.sqrt(spread[k]) * rng.standard_normal() if is_on else 0.0
        node = pick(np.log(start))
        log_weight = (log_joint(v, node) - log_first(v, node)) / n_temps
        for t in range(1, n_temps):
            heat = t / n_temps
            for k in range(K):
                pull, curve = forms(v, k, variances[node])
                curve = heat * (curve + precision) + (1 - heat) / spread[k]
                pull = heat * pull + (1 - heat) * centre[k] / spread[k]
                norm = np.log(chance[k] / (1 - chance[k])) - 0.5 * np.log(2 * np.pi * spread[k])
                norm -= 0.5 * centre[k] ** 2 / spread[k]
                odds = heat * (log_odds[k] - log_norm) + (1 - heat) * norm
                p = expit(odds + log_slab(pull, curve, heat * rate, 0.0, 0.0))
                v[k] = draw_slab(pull, curve, heat * rate, 0.0, rng) if rng.random() < p else 0.0
            likelihood = np.log(unknown_share) + [log_likelihood(v, var) for var in variances]
            node = pick(heat * likelihood + (1 - heat) * np.log(start))
            log_weight += (log_joint(v, node) - log_first(v, node)) / n_temps
        log_weights.append(log_weight)
    return p_sum / n, first / n, kept, kept_var, logsumexp(log_weights) - np.log(n_paths)
