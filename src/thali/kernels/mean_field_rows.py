"""Coordinate ascent for the bits of rows, X = offset + Z A + noise, given the features' factor; and the rows' sums.

    logit q(z_nk = 1)  =  odds_k + b_nk - sum_{l != k} forms_kl E[z_nl] - forms_kk / 2,    b = features x_n

`features` are means over noise variances, `forms` E[A A'] over noise variances, summed over the dims that the row
observes; a last column that is always on may follow in them. Rows are independent, so the bits of BLOCK rows are
updated side by side, feature after feature, between the two products that the data take part in, while these are in the
cache. Rows may be in single or double precision; sums are in double precision.
"""

import math

import numpy as np

from thali.kernels._jit import inlined, jit

BLOCK = 128  # rows at a time
TOGETHER = 4  # features whose forms are summed in one go
FARTHEST = 45.0  # log-odds; beyond it a probability is 0 or 1 to all digits
_SAFE = 64  # factors up to 2 that a product in single precision can hold
# 1/log 2, log 2, 1/2!, ..., 1/12!, FARTHEST, 1: in the precision of the rows
CONSTANTS = np.array(
    [1.0 / math.log(2.0), math.log(2.0), *(1.0 / math.factorial(i) for i in range(2, 13)), FARTHEST, 1.0]
)


def _exp_minus(a, c):
    """exp(-a) for 0 <= a <= FARTHEST, c = CONSTANTS: 2^-n times a polynomial, in operations that go side by side."""
    n = np.floor(a * c[0] + c[2])
    f = n * c[1] - a
    f2 = f * f
    f4 = f2 * f2
    first = (c[14] + f) + f2 * (c[2] + f * c[3])
    second = (c[4] + f * c[5]) + f2 * (c[6] + f * c[7])
    third = (c[8] + f * c[9]) + f2 * (c[10] + f * c[11]) + f4 * c[12]
    power = np.int32((127 - np.int32(n)) << 23).view(np.float32)
    return (first + f4 * (second + f4 * third)) * power


def _side_by_side(b, probs, between, base, hard, c, t, product, linear):
    """One pass over the bits of rows that lack no cell; returns their entropy. Cost O(K^2) per row.

    probs (features, rows) is padded with zeros to a multiple of TOGETHER features, as is between, the forms with zeros
    in the diagonal; base = odds - forms_kk / 2. t, product and linear are work space, one number per row.
    """
    K, n_rows = b.shape
    c = (c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], c[9], c[10], c[11], c[12], c[13], c[14])
    far, one = c[13], c[14]
    zero = one - one
    product[:] = one
    linear[:] = zero
    entropy = 0.0
    for k in range(K):
        b_k, base_k, probs_k = b[k], base[k], probs[k]
        for r in range(n_rows):
            t[r] = base_k + b_k[r]
        for i in range(0, probs.shape[0], TOGETHER):
            g0, g1, g2, g3 = between[k, i], between[k, i + 1], between[k, i + 2], between[k, i + 3]
            p0, p1, p2, p3 = probs[i], probs[i + 1], probs[i + 2], probs[i + 3]
            for r in range(n_rows):
                # eq: DV09.bit-update
                t[r] -= g0 * p0[r] + g1 * p1[r] + g2 * p2[r] + g3 * p3[r]
        if hard:
            for r in range(n_rows):
                probs_k[r] = one if t[r] > zero else zero
            continue
        for r in range(n_rows):
            logit = min(max(t[r], -far), far)
            small = exp_minus(abs(logit), c)
            likelier = one / (one + small)
            probs_k[r] = likelier if logit >= zero else small * likelier
            # eq: own.bit-entropy
            product[r] *= one + small
            linear[r] += max(logit, zero) - logit * probs_k[r]
        if k % _SAFE == _SAFE - 1:
            for r in range(n_rows):
                entropy += math.log(product[r])
                product[r] = one
    for r in range(n_rows):
        entropy += linear[r] + math.log(product[r])
    return entropy


def _row_alone(b, probs, own, odds, hard, n_passes):
    """Passes over the bits of one row, whose forms are `own`; probs may have a last entry 1. Returns the entropy."""
    K = b.size
    fitted = np.dot(own, probs)
    entropy = 0.0
    for _ in range(n_passes):
        entropy = 0.0
        for k in range(K):
            # eq: DV09.bit-update
            logit = odds[k] + b[k] - fitted[k] + own[k, k] * (probs[k] - 0.5)
            if hard:
                new = 1.0 if logit > 0.0 else 0.0
            else:
                logit = min(max(logit, -FARTHEST), FARTHEST)
                new = 1.0 / (1.0 + math.exp(-logit))
                entropy += math.log1p(math.exp(-abs(logit))) + max(logit, 0.0) - logit * new
            step = new - probs[k]
            probs[k] = new
            for j in range(fitted.size):
                fitted[j] += step * own[k, j]
    return entropy


