"""Twin of `thali.kernels.encode_rows`: a list of bit patterns, each weighed by its Gaussian density."""

import numpy as np
from scipy.special import log_expit, logsumexp
from scipy.stats import norm, poisson


def encode_rows(X, observed, features, gram_inv, log_odds, new_rate, noise_var, feature_var, width):
    n_rows, K = len(X), len(features)
    order = np.argsort(-(features**2).sum(axis=1))
    most_new = 1 + int(new_rate + 10 * np.sqrt(new_rate) + 10)
    presence, log_density = np.zeros((n_rows, K)), np.zeros(n_rows)
    for n in range(n_rows):

        def log_joint(z, n_new, seen=observed[n], x=X[n]):
            var = noise_var * (1 + z @ gram_inv @ z) + n_new * feature_var
            log_prior = log_expit(log_odds[z == 1]).sum() + log_expit(-log_odds[z == 0]).sum()
            return log_prior + norm.logpdf(x[seen], (z @ features)[seen], np.sqrt(var)).sum()

        patterns = [np.zeros(K)]
        for k in order:
            patterns += [z + (np.arange(K) == k) for z in patterns]
            if len(patterns) > width:
                patterns = sorted(patterns, key=lambda z: -log_joint(z, 0))[:width]
        scores = [
            logsumexp([poisson.logpmf(j, new_rate) + log_joint(z, j) for j in range(most_new if new_rate > 0 else 1)])
            for z in patterns
        ]
        log_density[n] = logsumexp(scores)
        presence[n] = np.exp(scores - log_density[n]) @ np.array(patterns)
    return presence, log_density
