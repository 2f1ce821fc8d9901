"""Gibbs sweeps over the groups that rows follow, the weights of features in groups integrated out (an urn for each).

Feature k has size p_k in (0, 1) and in a group of m rows, h of which have it, one more row has it with probability
(c1 p_k + h) / (c1 + m). Row n follows group m with a prior probability that is given row by row: targets and log_probs
(or probs) at starts[n], ..., starts[n+1] - 1.
"""

import math

import numpy as np

from thali.kernels._jit import jit


def _expected_found(log_none, node_p, node_weights, count, c1):
    """Expected number of features that some row has, per unit of mass, with one more row in a group of `count` rows.

    log_none (J) is the log probability that no other row has a feature of the size of each node.
    """
    total = 0.0
    for j in range(node_p.size):
        log_all = log_none[j] + math.log1p(-c1 * node_p[j] / (c1 + count))
        # eq: own.dhbp-void
        total -= node_weights[j] * math.expm1(log_all) / node_p[j]
    return total


def _row_groups(
    Z, groups, seen, held, p, c1, starts, targets, log_probs, mass, log_none, node_p, node_weights, rng
):  # fmt: skip
    """Draw the group of each row, one for all its features, given those of all other rows; the arrays change in place.

    Z (N, K), groups (N), seen (M) rows of each group, held (K, M) those of them that have a feature, p (K);
    node_p and node_weights (J) are those of a quadrature for Beta(1, c0). Features that no row has must stay so, which
    is more or less probable by how many rows each group has.
    Cost: of a row O(K) for each group it may follow, and O(J) for each different size of these.
    """
    n_rows, K = Z.shape
    most = 0
    for n in range(n_rows):
        most = max(most, starts[n + 1] - starts[n])
    log_weights = np.empty(most)
    found = np.empty(n_rows)
    known = np.full(n_rows, -1)
    for n in range(n_rows):
        old = groups[n]
        seen[old] -= 1.0
        for k in range(K):
            held[k, old] -= Z[n, k]
        for j in range(node_p.size):
            log_none[j] -= math.log1p(-c1 * node_p[j] / (c1 + seen[old]))
        first = starts[n]
        n_targets = starts[n + 1] - first
        top = -math.inf
        for t in range(n_targets):
            m = targets[first + t]
            total = log_probs[first + t] - K * math.log(c1 + seen[m])
            for k in range(K):
                if Z[n, k]:
                    total += math.log(c1 * p[k] + held[k, m])
                else:
                    total += math.log(c1 * (1.0 - p[k]) + (seen[m] - held[k, m]))
            count = int(seen[m])
            if known[count] != n:
                known[count] = n
                found[count] = expected_found(log_none, node_p, node_weights, seen[m], c1)
            # eq: own.dhbp-row-group
            log_weights[t] = total - mass * found[count]
            top = max(top, log_weights[t])
        total = 0.0
        for t in range(n_targets):
            log_weights[t] = math.exp(log_weights[t] - top)
            total += log_weights[t]
        new = targets[first + draw_place(log_weights, n_targets, rng.random() * total)]
        groups[n] = new
        for j in range(node_p.size):
            log_none[j] += math.log1p(-c1 * node_p[j] / (c1 + seen[new]))
        seen[new] += 1.0
        for k in range(K):
            held[k, new] += Z[n, k]


def _feature_groups(Z, groups, seen, held, p, c1, starts, targets, probs, rng):
    """Draw the group of each row for each feature given those of all other rows; the arrays change in place.

    Z and groups (N, K), seen and held (K, M) as in `row_groups`, by feature. Cost O(K) for each row and group that it
    may follow.
    """
    n_rows, K = Z.shape
    most = 0
    for n in range(n_rows):
        most = max(most, starts[n + 1] - starts[n])
    weights = np.empty(most)
    for k in range(K):
        for n in range(n_rows):
            old = groups[n, k]
            seen[k, old] -= 1.0
            held[k, old] -= Z[n, k]
            first = starts[n]
            n_targets = starts[n + 1] - first
            total = 0.0
            for t in range(n_targets):
                m = targets[first + t]
                if Z[n, k]:
                    part = c1 * p[k] + held[k, m]
                else:
                    part = c1 * (1.0 - p[k]) + (seen[k, m] - held[k, m])
                # eq: own.dhbp-feature-group
                weights[t] = probs[first + t] * part / (c1 + seen[k, m])
                total += weights[t]
            new = targets[first + draw_place(weights, n_targets, rng.random() * total)]
            groups[n, k] = new
            seen[k, new] += 1.0
            held[k, new] += Z[n, k]


def _draw_place(weights, n, u):
    """The place in which a running sum of weights passes u; of places with a positive weight."""
    last = 0
    for t in range(n):
        if weights[t] > 0.0:
            last = t
            if u < weights[t]:
                return t
            u -= weights[t]
    return last


expected_found = jit(_expected_found)
draw_place = jit(_draw_place)
row_groups = jit(_row_groups)
feature_groups = jit(_feature_groups)
