"""Data small enough for enumeration, and cells to leave out."""

import numpy as np

MISSING = np.zeros((4, 2), dtype=bool)
MISSING[0, 1] = MISSING[2, 0] = True


def data(n_rows: int = 3, n_dims: int = 2, *, missing: bool = False) -> np.ndarray:
    n, d = np.meshgrid(np.arange(1, n_rows + 1), np.arange(1, n_dims + 1), indexing="ij")
    X = 1.3 * (np.sin(n * d) + 0.7 * np.cos(0.3 * n + d))
    if missing:
        X[0, 1] = X[2, 0] = np.nan
    return X


def worst(scores: dict[str, float]) -> float:
    return max(abs(z) for z in scores.values())
