"""New rows that own few loadings, exactly: bits and variances are listed, loadings integrated out.

With A the factors in units of their loadings, x | bits, v ~ N(0, v I + A_z' A_z); the eigenvalues of A_z A_z' give the
density for all v at once, and serve all rows that see the same cells.
"""

import itertools
import math

import numpy as np
from scipy.special import logsumexp

from thali.core.codebook import Encoded
from thali.rng import make_generator

Array = np.ndarray

MOST = 8  # factors whose bits are listed
_KEPT = 16  # draws of a row's codes
_LOG_2PI = math.log(2.0 * math.pi)


def encode_listed(Y: Array, seen: Array, A: Array, log_odds: Array, shares: Array, variances: Array) -> Encoded:
    """Rows Y (zero where not seen) given A (n_features, n_dims); `variances` have the probabilities `shares`."""
    K = len(A)
    bits = np.array(list(itertools.product((0.0, 1.0), repeat=K))).reshape(2**K, K)
    log_prior = (bits @ log_odds - np.logaddexp(0.0, log_odds).sum())[:, None] + np.log(shares)
    presence, codes, log_density = np.zeros((len(Y), K)), np.zeros((len(Y), K)), np.zeros(len(Y))
    draws, noise = np.zeros((len(Y), _KEPT, K)), np.zeros((len(Y), _KEPT))
    patterns, which = np.unique(seen, axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        B = A[:, pattern]
        gram = (B @ B.T) * bits[:, :, None] * bits[:, None, :]
        size, U = np.linalg.eigh(gram)  # (2^K, K), (2^K, K, K)
        size = np.maximum(size, 0.0)
        wide = variances[:, None] + size[:, None, :]  # (2^K, n_variances, K)
        log_norm = pattern.sum() * (_LOG_2PI + np.log(variances)) + np.log(wide / variances[:, None]).sum(axis=2)
        for n in np.flatnonzero(which.ravel() == i):
            y = Y[n, pattern]
            along = np.einsum("zkj,zk->zj", U, bits * (B @ y))
            # eq: NSFA.listed-row
            square = (y @ y - np.einsum("zj,zvj->zv", along**2, 1.0 / wide)) / variances
            log_joint = log_prior - 0.5 * (log_norm + square)
            log_density[n] = logsumexp(log_joint)
            share = np.exp(log_joint - log_density[n])
            shrunk = along * np.einsum("zv,zvj->zj", share, 1.0 / wide)
            presence[n], codes[n] = share.sum(axis=1) @ bits, np.einsum("zkj,zj,zk->k", U, shrunk, bits)
            draws[n], noise[n] = _draws(share, bits, U, size, along, variances)
    return Encoded(presence, codes, log_density, draws, noise)


def _draws(share: Array, bits: Array, U: Array, size: Array, along: Array, variances: Array) -> tuple[Array, Array]:
    """Codes and variances from their posterior, by the same random numbers for every row."""
    rng = make_generator(0)
    evenly = (rng.permutation(_KEPT) + 0.5) / _KEPT
    up_to = np.cumsum(share)
    z, v = np.unravel_index(np.minimum(np.searchsorted(up_to, evenly * up_to[-1]), share.size - 1), share.shape)
    wide = variances[v][:, None] + size[z]
    values = along[z] / wide + np.sqrt(variances[v][:, None] / wide) * rng.standard_normal(size[z].shape)
    return bits[z] * np.einsum("ikj,ij->ik", U[z], values), variances[v]
