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
WIDE = 768  # dims from which x A' is faster than A x', although it has to be turned over
GROUP = 16  # rows at a time among those that lack cells
TOGETHER = 4  # features whose forms with the others are one product
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


def _to_bits(t, hard, c, probs, product, linear):
    """probs = expit(t) of some rows, or t > 0 if `hard`; the entropy's factors and terms go to product and linear."""
    far, one = c[13], c[14]
    zero = one - one
    if hard:
        for r in range(t.size):
            probs[r] = one if t[r] > zero else zero
        return
    for r in range(t.size):
        logit = min(max(t[r], -far), far)
        small = exp_minus(abs(logit), c)
        likelier = one / (one + small)
        p = likelier if logit >= zero else small * likelier
        probs[r] = p
        # eq: own.bit-entropy
        product[r] *= one + small
        linear[r] += max(logit, zero) - logit * p


def _gathered_entropy(product, linear):
    """What `to_bits` has gathered, which begins anew."""
    total = 0.0
    for r in range(product.size):
        total += linear[r] + math.log(product[r])
    product[:] = 1.0
    linear[:] = 0.0
    return total


def _side_by_side(b, probs, outside, within, base, hard, c, t, product, linear):
    """One pass over the bits of rows that lack no cell; returns their entropy. Cost O(K^2) per row.

    probs (features, rows) is padded with zeros to a multiple of TOGETHER features. The forms come in two: `outside`
    with zeros between features of the same TOGETHER, `within` between those, with zeros in the diagonal.
    base = odds - forms_kk / 2. t (TOGETHER, rows), product (ones) and linear (zeros) are work space.
    """
    K, n_rows = b.shape
    c = (c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], c[9], c[10], c[11], c[12], c[13], c[14])
    entropy = 0.0
    for first in range(0, K, TOGETHER):
        np.dot(outside[first : first + TOGETHER], probs, t)
        p0, p1, p2, p3 = probs[first], probs[first + 1], probs[first + 2], probs[first + 3]
        for k in range(first, min(first + TOGETHER, K)):
            b_k, base_k, t_k = b[k], base[k], t[k - first]
            g0, g1, g2, g3 = within[k, 0], within[k, 1], within[k, 2], within[k, 3]
            for r in range(n_rows):
                # eq: DV09.bit-update
                t_k[r] = base_k + b_k[r] - t_k[r] - (g0 * p0[r] + g1 * p1[r] + g2 * p2[r] + g3 * p3[r])
            to_bits(t_k, hard, c, probs[k], product, linear)
            if k % _SAFE == _SAFE - 1:
                entropy += gathered_entropy(product, linear)
    return entropy + gathered_entropy(product, linear)


def _own_forms(forms, of_dims, cells, is_seen, own):
    """The forms of a row that lacks these cells, from those of all dims, or from those it has if they are fewer.

    Matrices are flat; is_seen is work space, all True.
    """
    n_dims = is_seen.size
    if 2 * cells.size <= n_dims:
        for j in range(own.size):
            own[j] = forms[j]
        for d in cells:
            for j in range(own.size):
                own[j] -= of_dims[d, j]
        return
    for d in cells:
        is_seen[d] = False
    own[:] = 0.0
    for d in range(n_dims):
        if is_seen[d]:
            for j in range(own.size):
                own[j] += of_dims[d, j]
    for d in cells:
        is_seen[d] = True


def _with_own_forms(b, own, odds, hard, c, probs, t, new, product, linear):
    """One pass over the bits of rows with forms of their own, (rows, columns, columns); returns their entropy.

    b (rows, features) and probs (rows, columns), whose columns beyond the features are 1, are those of these rows; the
    rest is work space as in `side_by_side`. Cost O(K^2) per row.
    """
    n_rows, K = b.shape
    c = (c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], c[9], c[10], c[11], c[12], c[13], c[14])
    entropy = 0.0
    for k in range(K):
        for r in range(n_rows):
            forms, p = own[r, k], probs[r]
            total = odds[k] + b[r, k] + forms[k] * (p[k] - c[2])
            for j in range(p.size):
                # eq: DV09.bit-update
                total -= forms[j] * p[j]
            t[r] = total
        to_bits(t, hard, c, new, product, linear)
        for r in range(n_rows):
            probs[r, k] = new[r]
        if k % _SAFE == _SAFE - 1:
            entropy += gathered_entropy(product, linear)
    return entropy + gathered_entropy(product, linear)


