"""Room for features that are born in the middle of a sweep."""

import numpy as np

from thali.errors import InvalidParameterError

Array = np.ndarray

_MOST = 2_000  # features: more of them take minutes a sweep
_LOWEST = 16


def room_for(K: int, n_rows: int, n_dims: int, new_rate: float) -> int:
    """Columns to make room for when there are K, or an error if there is no end to them.

    More features than cells, and than four times what a sensible prior expects, say that something is wrong.
    """
    expected = min(new_rate * n_rows * (1 + np.log(n_rows)), 50.0)
    most = int(min(_MOST, 200 + n_rows * n_dims + 4 * expected))
    if most < K:
        raise InvalidParameterError(
            f"The hyperparameters must suit the scale of X. Got more than {most} features. "
            "Let feature_var and noise_var be learned, set noise_floor, or lower the mass."
        )
    return min(2 * K, most)


def rung(wanted: int) -> int:
    """The next of a ladder of sizes, each half as large again: how much room there is must not depend on when it was
    asked for."""
    size = _LOWEST
    while size < wanted:
        size += size // 2
    return size


def with_room(Z: Array, gram: Array, cross: Array, room: int) -> tuple[Array, Array, Array]:
    """Copies with `room` columns (at least one), the unused ones zero."""
    K = Z.shape[1]
    room = max(room, 1)
    larger = np.zeros((len(Z), room), dtype=np.uint8)
    larger[:, :K] = Z
    larger_gram = np.zeros((room, room))
    larger_gram[:K, :K] = gram
    larger_cross = np.zeros((room, cross.shape[1]))
    larger_cross[:K] = cross
    return larger, larger_gram, larger_cross
