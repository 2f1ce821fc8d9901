"""Real data prepared for the held-out comparison: one global scale, the same cells hidden every time.

Digits come with scikit-learn; the others are read from a folder given by the user.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np


class RealSet(NamedTuple):
    """Data in units in which the mean variance of the dims is 1."""

    name: str
    X: np.ndarray  # complete
    hidden: np.ndarray  # cells to predict
    inner: np.ndarray  # further cells, hidden while a noise floor or a model is chosen
    kept: np.ndarray  # which of the original dims are in X
    image_shape: tuple[int, int] | None  # of the original dims


class Report(NamedTuple):
    """Recorded figures of a model with the same mask: what this benchmark is compared with."""

    floor: float | None  # None: the noise that an ordinary factor analysis leaves
    lpd: float  # mean of three chains
    lpd_pooled: float
    rmse_pooled: float
    k: tuple[int, ...]
    k_common: tuple[int, ...]
    noise_sd: float


RECORDED = {
    "binary": {
        "digits": Report(0.3, -0.733, -0.650, 0.557, (59, 59, 60), (47, 49, 49), 0.55),
        "mnist": Report(0.5, -0.680, -0.612, 0.657, (99, 106, 102), (57, 54, 58), 0.71),
        "ecoli": Report(0.05, -0.650, -0.597, 0.439, (7, 7, 7), (6, 7, 5), 0.44),
        "breast": Report(0.1, -0.643, -0.574, 0.539, (119, 122, 118), (98, 99, 96), 0.41),
        "faces": Report(0.03, -0.165, -0.023, 0.255, (199, 207, 211), (124, 127, 142), 0.21),
    },
    "factors": {
        "digits": Report(None, -0.563, -0.448, 0.499, (61, 64, 60), (52, 56, 54), 0.33),
        "mnist": Report(None, -0.433, -0.341, 0.551, (103, 97, 101), (88, 84, 85), 0.45),
        "ecoli": Report(None, -0.605, -0.604, 0.450, (4, 4, 4), (3, 3, 3), 0.61),
        "breast": Report(None, -0.549, -0.539, 0.540, (60, 63, 63), (44, 46, 45), 0.49),
        "faces": Report(None, 0.231, 0.264, 0.207, (114, 108, 114), (97, 98, 98), 0.21),
    },
}


class Ordinary(NamedTuple):
    """Recorded figures of an ordinary model, its number of factors chosen by further hidden cells."""

    lpd: float
    rmse: float
    k: int


RECORDED_BASELINES = {
    "column means": {
        "digits": Ordinary(-1.214, 1.001, 0),
        "mnist": Ordinary(-1.025, 0.996, 0),
        "ecoli": Ordinary(-1.194, 0.960, 0),
        "breast": Ordinary(-1.277, 1.009, 0),
        "faces": Ordinary(-1.397, 1.003, 0),
    },
    "FA": {
        "digits": Ordinary(-0.634, 0.542, 46),
        "mnist": Ordinary(-0.573, 0.558, 65),
        "ecoli": Ordinary(-0.708, 0.625, 2),
        "breast": Ordinary(-0.619, 0.565, 20),
        "faces": Ordinary(0.141, 0.225, 55),
    },
    "PCA": {
        "digits": Ordinary(-0.732, 0.567, 40),
        "mnist": Ordinary(-0.784, 0.581, 50),
        "ecoli": Ordinary(-0.599, 0.442, 3),
        "breast": Ordinary(-0.844, 0.577, 10),
        "faces": Ordinary(-0.029, 0.246, 40),
    },
}

FILES = {
    "mnist": "mnist_10k.npz",
    "ecoli": "gene_ecoli_kao.npz",
    "breast": "gene_breast_nsfa.npz",
    "faces": "faces_yaleb_32x32.npz",
}
SETS = ["digits", *FILES]
IMAGES = {"mnist": (1000, 14), "faces": (500, 16)}  # images taken, and their side once pooled by 2 x 2


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
    if name not in IMAGES:
        return prepared(name, X, None)
    n_images, side = IMAGES[name]
    chosen = np.random.default_rng(5).permutation(len(X))[:n_images]
    images = X[chosen].reshape(n_images, side, 2, side, 2).mean(axis=(2, 4))
    return prepared(name, images.reshape(n_images, side**2), (side, side))


def prepared(name: str, X: np.ndarray, image_shape: tuple[int, int] | None) -> RealSet:
    """Without nearly constant dims, divided by one number; 10 % of the cells hidden, then 10 % of the others."""
    var = X.var(axis=0)
    kept = var > 0.01 * var.mean()
    X = X[:, kept]
    X = (X - X.mean()) / np.sqrt(X.var(axis=0).mean())
    hidden = np.random.default_rng(77).random(X.shape) < 0.1
    inner = (np.random.default_rng(78).random(X.shape) < 0.1) & ~hidden
    return RealSet(name, np.ascontiguousarray(X), hidden, inner, kept, image_shape)
