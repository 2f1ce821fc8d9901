"""Moves of whole columns in many small independent problems: what tests of their ratios need.

X (R, N, D), Z (R, N, capacity) and K (R,) hold one problem each; Z and K change in place where a move is accepted.
"""

import math

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.column_moves import (
    pick_columns,
    propose_exclusive_or,
    propose_rebirth,
    propose_recoding,
    refresh_columns,
)


def _rebirth_replicates(X, Z, K, column_weight, noise_var, feature_var, n_old, n_new, rng):
    """One Metropolis step each with n_old -> n_new or, as often, its inverse. Returns the number of accepted ones."""
    capacity, n_dims = Z.shape[2], X.shape[2]
    n_accepted = 0
    for i in range(X.shape[0]):
        old, new = (n_old, n_new) if rng.random() < 0.5 else (n_new, n_old)
        if K[i] < old:
            continue
        gram, cross, proposal = np.zeros((capacity, capacity)), np.zeros((capacity, n_dims)), Z[i].copy()
        refresh_columns(X[i], proposal, 0, K[i], gram, cross)
        columns = pick_columns(K[i], old, rng)
        size, log_ratio = propose_rebirth(
            X[i], proposal, K[i], gram, cross, column_weight, noise_var, feature_var, columns, new, rng
        )
        if math.log(1.0 - rng.random()) < log_ratio:
            for n in range(Z.shape[1]):
                for k in range(capacity):
                    Z[i, n, k] = proposal[n, k]
            K[i] = size
            n_accepted += 1
    return n_accepted


def _recoding_replicates(X, Z, K, column_weight, noise_var, feature_var, table, rng):
    """One Metropolis step each with this re-encoding of a pair. Returns the number of accepted ones."""
    capacity, n_dims = Z.shape[2], X.shape[2]
    n_accepted = 0
    for i in range(X.shape[0]):
        if K[i] < 2:
            continue
        gram, cross, proposal = np.zeros((capacity, capacity)), np.zeros((capacity, n_dims)), Z[i].copy()
        refresh_columns(X[i], proposal, 0, K[i], gram, cross)
        pair = pick_columns(K[i], 2, rng)
        log_ratio = propose_recoding(
            X[i], proposal, K[i], gram, cross, column_weight, noise_var, feature_var, pair, table, rng
        )
        if math.log(1.0 - rng.random()) < log_ratio:
            for n in range(Z.shape[1]):
                for k in range(capacity):
                    Z[i, n, k] = proposal[n, k]
            n_accepted += 1
    return n_accepted


def _exclusive_or_replicates(X, Z, K, column_weight, noise_var, feature_var, rng):
    """One Metropolis step each with the bare exclusive or. Returns the number of accepted ones."""
    capacity, n_dims = Z.shape[2], X.shape[2]
    n_accepted = 0
    for i in range(X.shape[0]):
        if K[i] < 2:
            continue
        gram, cross, proposal = np.zeros((capacity, capacity)), np.zeros((capacity, n_dims)), Z[i].copy()
        refresh_columns(X[i], proposal, 0, K[i], gram, cross)
        pair = pick_columns(K[i], 2, rng)
        log_ratio = propose_exclusive_or(X[i], proposal, K[i], gram, cross, column_weight, noise_var, feature_var, pair)
        if math.log(1.0 - rng.random()) < log_ratio:
            for n in range(Z.shape[1]):
                for k in range(capacity):
                    Z[i, n, k] = proposal[n, k]
            n_accepted += 1
    return n_accepted


rebirth_replicates = jit(_rebirth_replicates)
recoding_replicates = jit(_recoding_replicates)
exclusive_or_replicates = jit(_exclusive_or_replicates)
