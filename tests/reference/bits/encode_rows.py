"""Twin of `thali.kernels.bits.encode_rows`: every bit pattern weighed by its Gaussian density."""

import itertools

import numpy as np
from scipy.special import log_expit, logsumexp
from scipy.stats import norm, poisson


def row_forms(x, observed, features, full_gram, b, gram):
    seen = features[:, observed]
    b[:] = seen @ x[observed]
    gram[:] = seen @ seen.T
    return int(observed.sum()), float(np.sum(x[observed] ** 2))


def log_row(q, s, n_dims, noise_var, feature_var, new_rate):
    j = np.arange(256 if new_rate > 0 else 1)
    v = noise_var * (1 + q) + j * feature_var
    return logsumexp(poisson.logpmf(j, new_rate) - 0.5 * n_dims * np.log(2 * np.pi * v) - 0.5 * s / v)


def log_joint(z, x, features, gram_inv, log_odds, new_rate, noise_var, feature_var):
    """Of the bits z and the observed cells x."""
    log_prior = log_expit(log_odds[z == 1]).sum() + log_expit(-log_odds[z == 0]).sum()
    n_new = np.arange(60 if new_rate > 0 else 1)
    var = noise_var * (1 + z @ gram_inv @ z) + n_new * feature_var
    densities = norm.logpdf(x[:, None], (z @ features)[:, None], np.sqrt(var)).sum(axis=0)
    return log_prior + logsumexp(poisson.logpmf(n_new, new_rate) + densities)


def encode_rows(X, observed, features, gram_inv, log_odds, new_rate, noise_var, feature_var):
    n_rows, K = len(X), len(features)
    patterns = np.array(list(itertools.product((0, 1), repeat=K)), dtype=float)
    presence, log_density = np.zeros((n_rows, K)), np.zeros(n_rows)
    for n, seen in enumerate(observed):
        rest = features[:, seen], gram_inv, log_odds, new_rate, noise_var, feature_var
        scores = np.array([log_joint(z, X[n, seen], *rest) for z in patterns])
        log_density[n] = logsumexp(scores)
        presence[n] = np.exp(scores - log_density[n]) @ patterns
    return presence, log_density
