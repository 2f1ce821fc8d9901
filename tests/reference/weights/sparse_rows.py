"""Twin of thali.kernels.weights.sparse_rows: residuals in full, nothing kept in step."""

import numpy as np

from reference.scan import is_heads, next_of
from reference.weights.own_factors import birth_or_death, born_of_noise, draw_own_values, independent_own


def sparse_sweep(
    Y, missing_start, missing_cell, G, K, F, precisions, counts, cross, log_odds, new_rate, noise_vars,
    loading_law, noise_law, n_moves, proposal, start, rng,
):  # fmt: skip
    n_rows, n_cells = Y.shape
    grows = log_odds[0] == -np.inf
    most = n_moves if n_moves > 0 else int(16 + 8 * proposal[0] * new_rate)
    for n in range(start, n_rows):
        if grows and K + most > G.shape[1]:
            return K, n
        seen = np.ones(n_cells, dtype=bool)
        seen[missing_cell[missing_start[n] : missing_start[n + 1]]] = False
        single = np.array([grows and counts[k] == 1 and G[n, k] != 0 for k in range(K)], dtype=bool)
        own = np.zeros((G.shape[1], 2))
        n_own = single.sum()
        own[:n_own] = np.column_stack([G[n, :K][single], precisions[:K][single]])
        order = np.flatnonzero(~single)
        for i in range(len(order)):
            k = next_of(order, i, len(order), rng.random())
            e = (Y[n] - np.delete(G[n, :K], k) @ np.delete(F[:K], k, axis=0))[seen]
            f = F[k, seen]
            var = 1 / (f @ f / noise_vars[n] + precisions[k])
            mean = var * (f @ e) / noise_vars[n]
            others = np.count_nonzero(np.delete(G[:, k], n))
            fit = 0.5 * np.log(var * precisions[k]) + 0.5 * mean**2 / var
            heads = is_heads(log_odds[others] + fit, rng.random())
            G[n, k] = mean + np.sqrt(var) * rng.standard_normal() if heads else 0.0
            counts[k] = others + (G[n, k] != 0)
        if not grows:
            continue
        e = Y[n] - G[n, order] @ F[order]
        square, n_seen = e[seen] @ e[seen], seen.sum()
        if n_moves > 0:
            for _ in range(n_moves):
                if noise_law[0] > 0 and rng.random() < 0.5:
                    n_own, noise_vars[n] = born_of_noise(
                        own, n_own, noise_vars[n], new_rate, loading_law, noise_law, rng
                    )
                else:
                    n_own = birth_or_death(own, n_own, square, n_seen, noise_vars[n], new_rate, loading_law, rng)
        else:
            n_own = independent_own(
                own, n_own, most, square, n_seen, noise_vars[n], new_rate, loading_law, proposal, rng
            )
        K = drop_own(n, K, G, F, precisions, counts, cross, np.zeros((len(F), len(F))), np.zeros(len(F), dtype=bool))
        if n_own > 0:
            draw_own_values(own, n_own, e, seen, noise_vars[n], F, K, rng)
            new = np.arange(K, K + n_own)
            G[n, new], precisions[new], counts[new] = own[:n_own, 0], own[:n_own, 1], 1
            for k in new:
                left = (e - G[n, new] @ F[new] + G[n, k] * F[k])[seen]
                var = 1 / (F[k, seen] @ F[k, seen] / noise_vars[n] + precisions[k])
                G[n, k] = var * (F[k, seen] @ left) / noise_vars[n] + np.sqrt(var) * rng.standard_normal()
            K += n_own
    return K, n_rows


def drop_own(n, K, G, F, precisions, counts, cross, gram, is_stale):
    k = 0
    while k < K:
        if counts[k] == 1 and G[n, k] != 0:
            K -= 1
            G[:, k], G[:, K] = G[:, K], 0.0
            cross[:, k] = cross[:, K]
            F[k], precisions[k], counts[k], is_stale[k] = F[K], precisions[K], counts[K], is_stale[K]
            gram[k, :K], gram[:K, k] = gram[K, :K], gram[:K, K]
            gram[k, k] = gram[K, K]
        else:
            k += 1
    return K
