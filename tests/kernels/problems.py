"""Inputs for kernels, and kernels with a deliberate mistake."""

import inspect
import sys
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from thali.core.binary import non_empty
from thali.observations.gaussian.data import GaussianData, block_products
from thali.priors import IBP, BetaBernoulli

seeds = st.integers(0, 2**32 - 1)
few = settings(deadline=None, derandomize=True, max_examples=25)
many = settings(deadline=None, derandomize=True, max_examples=100)


def plain(kernel):
    """The kernel as plain Python (with NUMBA_DISABLE_JIT=1 it is that already)."""
    return getattr(kernel, "py_func", kernel)


def mutant(kernel, old: str, new: str):
    """The kernel as plain Python with a piece of its source replaced: a check that cannot tell is no check."""
    function = plain(kernel)
    source = inspect.getsource(function)
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {function.__name__}"
    names = dict(vars(sys.modules[function.__module__]))
    exec(source.replace(old, new), names)
    return names[function.__name__]


def bits(rng, kind: str, n_rows: int, K: int):
    """Z of some shape: `random`, `zero` rows among them, `own` columns of one row each, `twins` (equal columns)."""
    Z = (rng.random((n_rows, K)) < 0.5).astype(np.uint8)
    if kind == "zero":
        Z[:: 2 if n_rows > 1 else 1] = 0
    elif kind == "own":
        Z[:] = 0
        Z[rng.integers(n_rows, size=K), np.arange(K)] = 1
    elif kind == "twins":
        Z[:, 1:] = Z[:, :1]
    return Z


class Sweep:
    """Arguments of `collapsed_sweep`, with room for `room` columns; `run` calls a kernel as `LinearGaussian` does."""

    def __init__(self, rng, Z, n_dims: int, *, missing=0.0, prior: Any = None, ratio=0.5, noise_var=0.7, room=60):
        prior = IBP(mass=1.3) if prior is None else prior
        if not isinstance(prior, BetaBernoulli):
            Z = non_empty(Z)
        n_rows, K = Z.shape
        self.noise_var, self.feature_var = noise_var, noise_var / ratio
        A = np.sqrt(self.feature_var) * rng.standard_normal((K, n_dims))
        X = Z @ A + np.sqrt(noise_var) * rng.standard_normal((n_rows, n_dims))
        holes = rng.random(X.shape) < missing
        holes[np.arange(n_rows), rng.integers(n_dims, size=n_rows)] = False
        self.data = GaussianData(np.where(holes, np.nan, X))
        self.X = X  # the missing cells start at arbitrary values
        self.block_gram, self.square = block_products(X)
        if isinstance(prior, BetaBernoulli):
            prior = prior.replace(n_features=max(K, 1))
            room = K
        self.log_odds, self.new_rate = prior.log_odds(n_rows), prior.new_rate(n_rows)
        self.K, self.Z, self.gram, self.cross = K, np.zeros((n_rows, 0), np.uint8), np.zeros((0, 0)), np.zeros((0, 0))
        Z = Z.astype(float)
        self._grow(Z, Z.T @ Z, Z.T @ X, max(room, K, 1))

    def _grow(self, Z, gram, cross, room: int) -> None:
        K = Z.shape[1]
        self.Z = np.zeros((len(Z), room), np.uint8)
        self.gram, self.cross = np.zeros((room, room)), np.zeros((room, self.X.shape[1]))
        self.Z[:, :K], self.gram[:K, :K], self.cross[:K] = Z, gram, cross

    def run(self, kernel, rng, n_sweeps=1, group=1):
        """(n_overflows, n_changed, n_rebuilt, largest drift)."""
        overflows, changed, rebuilt, drift = 0, 0, 0, 0.0
        for _ in range(n_sweeps):
            row, pending = 0, -1
            keys = rng.random(500)
            while row < len(self.X):
                self.K, row, pending, n_changed, n_rebuilt, now = kernel(
                    self.X, self.square, self.block_gram, self.data.free_start, self.data.free_dim,
                    self.Z, self.K, self.gram, self.cross, self.log_odds, self.new_rate,
                    self.noise_var, self.feature_var, group, keys, row, pending, rng,
                )  # fmt: skip
                changed, rebuilt, drift = changed + n_changed, rebuilt + n_rebuilt, max(drift, now)
                if row < len(self.X):
                    overflows += 1
                    K = self.K
                    self._grow(self.Z[:, :K], self.gram[:K, :K], self.cross[:K], K + pending)
        return overflows, changed, rebuilt, drift

    def results(self) -> dict[str, np.ndarray]:
        K = self.K
        return {
            "Z": self.Z[:, :K],
            "gram": self.gram[:K, :K],
            "cross": self.cross[:K],
            "X": self.X,
            "block_gram": self.block_gram,
            "square": self.square,
        }

    def assert_consistent(self, tolerance=1e-8) -> None:
        """gram, cross, block_gram and square are those of Z and X; columns without a member only in a finite prior."""
        Z, scale = self.Z[:, : self.K].astype(float), max(1.0, np.abs(self.X).max() ** 2)
        assert not self.Z[:, self.K :].any()
        assert np.array_equal(self.gram[: self.K, : self.K], Z.T @ Z)
        if np.isneginf(self.log_odds[0]):
            assert Z.any(axis=0).all()
        np.testing.assert_allclose(self.cross[: self.K], Z.T @ self.X, rtol=tolerance, atol=tolerance * scale)
        block_gram, square = block_products(self.X)
        np.testing.assert_allclose(self.block_gram, block_gram, rtol=tolerance, atol=tolerance * scale)
        np.testing.assert_allclose(self.square, square, rtol=tolerance, atol=tolerance * scale)


def assert_same(a: dict[str, np.ndarray], b: dict[str, np.ndarray], tolerance=1e-8) -> None:
    for name in a:
        assert a[name].shape == b[name].shape, name
        scale = max(1.0, np.abs(b[name]).max(initial=0.0))
        np.testing.assert_allclose(a[name], b[name], rtol=tolerance, atol=tolerance * scale, err_msg=name)