def _update_bits(
    X, missing_start, missing_dim, features, forms, of_dims, odds, old, new, n_passes, hard, chunk, first, counts,
    grams, crosses, entropies,
):  # fmt: skip
    """Passes over the bits of chunks of rows, from `old` to `new` probabilities; and sums over each chunk.

    The i-th chunk is that from row (first + i) chunk on; counts[i], grams[i] and crosses[i] are sums of p, p p' and
    p x', entropies[i] of -log q. Missing cells are zero in X; row n lacks the dims missing_dim[missing_start[n]:
    missing_start[n + 1]], whose forms are of_dims (n_dims, columns, columns). Cost O(K (K + D)) per row and pass, and
    O(K^2) for each cell that a row lacks (or has, if those are fewer).
    """
    n_dims, K, n_columns = X.shape[1], features.shape[0], forms.shape[0]
    c = CONSTANTS.astype(X.dtype)
    room = -(-K // TOGETHER) * TOGETHER
    between = np.zeros((K, room), X.dtype)
    base = np.zeros(K, X.dtype)
    for k in range(K):
        base[k] = odds[k] - 0.5 * forms[k, k]
        for j in range(K):
            between[k, j] = forms[k, j]
        for j in range(K, n_columns):
            base[k] -= forms[k, j]
        between[k, k] = 0.0
    gram = np.zeros((K, K), X.dtype)
    cross = np.zeros((K, n_dims), X.dtype)
    probs = np.zeros((room, BLOCK), X.dtype)
    b = np.zeros((K, BLOCK), X.dtype)
    t, product, linear = np.zeros(BLOCK, X.dtype), np.zeros(BLOCK, X.dtype), np.zeros(BLOCK, X.dtype)
    own = np.zeros((n_columns, n_columns), X.dtype)
    row = np.ones(n_columns, X.dtype)
    is_seen = np.ones(n_dims, np.bool_)
    for i in range(entropies.size):
        counts[i] = 0.0
        grams[i] = 0.0
        crosses[i] = 0.0
        entropies[i] = 0.0
        end = min((first + i + 1) * chunk, X.shape[0])
        for start in range((first + i) * chunk, end, BLOCK):
            stop = min(start + BLOCK, end)
            n_rows = stop - start
            if n_rows != t.size:
                probs, b = np.zeros((room, n_rows), X.dtype), np.zeros((K, n_rows), X.dtype)
                t, product, linear = np.zeros(n_rows, X.dtype), np.zeros(n_rows, X.dtype), np.zeros(n_rows, X.dtype)
            x = X[start:stop]
            for r in range(n_rows):
                for k in range(K):
                    probs[k, r] = old[start + r, k]
            if n_passes == 0:
                for k in range(K):
                    for r in range(n_rows):
                        p = probs[k, r]
                        if 0.0 < p < 1.0:
                            entropies[i] -= p * math.log(p) + (1.0 - p) * math.log(1.0 - p)
            else:
                np.dot(features, x.T, b)
                if missing_start[stop] == missing_start[start]:
                    for _ in range(n_passes):
                        entropy = side_by_side(b, probs, between, base, hard, c, t, product, linear)
                    entropies[i] += entropy
                else:
                    for r in range(n_rows):
                        cells = missing_dim[missing_start[start + r] : missing_start[start + r + 1]]
                        if 2 * cells.size <= n_dims:
                            own[:] = forms
                            for d in cells:
                                own -= of_dims[d]
                        else:
                            is_seen[:] = True
                            for d in cells:
                                is_seen[d] = False
                            own[:] = 0.0
                            for d in range(n_dims):
                                if is_seen[d]:
                                    own += of_dims[d]
                        for k in range(K):
                            row[k] = probs[k, r]
                        entropies[i] += row_alone(b[:, r], row, own, odds, hard, n_passes)
                        for k in range(K):
                            probs[k, r] = row[k]
            for r in range(n_rows):
                for k in range(K):
                    new[start + r, k] = probs[k, r]
            some = probs[:K]
            np.dot(some, some.T, gram)
            np.dot(some, x, cross)
            for k in range(K):
                for r in range(n_rows):
                    counts[i, k] += some[k, r]
                for j in range(K):
                    grams[i, k, j] += gram[k, j]
                for d in range(n_dims):
                    crosses[i, k, d] += cross[k, d]


def _lacking_grams(codes, squares, starts, rows, grams):
    """grams[d] = sum of E[v v'] over the rows rows[starts[d]:starts[d + 1]], v = (codes, 1) with E[v_k^2] = squares.

    Cost O(K^2) per cell.
    """
    K = codes.shape[1]
    some = np.ones((BLOCK, K + 1))
    gram = np.zeros((K + 1, K + 1))
    for d in range(grams.shape[0]):
        grams[d] = 0.0
        for start in range(starts[d], starts[d + 1], BLOCK):
            stop = min(start + BLOCK, starts[d + 1])
            for i in range(start, stop):
                for k in range(K):
                    some[i - start, k] = codes[rows[i], k]
            part = some[: stop - start]
            np.dot(part.T, part, gram)
            for k in range(K):
                gram[k, k] = 0.0
                for i in range(start, stop):
                    gram[k, k] += squares[rows[i], k]
            grams[d] += gram


exp_minus = inlined(_exp_minus)
side_by_side = jit(_side_by_side)
row_alone = jit(_row_alone)
update_bits = jit(_update_bits)
lacking_grams = jit(_lacking_grams)
