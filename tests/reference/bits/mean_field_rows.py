"""Twins of kernels/mean_field_rows.py: one row and one bit at a time."""

import numpy as np
from scipy.special import entr, expit

FARTHEST = 45.0


def exp_minus(a, c):
    return np.exp(-a)


def to_bits(t, hard, c, probs, product, linear):
    probs[:] = (t > 0) if hard else expit(np.clip(t, -FARTHEST, FARTHEST))
    linear += entr(probs) + entr(1 - probs)


def gathered_entropy(product, linear):
    total = float(np.sum(linear + np.log(product)))
    product[:], linear[:] = 1, 0
    return total


def side_by_side(b, probs, outside, within, base, hard, c, t, product, linear):
    n_features, together = len(b), within.shape[1]
    for k in range(n_features):
        first = k - k % together
        logit = base[k] + b[k] - outside[k] @ probs - within[k] @ probs[first : first + together]
        to_bits(logit, hard, c, probs[k], product, linear)
    return gathered_entropy(product, linear)


def own_forms(forms, of_dims, cells, is_seen, own):
    own[:] = forms - of_dims[cells].sum(axis=0)


def with_own_forms(b, own, odds, hard, c, probs, t, new, product, linear):
    K = b.shape[1]
    for k in range(K):
        others = [j for j in range(probs.shape[1]) if j != k]
        logit = odds[k] + b[:, k] - np.einsum("rj,rj->r", own[:, k, others], probs[:, others]) - own[:, k, k] / 2
        to_bits(logit, hard, c, probs[:, k], product, linear)
    return gathered_entropy(product, linear)


def triangle(matrix, flat):
    flat[:] = matrix[np.tril_indices(len(matrix))]


def from_triangle(flat, matrix):
    matrix[np.tril_indices(len(matrix))] = flat
    matrix[:] = np.tril(matrix) + np.tril(matrix, -1).T


def update_bits(
    X, missing_start, missing_dim, features, forms, of_dims, odds, old, new, n_passes, hard, chunk, first, counts,
    grams, crosses, entropies,
):  # fmt: skip
    K, n_columns = len(features), len(forms)
    for i in range(len(entropies)):
        rows = slice((first + i) * chunk, min((first + i + 1) * chunk, len(X)))
        for n in range(rows.start, rows.stop):
            own = forms - sum(of_dims[d] for d in missing_dim[missing_start[n] : missing_start[n + 1]])
            probs = np.append(old[n].astype(float), np.ones(n_columns - K))[None]
            products = (features.astype(float) @ X[n])[None]
            for _ in range(n_passes):
                with_own_forms(products, own[None], odds, hard, None, probs, None, None, np.ones(1), np.zeros(1))
            new[n] = probs[0, :K]
        p = new[rows].astype(float)
        counts[i], grams[i], crosses[i] = p.sum(axis=0), p.T @ p, p.T @ X[rows].astype(float)
        entropies[i] = np.sum(entr(p) + entr(1 - p))


def lacking_grams(codes, squares, starts, rows, grams):
    K = codes.shape[1]
    for d in range(len(grams)):
        some = rows[starts[d] : starts[d + 1]]
        v = np.column_stack([codes[some], np.ones(len(some))])
        grams[d] = v.T @ v
        grams[d, range(K), range(K)] = squares[some].sum(axis=0)
