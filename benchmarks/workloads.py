"""The data sets that the benchmarks share. Each is a pure function of its name: same bits on every machine and run.

"sharp": the data decide nearly every bit, so that rows rarely change; "diffuse": most rows change in every sweep.
"""

from typing import NamedTuple

import numpy as np

from thali import datasets


class Workload(NamedTuple):
    """X = Z A + noise with A ~ N(0, feature_var), and the Z it was made from, where chains start."""

    name: str
    X: np.ndarray  # (n_rows, n_dims)
    Z: np.ndarray  # (n_rows, n_features) uint8
    noise_var: float
    feature_var: float


def linear(
    n_rows: int,
    n_dims: int,
    n_features: int,
    *,
    noise_sd: float,
    feature_var: float = 1.0,
    share: float = 0.3,
    seed: int = 0,
    name: str | None = None,
) -> Workload:
    """Independent bits with P(1) = `share`, Gaussian features."""
    rng = np.random.default_rng([seed, n_rows, n_dims, n_features])
    Z = (rng.random((n_rows, n_features)) < share).astype(np.uint8)
    A = np.sqrt(feature_var) * rng.standard_normal((n_features, n_dims))
    X = Z @ A + noise_sd * rng.standard_normal((n_rows, n_dims))
    name = name or f"{n_rows} x {n_dims} K {n_features} sd {noise_sd:g}"
    return Workload(name, X, Z, noise_sd**2, feature_var)


def bars(n_rows: int = 500, *, noise_sd: float = 0.5) -> Workload:
    """Four glyphs on a 6 x 6 grid."""
    data = datasets.bars(n_rows, noise_var=noise_sd**2, random_state=0)
    assert data.Z is not None
    return Workload(f"bars {n_rows} x 36", data.X, data.Z.astype(np.uint8), noise_sd**2, 1.0)


_LINEAR = {  # name: (n_rows, n_dims, n_features, noise_sd)
    "1000 x 100 sharp": (1000, 100, 15, 0.5),
    "1000 x 100 diffuse": (1000, 100, 15, 3.0),
    "10000 x 100 sharp": (10_000, 100, 20, 0.5),
    "10000 x 100 diffuse": (10_000, 100, 20, 3.0),
    "721 x 1024 sharp": (721, 1024, 25, 0.5),
    "721 x 1024 diffuse": (721, 1024, 25, 8.0),
}

NAMES = ("bars 500 x 36", *_LINEAR)


def make(name: str) -> Workload:
    """One of NAMES."""
    if name == NAMES[0]:
        return bars()
    n_rows, n_dims, n_features, noise_sd = _LINEAR[name]
    return linear(n_rows, n_dims, n_features, noise_sd=noise_sd, name=name)


def small_ratio(n_rows: int = 100, n_dims: int = 4) -> Workload:
    """Pure noise of variance 1 at noise_var = 1e-4, feature_var = 1, from a Z that has nothing to do with it.

    Nearly every row needs features of its own, so that taking a row out is ill-conditioned: work for the drift guard.
    """
    rng = np.random.default_rng([0, n_rows, n_dims])
    Z = (rng.random((n_rows, 4)) < 0.3).astype(np.uint8)
    X = rng.standard_normal((n_rows, n_dims))
    return Workload(f"{n_rows} x {n_dims} of pure noise, noise_var / feature_var = 1e-4", X, Z, 1e-4, 1.0)