def _triangle(matrix, flat):
    """The lower triangle of a symmetric matrix, row after row."""
    i = 0
    for k in range(matrix.shape[0]):
        for j in range(k + 1):
            flat[i] = matrix[k, j]
            i += 1


def _from_triangle(flat, matrix):
    i = 0
    for k in range(matrix.shape[0]):
        for j in range(k + 1):
            matrix[k, j] = flat[i]
            matrix[j, k] = flat[i]
            i += 1


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
    outside, within = np.zeros((room, room), X.dtype), np.zeros((room, TOGETHER), X.dtype)
    base = np.zeros(K, X.dtype)
    for k in range(K):
        base[k] = odds[k] - 0.5 * forms[k, k]
        for j in range(K, n_columns):
            base[k] -= forms[k, j]
        for j in range(K):
            if j // TOGETHER != k // TOGETHER:
                outside[k, j] = forms[k, j]
            elif j != k:
                within[k, j % TOGETHER] = forms[k, j]
    gram = np.zeros((K, K), X.dtype)
    cross = np.zeros((K, n_dims), X.dtype)
    transposed = np.ascontiguousarray(features.T) if n_dims >= WIDE else np.zeros((1, 1), X.dtype)
    probs = np.zeros((room, BLOCK), X.dtype)
    b = np.zeros((K, BLOCK), X.dtype)
    t, product, linear = np.zeros((TOGETHER, BLOCK), X.dtype), np.ones(BLOCK, X.dtype), np.zeros(BLOCK, X.dtype)
    # of rows that lack cells, GROUP at a time
    all_forms = np.zeros(n_columns * (n_columns + 1) // 2, X.dtype)
    dim_forms = np.zeros((of_dims.shape[0], all_forms.size), X.dtype)
    triangle(forms, all_forms)
    for d in range(of_dims.shape[0]):
        triangle(of_dims[d], dim_forms[d])
    flat, is_seen = np.zeros(all_forms.size, X.dtype), np.ones(n_dims, np.bool_)
    own = np.zeros((GROUP, n_columns, n_columns), X.dtype)
    own_b, own_probs = np.zeros((GROUP, K), X.dtype), np.ones((GROUP, n_columns), X.dtype)
    bits = np.zeros(GROUP, X.dtype)
    for i in range(entropies.size):
        counts[i] = 0.0
        grams[i] = 0.0
        crosses[i] = 0.0
        entropies[i] = 0.0
        end = min((first + i + 1) * chunk, X.shape[0])
        for start in range((first + i) * chunk, end, BLOCK):
            stop = min(start + BLOCK, end)
            n_rows = stop - start
            if n_rows != product.size:
                probs, b = np.zeros((room, n_rows), X.dtype), np.zeros((K, n_rows), X.dtype)
                t = np.zeros((TOGETHER, n_rows), X.dtype)
                product, linear = np.ones(n_rows, X.dtype), np.zeros(n_rows, X.dtype)
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
                if n_dims < WIDE:
                    np.dot(features, x.T, b)
                else:
                    products = np.dot(x, transposed)
                    for r in range(n_rows):
                        for k in range(K):
                            b[k, r] = products[r, k]
                if missing_start[stop] == missing_start[start]:
                    for _ in range(n_passes):
                        entropy = side_by_side(b, probs, outside, within, base, hard, c, t, product, linear)
                    entropies[i] += entropy
                else:
                    for begin in range(0, n_rows, GROUP):
                        size = min(GROUP, n_rows - begin)
                        for r in range(size):
                            n = start + begin + r
                            cells = missing_dim[missing_start[n] : missing_start[n + 1]]
                            own_forms(all_forms, dim_forms, cells, is_seen, flat)
                            from_triangle(flat, own[r])
                            for k in range(K):
                                own_b[r, k] = b[k, begin + r]
                                own_probs[r, k] = probs[k, begin + r]
                        for _ in range(n_passes):
                            entropy = with_own_forms(
                                own_b[:size], own[:size], odds, hard, c, own_probs[:size], t[0, :size], bits[:size],
                                product[:size], linear[:size],
                            )  # fmt: skip
                        entropies[i] += entropy
                        for r in range(size):
                            for k in range(K):
                                probs[k, begin + r] = own_probs[r, k]
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
to_bits = inlined(_to_bits)
gathered_entropy = jit(_gathered_entropy)
side_by_side = jit(_side_by_side)
own_forms = jit(_own_forms)
with_own_forms = jit(_with_own_forms)
triangle = jit(_triangle)
from_triangle = jit(_from_triangle)
update_bits = jit(_update_bits)
lacking_grams = jit(_lacking_grams)
