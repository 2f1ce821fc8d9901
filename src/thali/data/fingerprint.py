"""A digest that tells one data set from another."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.sparse import issparse


def fingerprint(X: Any) -> str:
    """That of a matrix; a sparse one differs from its dense form."""
    if issparse(X):
        parts = X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data
        return hashlib.sha256(repr(X.shape).encode() + b"".join(part.tobytes() for part in parts)).hexdigest()
    return fingerprint_of_blocks(X.shape, [X])


def fingerprint_of_blocks(shape: tuple[int, ...], blocks: Iterable[np.ndarray]) -> str:
    """That of the dense matrix of this shape whose rows are in these blocks."""
    digest = hashlib.sha256(repr(tuple(shape)).encode())
    for block in blocks:
        # there is more than one NaN, and more than one zero
        digest.update(np.where(np.isnan(block), np.nan, block + 0.0).tobytes())
    return digest.hexdigest()
