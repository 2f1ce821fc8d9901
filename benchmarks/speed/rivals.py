"""The same Gibbs sweep in NumPy, as it is often written: what the compiled sweep is measured against."""

import math

import numpy as np

from benchmarks.workloads import Workload

MASS = 1.0


def log_marginal(X: np.ndarray, square: float, Z: np.ndarray, noise_var: float, feature_var: float) -> float:
    """log p(X | Z) with the features integrated out, up to a constant, from scratch: O(N K (K + D))."""
    n_dims, K = X.shape[1], Z.shape[1]
    M = Z.T @ Z + noise_var / feature_var * np.eye(K)
    cross = Z.T @ X
    explained = np.sum(cross * np.linalg.solve(M, cross))
    log_det = np.linalg.slogdet(M)[1] - K * math.log(noise_var / feature_var)
    return -0.5 * n_dims * log_det - 0.5 * (square - explained) / noise_var


def poisson_weights(rate: float, log_likelihood: np.ndarray) -> np.ndarray:
    j = np.arange(len(log_likelihood))
    log_p = log_likelihood + j * math.log(rate) - np.array([math.lgamma(i + 1) for i in j])
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def draw_bit(delta: float, u: float) -> bool:
    return u * (1.0 + math.exp(min(-delta, 700.0))) < 1.0


MOST_NEW = 5  # the two samplers below cut the number of new features of a row off here


def naive_rows(workload: Workload, n_rows: int, rng: np.random.Generator) -> None:
    """Sample the first `n_rows` rows; the full likelihood for each candidate value of each bit."""
    X, _, noise_var, feature_var = workload[1:]
    Z = workload.Z.astype(float)
    N = len(X)
    square = float(np.sum(X * X))
    for n in range(n_rows):
        others = Z.sum(axis=0) - Z[n]
        for k in rng.permutation(np.flatnonzero(others > 0)):
            value = np.empty(2)
            for bit in (0, 1):
                Z[n, k] = bit
                value[bit] = log_marginal(X, square, Z, noise_var, feature_var)
            prior = math.log(others[k]) - math.log(N - others[k])
            Z[n, k] = draw_bit(value[1] - value[0] + prior, rng.random())
        Z = Z[:, others > 0]
        candidates = []
        for j in range(MOST_NEW + 1):
            new = np.zeros((N, j))
            new[n] = 1.0
            candidates.append(np.hstack([Z, new]))
        value = np.array([log_marginal(X, square, Z_new, noise_var, feature_var) for Z_new in candidates])
        Z = candidates[rng.choice(MOST_NEW + 1, p=poisson_weights(MASS / N, value))]


def rank_one_rows(workload: Workload, n_rows: int, rng: np.random.Generator) -> None:
    """Sample the first `n_rows` rows in NumPy: rank-one updates of P and Z'X per row, O(K^2 + K D) per bit."""
    X, _, noise_var, feature_var = workload[1:]
    Z = workload.Z.astype(float)
    N, D = X.shape
    ridge = noise_var / feature_var
    P = np.linalg.inv(Z.T @ Z + ridge * np.eye(Z.shape[1]))
    cross = Z.T @ X
    counts = Z.sum(axis=0)

    def log_density(x: np.ndarray, z: np.ndarray, mu: np.ndarray, own_var: float) -> float:
        v = 1.0 + own_var + z @ P @ z
        e = x - z @ mu
        return -0.5 * D * math.log(v) - 0.5 / noise_var * (e @ e) / v

    for n in range(n_rows):
        x, z = X[n], Z[n].copy()
        p = P @ z
        P = P + np.outer(p, p / (1.0 - z @ p))
        cross = cross - np.outer(z, x)
        counts = counts - z
        kept = counts > 0
        own_var = np.sum(~kept) / ridge
        if not kept.all():
            P, cross, counts, z, Z = P[np.ix_(kept, kept)], cross[kept], counts[kept], z[kept], Z[:, kept]
        mu = P @ cross
        for k in rng.permutation(len(z)):
            value = np.empty(2)
            for bit in (0, 1):
                z[k] = bit
                value[bit] = log_density(x, z, mu, own_var)
            prior = math.log(counts[k]) - math.log(N - counts[k])
            z[k] = draw_bit(value[1] - value[0] + prior, rng.random())
        value = np.array([log_density(x, z, mu, j / ridge) for j in range(MOST_NEW + 1)])
        n_new = rng.choice(MOST_NEW + 1, p=poisson_weights(MASS / N, value))
        if n_new > 0:
            K = len(z)
            P = np.block([[P, np.zeros((K, n_new))], [np.zeros((n_new, K)), np.eye(n_new) / ridge]])
            cross = np.vstack([cross, np.zeros((n_new, D))])
            z = np.append(z, np.ones(n_new))
            counts = np.append(counts, np.zeros(n_new))
            Z = np.hstack([Z, np.zeros((N, n_new))])
        p = P @ z
        P = P - np.outer(p, p / (1.0 + z @ p))
        cross = cross + np.outer(z, x)
        counts = counts + z
        Z[n] = z


def uncollapsed_rows(workload: Workload, n_rows: int, rng: np.random.Generator) -> None:
    """Sample the first `n_rows` rows in NumPy given features drawn before: a residual of D numbers per bit."""
    X, _, noise_var, feature_var = workload[1:]
    Z = workload.Z.astype(float)
    N, D = X.shape
    P = np.linalg.inv(Z.T @ Z + noise_var / feature_var * np.eye(Z.shape[1]))
    A = P @ (Z.T @ X) + np.sqrt(noise_var) * np.linalg.cholesky(P) @ rng.standard_normal((Z.shape[1], D))
    counts = Z.sum(axis=0)
    for n in range(n_rows):
        kept = counts > Z[n]
        own_var = np.sum(~kept) * feature_var
        if not kept.all():
            Z, A, counts = Z[:, kept], A[kept], counts[kept]
        counts = counts - Z[n]
        for k in rng.permutation(len(counts)):
            value = np.empty(2)
            for bit in (0, 1):
                Z[n, k] = bit
                e = X[n] - Z[n] @ A
                value[bit] = -0.5 * (e @ e) / (noise_var + own_var)
            prior = math.log(counts[k]) - math.log(N - counts[k])
            Z[n, k] = draw_bit(value[1] - value[0] + prior, rng.random())
        e = X[n] - Z[n] @ A
        var = noise_var + feature_var * np.arange(MOST_NEW + 1)
        n_new = rng.choice(MOST_NEW + 1, p=poisson_weights(MASS / N, -0.5 * D * np.log(var) - 0.5 * (e @ e) / var))
        if n_new > 0:
            M = np.ones((n_new, n_new)) + noise_var / feature_var * np.eye(n_new)
            spread = np.linalg.cholesky(noise_var * np.linalg.inv(M))
            A = np.vstack([A, np.linalg.solve(M, np.tile(e, (n_new, 1))) + spread @ rng.standard_normal((n_new, D))])
            Z = np.hstack([Z, np.zeros((N, n_new))])
            Z[n, -n_new:] = 1.0
            counts = np.append(counts, np.zeros(n_new))
        counts = counts + Z[n]
