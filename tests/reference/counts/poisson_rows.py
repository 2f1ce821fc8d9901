"""Readable twins of thali.kernels.counts.poisson_rows: every count shared anew whenever a factor has changed."""

import numpy as np
from scipy import special

EDGE, TRIALS = 1e-12, 3


def digamma(x):
    return special.digamma(x)


def chance(log_odds):
    return np.clip(special.expit(log_odds), EDGE, 1 - EDGE)


def log_code(shape, on, off, z_prob, log_leak):
    return special.digamma(shape) - z_prob * np.log(on) - (1 - z_prob) * np.log(off) + (1 - z_prob) * log_leak


def gather(cells, loadings, own):
    own[:, : len(cells)] = loadings[cells].T


def share(values, own, code, K, total, ratio):
    n = len(values)
    total[:n] = code[:K] @ own[:K, :n]
    ratio[:n] = values / total[:n]


def change(values, own, code, K, k, new, total, ratio):
    code[k] = new
    share(values, own, code, K, total, ratio)


def seen_exposure(exposure, mean, hidden, k):
    return max(exposure[k] - mean[hidden, k].sum(), 0.0)


def _rows(start, dims, counts, missing_start, missing_dim, loadings, mean, exposure, n_rows):
    """(row, its counts, loadings of their dims (K, n), what it sees of each feature)."""
    for n in range(n_rows):
        some = slice(start[n], start[n + 1])
        hidden = missing_dim[missing_start[n] : missing_start[n + 1]]
        seen = exposure - mean[hidden].sum(axis=0) if len(hidden) else exposure
        yield n, counts[some], loadings[dims[some]].T, np.maximum(seen, 0.0)


def _allocated(values, own, code):
    """(K,) expected counts of each feature."""
    return code * (own @ (values / (code @ own)))


def joint_rows(
    start, dims, counts, missing_start, missing_dim, loadings, mean, exposure, log_odds, shape, rate, leak,
    n_passes, z_prob, w_shape, w_on, w_off,
):  # fmt: skip
    for n, values, own, seen in _rows(
        start, dims, counts, missing_start, missing_dim, loadings, mean, exposure, len(z_prob)
    ):
        for _ in range(n_passes):
            for k in range(z_prob.shape[1]):
                code = np.exp(log_code(w_shape[n], w_on[n], w_off[n], z_prob[n], np.log(leak)))
                c = _allocated(values, own, code)[k]
                on, off = rate + seen[k], rate + leak * seen[k]
                evidence = -(shape + c) * np.log(on) - c * np.log(leak) + (shape + c) * np.log(off)
                z_prob[n, k] = chance(log_odds[k] + evidence)
                w_shape[n, k], w_on[n, k], w_off[n, k] = shape + c, on, off


def independent_rows(
    start, dims, counts, missing_start, missing_dim, loadings, mean, exposure, log_odds, shape, rate, leak,
    n_passes, z_prob, w_shape, w_on, w_off,
):  # fmt: skip
    for n, values, own, seen in _rows(
        start, dims, counts, missing_start, missing_dim, loadings, mean, exposure, len(z_prob)
    ):
        for _ in range(n_passes):
            code = np.exp(log_code(w_shape[n], w_on[n], w_off[n], z_prob[n], np.log(leak)))
            w_shape[n] = shape + _allocated(values, own, code)
            w_on[n] = w_off[n] = rate + (z_prob[n] + (1 - z_prob[n]) * leak) * seen
            for k in range(z_prob.shape[1]):
                code = np.exp(log_code(w_shape[n], w_on[n], w_off[n], z_prob[n], np.log(leak)))
                c = _allocated(values, own, code)[k]
                expected = w_shape[n, k] / w_on[n, k]
                z_prob[n, k] = chance(log_odds[k] - (1 - leak) * expected * seen[k] - c * np.log(leak))


def hard_rows(
    start, dims, counts, missing_start, missing_dim, loadings, mean, exposure, log_odds, shape, rate,
    n_passes, z_prob, w_shape, w_on,
):  # fmt: skip
    def divergence(a, on):
        """Kullback-Leibler divergence of Gamma(a, on) from the prior."""
        return (
            (a - shape) * special.digamma(a) - special.gammaln(a) + special.gammaln(shape)
            + shape * np.log(on / rate) + a * (rate - on) / on
        )  # fmt: skip

    for n, values, own, seen in _rows(
        start, dims, counts, missing_start, missing_dim, loadings, mean, exposure, len(z_prob)
    ):
        for _ in range(n_passes):
            for k in range(z_prob.shape[1]):
                code = z_prob[n] * np.exp(special.digamma(w_shape[n])) / w_on[n]
                others = np.delete(code, k) @ np.delete(own, k, axis=0)
                on, was_on = rate + seen[k], z_prob[n, k] == 1
                z_prob[n, k] = 0
                a = w_shape[n, k] if was_on else shape + values.sum() / (z_prob[n].sum() + was_on + 1)
                for _ in range(TRIALS):
                    part = np.exp(special.digamma(a)) / on * own[k]
                    a = shape + np.sum(values * part / (others + part))
                part = np.exp(special.digamma(a)) / on * own[k]
                with np.errstate(divide="ignore"):
                    gain = np.sum(values * (np.log(others + part) - np.log(others)))
                gain += log_odds[k] - a / on * seen[k] - divergence(a, on)
                z_prob[n, k] = float(gain > 0)
                w_shape[n, k], w_on[n, k] = (a, on) if gain > 0 else (shape, rate)


def allocate(start, dims, counts, loadings, code, allocated):
    rows = np.repeat(np.arange(len(code)), np.diff(start))
    rates = np.sum(code[rows] * loadings[dims], axis=1)
    if (rates <= 0).any():
        return -np.inf
    np.add.at(allocated, dims, (counts / rates)[:, None] * code[rows])
    return float(counts @ np.log(rates))
