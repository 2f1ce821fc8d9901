"""Many small problems of sparse factor analysis with classes of owners at once, for tests of joint distributions."""

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.weights.class_rows import draw_classes, draw_loadings, draw_preferences
from thali.kernels.weights.sparse_replicates import draw_factors


def _class_replicates(Y, missing, G, precisions, noise_vars, classes, preferences, loading_law, noise_law, rng):
    """Factors, loadings, classes, preferences, then precisions and noise, of each replicate.

    Y (R, N, C) is zero at missing cells (N, C), G (R, N, K), precisions (R, K), noise_vars (R, N), classes (R, N),
    preferences (R, L, K). Precisions are Gamma(shape, rate), noise variances InverseGamma(shape, rate), a priori.
    """
    n_replicates, n_rows, n_cells = Y.shape
    K = G.shape[2]
    cells = np.nonzero(missing)[1].astype(np.int64)
    start = np.zeros(n_rows + 1, np.int64)
    for n in range(n_rows):
        start[n + 1] = start[n] + missing[n].sum()
    for i in range(n_replicates):
        F = draw_factors(G[i], K, Y[i], missing, noise_vars[i], rng)
        draw_loadings(Y[i], start, cells, G[i], F, precisions[i], noise_vars[i], classes[i], preferences[i], rng)
        draw_classes(G[i], precisions[i], classes[i], preferences[i], rng)
        draw_preferences(G[i], precisions[i], classes[i], preferences[i], rng)
        for k in range(K):
            shape, rate = loading_law
            for n in range(n_rows):
                if G[i, n, k] != 0.0:
                    shape += 0.5
                    rate += 0.5 * (G[i, n, k] - preferences[i, classes[i, n], k]) ** 2
            # eq: NSFA.class-precision
            precisions[i, k] = rng.standard_gamma(shape) / rate
        for n in range(n_rows):
            shape, rate = noise_law
            for c in range(n_cells):
                if not missing[n, c]:
                    left = Y[i, n, c]
                    for k in range(K):
                        left -= G[i, n, k] * F[k, c]
                    shape += 0.5
                    rate += 0.5 * left * left
            # eq: NSFA.noise
            noise_vars[i, n] = rate / rng.standard_gamma(shape)


class_replicates = jit(_class_replicates)
