"""Simulated data sets with a known answer, easy and hard, shared by the quality benchmarks.

Each is a pure function of its seed; the default seeds are those of the recorded figures.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from thali import datasets


class QualitySet(NamedTuple):
    """X = Z A + noise, or (Z * W) A + noise, and what made it."""

    name: str
    X: np.ndarray  # (n_rows, n_dims)
    Z: np.ndarray  # (n_rows, n_features) uint8
    features: np.ndarray  # (n_features, n_dims)
    noise_var: float
    right: str  # the right K is that of the "truth", of the "best" mode known, or "open"
    law: str = "none"  # of the weights: "normal" or "laplace", or there are none
    W: np.ndarray | None = None  # (n_rows, n_features)

    @property
    def codes(self) -> np.ndarray:
        return self.Z if self.W is None else self.Z * self.W


def _linear(name: str, rng: np.random.Generator, Z: np.ndarray, n_dims: int, noise_sd: float, right: str) -> QualitySet:
    """Gaussian features of variance 1."""
    features = rng.standard_normal((Z.shape[1], n_dims))
    X = Z @ features + noise_sd * rng.standard_normal((len(Z), n_dims))
    return QualitySet(name, X, Z.astype(np.uint8), features, noise_sd**2, right)


def _independent(
    name: str,
    seed: int,
    shape: tuple[int, int, int],
    *,
    share: float = 0.3,
    noise_sd: float = 0.5,
    right: str = "truth",
) -> QualitySet:
    """Each row has each feature with probability `share`; `shape` is (n_rows, n_dims, n_features)."""
    n_rows, n_dims, n_features = shape
    rng = np.random.default_rng(seed)
    Z = rng.random((n_rows, n_features)) < share
    return _linear(name, rng, Z, n_dims, noise_sd, right)


def _pictures(name: str, data: datasets.Dataset) -> QualitySet:
    assert data.Z is not None
    assert data.features is not None
    assert data.noise_var is not None
    return QualitySet(name, data.X, data.Z.astype(np.uint8), data.features, data.noise_var, "truth")


def bars(noise_var: float, seed: int = 100) -> QualitySet:
    """Four glyphs that do not overlap, each in half of 500 rows. The traps are sums and differences of glyphs."""
    return _pictures(f"bars-{noise_var:g}", datasets.bars(500, noise_var=noise_var, random_state=seed))


def blocks(seed: int = 7) -> QualitySet:
    """Eight squares that share up to 12 of their 16 pixels, each in 35 % of 500 rows."""
    return _pictures("blocks", datasets.blocks(500, noise_var=0.25, random_state=seed))


def small(seed: int = 6) -> QualitySet:
    """60 x 30, K = 6: few rows."""
    return _independent("small", seed, (60, 30, 6))


def ibp(seed: int = 3) -> QualitySet:
    """300 x 40 with Z from the Indian buffet process of mass 3: 17 features, held by 108 rows down to one row."""
    n_rows, mass = 300, 3.0
    rng = np.random.default_rng(seed)
    Z = np.zeros((n_rows, 400), dtype=np.uint8)
    K = 0
    for n in range(n_rows):
        if K > 0:
            Z[n, :K] = rng.random(K) < Z[:n, :K].sum(axis=0) / (n + 1.0)
        n_new = rng.poisson(mass / (n + 1.0))
        Z[n, K : K + n_new] = 1
        K += n_new
    return _linear("ibp", rng, Z[:, :K], 40, 0.5, "best")


def mid(seed: int = 11) -> QualitySet:
    """2000 x 50, K = 10, each feature in a fifth of the rows, noise as large as the features."""
    return _independent("mid", seed, (2000, 50, 10), share=0.2, noise_sd=1.0)


def wide(seed: int = 0) -> QualitySet:
    """500 x 500, K = 20."""
    return _independent("wide", seed, (500, 500, 20))


def excl(seed: int = 4) -> QualitySet:
    """Dependent features: two groups of four of which each row has one, and two nested pairs.

    Other encodings of the same data have more posterior mass than the one that made them.
    """
    n_rows = 500
    rng = np.random.default_rng(seed)
    Z = np.zeros((n_rows, 12), dtype=np.uint8)
    for first in (0, 4):
        Z[np.arange(n_rows), first + rng.integers(0, 4, n_rows)] = 1
    for outer in (8, 10):
        Z[:, outer] = rng.random(n_rows) < 0.5
        Z[:, outer + 1] = Z[:, outer] * (rng.random(n_rows) < 0.5)
    return _linear("excl", rng, Z, 30, 0.5, "open")


def over(seed: int = 5) -> QualitySet:
    """800 x 5, K = 8: more features than dims, which no spectral method can see."""
    return _independent("over", seed, (800, 5, 8), noise_sd=0.15, right="open")


def _weighted(
    name: str, seed: int, shape: tuple[int, int, int], law: str, *, share: float, noise_sd: float, alike: float = 0.0
) -> QualitySet:
    """As `_independent` with weights of scale 1; `alike` is the cosine of the first two features."""
    n_rows, n_dims, n_features = shape
    rng = np.random.default_rng(seed)
    Z = rng.random((n_rows, n_features)) < share
    W = rng.standard_normal(Z.shape) if law == "normal" else rng.laplace(size=Z.shape)
    features = rng.standard_normal((n_features, n_dims))
    features[1] = alike * features[0] + np.sqrt(1 - alike**2) * features[1]
    X = (Z * W) @ features + noise_sd * rng.standard_normal((n_rows, n_dims))
    return QualitySet(name, X, Z.astype(np.uint8), features, noise_sd**2, "truth", law, W)


def factors(seed: int = 20) -> QualitySet:
    """300 x 20, K = 5 with normal weights; two features are much alike."""
    return _weighted("factors", seed, (300, 20, 5), "normal", share=0.3, noise_sd=0.5, alike=0.7)


def many_factors(seed: int = 21) -> QualitySet:
    """500 x 100, K = 12 with normal weights."""
    return _weighted("many-factors", seed, (500, 100, 12), "normal", share=0.3, noise_sd=0.5)


def sources(seed: int = 22) -> QualitySet:
    """2500 x 10, K = 5 with Laplace weights: speakers who are silent half of the time, in ten microphones."""
    return _weighted("sources", seed, (2500, 10, 5), "laplace", share=0.5, noise_sd=0.2)


SETS: dict[str, Callable[[], QualitySet]] = {
    "bars-0.0625": lambda: bars(0.0625),
    "bars-0.25": lambda: bars(0.25),
    "bars-1": lambda: bars(1.0),
    "blocks": blocks,
    "small": small,
    "ibp": ibp,
    "mid": mid,
    "wide": wide,
    "excl": excl,
    "over": over,
}

WEIGHTED_SETS: dict[str, Callable[[], QualitySet]] = {
    "factors": factors,
    "many-factors": many_factors,
    "sources": sources,
}
