"""Twins of kernels/mean_field_rows.py: one row and one bit at a time."""

import numpy as np
from scipy.special import entr, expit

FARTHEST = 45.0


def exp_minus(a, c):
    return np.exp(-a)


def side_by_side(b, probs, between, base, hard, c, t, product, linear):
    n_features = len(b)
    for k in range(n_features):
        logit = base[k] + b[k] - between[k] @ probs
        probs[k] = (logit > 0) if hard else expit(np.clip(logit, -FARTHEST, FARTHEST))
    return float(np.sum(entr(probs) + entr(1 - probs)))


def row_alone(b, probs, own, odds, hard, n_passes):
    K = len(b)
    for _ in range(n_passes):
        for k in range(K):
            others = [j for j in range(len(probs)) if j != k]
            logit = odds[k] + b[k] - own[k, others] @ probs[others] - own[k, k] / 2
            probs[k] = (logit > 0) if hard else expit(np.clip(logit, -FARTHEST, FARTHEST))
    return float(np.sum(entr(probs[:K]) + entr(1 - probs[:K]))) if n_passes else 0.0


def update_bits(
    X, missing_start, missing_dim, features, forms, of_dims, odds, old, new, n_passes, hard, chunk, first, counts,
    grams, crosses, entropies,
):  # fmt: skip
    K, n_columns = len(features), len(forms)
    for i in range(len(entropies)):
        rows = slice((first + i) * chunk, min((first + i + 1) * chunk, len(X)))
        for n in range(rows.start, rows.stop):
            own = forms - sum(of_dims[d] for d in missing_dim[missing_start[n] : missing_start[n + 1]])
            probs = np.append(old[n].astype(float), np.ones(n_columns - K))
            row_alone(features.astype(float) @ X[n], probs, own, odds, hard, n_passes)
            new[n] = probs[:K]
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
