"""Distinct columns of Z: priors over classes count how many features each set of rows has."""

from collections import Counter

import numpy as np

from thali.core.binary import Array, histories, non_empty


def distinct_columns(Z: Array) -> tuple[Array, Array]:
    """(one of each kind of column, how many there are of each), empty columns left out."""
    Z = non_empty(Z)
    keys = histories(Z)
    place = {key: k for k, key in enumerate(keys)}
    counts = Counter(keys)
    return Z[:, list(place.values())], np.array([counts[key] for key in place], dtype=np.int64)
