"""Real data prepared for the held-out comparison: one global scale, the same cells hidden every time.

Digits come with scikit-learn; the others are read from a folder given by the user.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FLOOR = 0.01  # smallest noise variance of the baseline, in units of the mean variance of the dims


class RealSet(NamedTuple):
    """Data in units in which the mean variance of the dims is 1."""

    name: str
    X: np.ndarray  # complete
    hidden: np.ndarray  # cells to predict
    inner: np.ndarray  # further cells, hidden while a noise floor is chosen
    kept: np.ndarray  # which of the original dims are in X
    image_shape: tuple[int, int] | None  # of the original dims


class Report(NamedTuple):
    """Recorded figures of the binary model with the same mask: what this benchmark is compared with."""

    floor: float
    lpd: float  # mean of three chains
    lpd_pooled: float
    rmse_pooled: float
    k: tuple[int, ...]
    k_common: tuple[int, ...]
    noise_sd: float
    baseline: float  # LPD of the column means


RECORDED = {
    "digits": Report(0.3, -0.733, -0.650, 0.557, (59, 59, 60), (47, 49, 49), 0.55, -1.214),
    "mnist": Report(0.5, -0.680, -0.612, 0.657, (99, 106, 102), (57, 54, 58), 0.71, -1.025),
    "ecoli": Report(0.05, -0.650, -0.597, 0.439, (7, 7, 7), (6, 7, 5), 0.44, -1.194),
    "breast": Report(0.1, -0.643, -0.574, 0.539, (119, 122, 118), (98, 99, 96), 0.41, -1.277),
}
FILES = {"mnist": "mnist_10k.npz", "ecoli": "gene_ecoli_kao.npz", "breast": "gene_breast_nsfa.npz"}


def load(name: str, folder: Path | None) -> RealSet | str:
    """The data set, or why it cannot be had."""
    if name == "digits":
        from sklearn.datasets import load_digits

        return prepared(name, load_digits().data.astype(float), (8, 8))
    if folder is None:
        return "give the folder of the data by --data or THALI_DATA"
    path = folder / FILES[name]
    if not path.exists():
        return f"there is no {path.name} in the data folder"
    with np.load(path, allow_pickle=False) as file:
        X = file["X"].astype(float)
    if name != "mnist":
        return prepared(name, X, None)
    chosen = np.random.default_rng(5).permutation(len(X))[:1000]
    pooled = (X[chosen] / 255).reshape(1000, 14, 2, 14, 2).mean(axis=(2, 4))
    return prepared(name, pooled.reshape(1000, 196), (14, 14))


def prepared(name: str, X: np.ndarray, image_shape: tuple[int, int] | None) -> RealSet:
    """Without nearly constant dims, divided by one number; 10 % of the cells hidden, then 10 % of the others."""
    var = X.var(axis=0)
    kept = var > 0.01 * var.mean()
    X = X[:, kept]
    X = (X - X.mean()) / np.sqrt(X.var(axis=0).mean())
    hidden = np.random.default_rng(77).random(X.shape) < 0.1
    inner = (np.random.default_rng(78).random(X.shape) < 0.1) & ~hidden
    return RealSet(name, np.ascontiguousarray(X), hidden, inner, kept, image_shape)


def column_means(X: np.ndarray, hidden: np.ndarray) -> dict[str, Any]:
    """The baseline: each dim's own mean and variance."""
    seen = np.where(hidden, np.nan, X)
    mean = np.broadcast_to(np.nanmean(seen, axis=0), X.shape)[hidden]
    var = np.broadcast_to(np.maximum(np.nanvar(seen, axis=0), FLOOR), X.shape)[hidden]
    square = (X[hidden] - mean) ** 2
    lpd = -0.5 * np.log(2 * np.pi * var) - 0.5 * square / var
    return {"lpd": float(lpd.mean()), "rmse": float(np.sqrt(square.mean()))}
