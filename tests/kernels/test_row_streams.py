"""Streams of rows: against their twin, and known numbers of splitmix64; rows have nothing in common."""

import numba
import numpy as np
import pytest
from reference import row_streams as twin

from thali.kernels import row_streams as kernel
from thali.testing import z_limit


@numba.njit
def numbers(key, row, n, is_normal):
    stream = np.zeros(1, np.uint64)
    stream[0] = kernel.start_stream(key, row)
    out = np.empty(n)
    for i in range(n):
        out[i] = kernel.normal(stream, 0) if is_normal else kernel.uniform(stream, 0)
    return out


@pytest.mark.parametrize("is_normal", [False, True])
@pytest.mark.parametrize("key", [0, 12345, 2**64 - 1])
def test_streams_equal_their_twin(key, is_normal):
    for row in (0, 1, 10**9):
        stream = np.zeros(1, np.uint64)
        stream[0] = twin.start_stream(key, row)
        theirs = [(twin.normal if is_normal else twin.uniform)(stream, 0) for _ in range(20)]
        np.testing.assert_allclose(numbers(np.uint64(key), row, 20, is_normal), theirs, rtol=1e-12)


def test_the_mixing_is_that_of_splitmix64():
    """Its first three numbers from the seed 1234567, as its authors' code gives them."""
    known = (6457827717110365317, 3203168211198807973, 9817491932198370423)
    assert tuple(twin.mixed((1234567 + (i + 1) * twin.STEP) & twin.MASK) for i in range(3)) == known


def test_rows_are_independent(rng):
    key = rng.integers(2**64, dtype=np.uint64)
    n = 1000
    u = np.array([numbers(key, row, n, False) for row in range(200)])
    assert len(np.unique(u)) == u.size
    z = np.concatenate([(u.mean(axis=0) - 0.5) * np.sqrt(12 * 200), (u.mean(axis=1) - 0.5) * np.sqrt(12 * n)])
    assert np.abs(z).max() <= z_limit(len(z))
    pairs = 12 * np.sqrt(n) * np.mean((u[1:] - 0.5) * (u[:-1] - 0.5), axis=1)  # of neighbours
    assert np.abs(pairs).max() <= z_limit(len(pairs))


def test_normals_are_normal(rng):
    x = np.sort(numbers(rng.integers(2**64, dtype=np.uint64), 3, 100_000, True))
    moments = np.array([x.mean(), (x**2).mean() - 1, (x**3).mean(), (x**4).mean() - 3])
    z = moments * np.sqrt(len(x) / np.array([1.0, 2.0, 15.0, 96.0]))
    assert np.abs(z).max() <= z_limit(4), z
