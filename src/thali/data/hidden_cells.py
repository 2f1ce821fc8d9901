"""Cells that are hidden from a fit, to see how well it predicts them."""

import numpy as np

Array = np.ndarray


def hidden_cells(rng: np.random.Generator, X: Array, share: float) -> Array:
    """Each observed cell with this probability, but never all of a row or of a dim."""
    observed = ~np.isnan(X)
    # ranks, not uniforms: who hid cells with the same seed before would have hidden the same ones
    rank = rng.permutation(X.size).reshape(X.shape)
    chance = np.where(observed, (rank + 0.5) / X.size, np.inf)
    hidden = observed & (chance < share)
    for axis in (0, 1):
        wholly = np.flatnonzero((hidden == observed).all(axis=axis))
        last = np.where(hidden, chance, -np.inf).argmax(axis=axis)[wholly]
        hidden[(last, wholly) if axis == 0 else (wholly, last)] = False
    return hidden
