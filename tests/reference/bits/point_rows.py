"""Twin of thali.kernels.bits.point_rows: residuals in full, nothing kept in step."""

import numpy as np


def hard_sweep(X, square, products, missing_start, missing_dim, order, start, Z, K, A, gram, penalty, limit):
    changes = 0
    for i in range(start, len(order)):
        if Z.shape[1] <= K and limit > K and penalty < np.inf:
            return K, i, changes
        n = order[i]
        seen = np.ones(X.shape[1], dtype=bool)
        seen[missing_dim[missing_start[n] : missing_start[n + 1]]] = False
        for k in range(K):
            others = Z[n, :K].astype(float)
            others[k] = 0.0
            r = (X[n] - others @ A[:K])[seen]
            on = np.sum((r - A[k, seen]) ** 2) < np.sum(r**2) - 1e-12 * np.sum(A[k] ** 2)
            changes += int(on != Z[n, k])
            Z[n, k] = on
        r = np.where(seen, X[n] - Z[n, :K] @ A[:K], 0.0)
        if r @ r > penalty and limit > K:
            A[K] = r
            Z[n, K] = 1
            K += 1
            changes += 1
            gram[:K, :K] = A[:K] @ A[:K].T
            products[order[i + 1 :], K - 1] = X[order[i + 1 :]] @ r
    return K, len(order), changes
