"""Twin of thali.kernels.weights.class_replicates."""

import numpy as np

from reference.weights.class_rows import draw_classes, draw_loadings, draw_preferences
from reference.weights.sparse_replicates import draw_factors


def class_replicates(Y, missing, G, precisions, noise_vars, classes, preferences, loading_law, noise_law, rng):
    start = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64)
    cells = np.nonzero(missing)[1]
    for i in range(len(Y)):
        F = draw_factors(G[i], G.shape[2], Y[i], missing, noise_vars[i], rng)
        draw_loadings(Y[i], start, cells, G[i], F, precisions[i], noise_vars[i], classes[i], preferences[i], rng)
        draw_classes(G[i], precisions[i], classes[i], preferences[i], rng)
        draw_preferences(G[i], precisions[i], classes[i], preferences[i], rng)
        for k in range(G.shape[2]):
            on = G[i, :, k] != 0
            left = (G[i, :, k] - preferences[i, classes[i], k])[on]
            shape, rate = loading_law[0] + on.sum() / 2, loading_law[1] + left @ left / 2
            precisions[i, k] = rng.standard_gamma(shape) / rate
        for n in range(Y.shape[1]):
            left = (Y[i, n] - G[i, n] @ F)[~missing[n]]
            shape, rate = noise_law[0] + len(left) / 2, noise_law[1] + left @ left / 2
            noise_vars[i, n] = rate / rng.standard_gamma(shape)
