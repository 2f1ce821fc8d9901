"""Twin of `thali.kernels.bits.move_replicates`."""

import math

import numpy as np

from reference.bits.column_moves import (
    pick_columns,
    propose_exclusive_or,
    propose_rebirth,
    propose_recoding,
    refresh_columns,
)


def _metropolis(X, Z, K, rng, n_columns, propose):
    """propose(Z, gram, cross, columns) -> (K, log ratio)"""
    if n_columns > K:
        return Z, K, 0
    capacity = Z.shape[1]
    gram, cross, proposal = np.zeros((capacity, capacity)), np.zeros((capacity, X.shape[1])), Z.copy()
    refresh_columns(X, proposal, 0, K, gram, cross)
    size, log_ratio = propose(proposal, gram, cross, pick_columns(K, n_columns, rng))
    accepted = math.log(1.0 - rng.random()) < log_ratio
    return (proposal, size, 1) if accepted else (Z, K, 0)


def rebirth_replicates(X, Z, K, column_weight, noise_var, feature_var, n_old, n_new, rng):
    n_accepted = 0
    numbers = (column_weight, noise_var, feature_var)
    for i in range(len(X)):
        old, new = (n_old, n_new) if rng.random() < 0.5 else (n_new, n_old)

        def propose(Z, gram, cross, columns, i=i, new=new):
            return propose_rebirth(X[i], Z, K[i], gram, cross, *numbers, columns, new, rng)

        Z[i], K[i], accepted = _metropolis(X[i], Z[i], K[i], rng, old, propose)
        n_accepted += accepted
    return n_accepted


def recoding_replicates(X, Z, K, column_weight, noise_var, feature_var, table, rng):
    n_accepted = 0
    numbers = (column_weight, noise_var, feature_var)
    for i in range(len(X)):

        def propose(Z, gram, cross, pair, i=i):
            return K[i], propose_recoding(X[i], Z, K[i], gram, cross, *numbers, pair, table, rng)

        Z[i], K[i], accepted = _metropolis(X[i], Z[i], K[i], rng, 2, propose)
        n_accepted += accepted
    return n_accepted


def exclusive_or_replicates(X, Z, K, column_weight, noise_var, feature_var, rng):
    n_accepted = 0
    numbers = (column_weight, noise_var, feature_var)
    for i in range(len(X)):

        def propose(Z, gram, cross, pair, i=i):
            return K[i], propose_exclusive_or(X[i], Z, K[i], gram, cross, *numbers, pair)

        Z[i], K[i], accepted = _metropolis(X[i], Z[i], K[i], rng, 2, propose)
        n_accepted += accepted
    return n_accepted
