"""Twin of thali.kernels.groups.group_draws: every urn in full, from the groups of all other rows."""

import numpy as np
from scipy.special import gammaln


def log_urns(p, c1, groups, z, n_groups):
    """log p(bits of each feature | sizes p, groups), groups (N, K)."""
    total = np.zeros(len(p))
    for m in range(n_groups):
        seen, held = (groups == m).sum(axis=0), ((groups == m) & (z > 0)).sum(axis=0)
        a, b = c1 * p, c1 * (1 - p)
        total += gammaln(a + held) - gammaln(a) + gammaln(b + seen - held) - gammaln(b)
        total += gammaln(c1) - gammaln(c1 + seen)
    return total


def expected_found(log_none, node_p, node_weights, count, c1):
    more = np.exp(log_none) * (c1 * (1 - node_p) + count) / (c1 + count)
    return float(node_weights @ ((1 - more) / node_p))


def draw_place(weights, n, u):
    ends = np.cumsum(weights[:n])
    return int(min(np.searchsorted(ends, u, side="right"), np.flatnonzero(weights[:n])[-1]))


def row_groups(
    Z, groups, seen, held, p, c1, starts, targets, log_probs, mass, log_none, node_p, node_weights, rng
):  # fmt: skip
    K, M, nobody = Z.shape[1], len(seen), np.zeros((len(Z), len(node_p)))
    for n in range(len(Z)):
        some = slice(starts[n], starts[n + 1])
        score = []
        for m in targets[some]:
            groups[n] = m
            others, alone = np.delete(groups, n), np.delete(nobody, n, axis=0)
            none = log_urns(node_p, c1, np.repeat(others[:, None], len(node_p), axis=1), alone, M)
            found = expected_found(none, node_p, node_weights, (others == m).sum(), c1)
            score.append(log_urns(p, c1, np.repeat(groups[:, None], K, axis=1), Z, M).sum() - mass * found)
        groups[n] = targets[some][_place(np.array(score) + log_probs[some], rng)]
    seen[:] = np.bincount(groups, minlength=M)
    for k in range(K):
        held[k] = np.bincount(groups, Z[:, k], minlength=M)
    log_none[:] = log_urns(node_p, c1, np.repeat(groups[:, None], len(node_p), axis=1), nobody, M)


def feature_groups(Z, groups, seen, held, p, c1, starts, targets, probs, rng):
    for k in range(Z.shape[1]):
        for n in range(len(Z)):
            some = slice(starts[n], starts[n + 1])
            score = []
            for m in targets[some]:
                groups[n, k] = m
                score.append(log_urns(p[k : k + 1], c1, groups[:, k : k + 1], Z[:, k : k + 1], seen.shape[1])[0])
            groups[n, k] = targets[some][_place(np.array(score) + np.log(probs[some]), rng)]
        seen[k] = np.bincount(groups[:, k], minlength=seen.shape[1])
        held[k] = np.bincount(groups[:, k], Z[:, k], minlength=seen.shape[1])


def _place(score, rng):
    chances = np.exp(score - score.max())
    return draw_place(chances, len(chances), rng.random() * chances.sum())
