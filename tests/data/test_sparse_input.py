"""Sparse matrices that point elsewhere: refused before anything follows an index of theirs, or read as they are.

`scipy.sparse` objects can be changed in place and files can say anything, so structures are damaged at random here.
What is taken must have the cells that a plain loop over its entries finds.
"""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from thali import InvalidDataError, LatentFeatures, MeanField, PoissonGamma, StochasticMeanField, metrics
from thali.data.row_blocks import RowBlocks, check_batch
from thali.data.sparse_input import checked_csr
from thali.priors.proximity.distances import as_distances

FORMATS = ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"]
PLACES = [0, 1, 5, 6, 7, 8, 9, -1, -7, 10**9, 2**31 - 1, -(2**31), 2**40, -(2**62)]


def table(rng: np.random.Generator) -> np.ndarray:
    return rng.poisson(0.6, (8, 6)).astype(float)


def loop(X: Any) -> np.ndarray | None:
    """The cells of a matrix in a compressed or a coordinate format, entry by entry; None if one lies outside."""
    cells = np.zeros(X.shape)
    try:
        if X.format == "coo":
            entries = list(zip(X.row.tolist(), X.col.tolist(), X.data.tolist(), strict=True))
        else:
            start = X.indptr.tolist()
            ordered = start[:1] == [0] and start == sorted(start) and len(start) == X._swap(X.shape)[0] + 1
            if not ordered or len(X.data) != len(X.indices) or start[-1] > len(X.indices):
                return None
            major = [i for i in range(len(start) - 1) for _ in range(start[i], start[i + 1])]
            minor, data = X.indices.tolist()[: start[-1]], X.data.tolist()[: start[-1]]
            rows, dims = X._swap((major, minor))
            entries = list(zip(rows, dims, data, strict=True))
    except (ValueError, TypeError):
        return None
    for row, dim, value in entries:
        if not (isinstance(row, int) and isinstance(dim, int) and 0 <= row < X.shape[0] and 0 <= dim < X.shape[1]):
            return None
        cells[row, dim] += value
    return cells


def damage(rng: np.random.Generator, X: Any) -> None:
    """Change one array of a matrix in place, or put another in its place."""
    names = ["coords"] if X.format == "coo" else ["indices", "indptr"]
    name = names[int(rng.integers(len(names)))]
    which = int(rng.integers(2))
    array = X.coords[which] if name == "coords" else getattr(X, name)
    sort = ["place", "place", "place", "order", "cut", "longer", "type", "values", "shape"][int(rng.integers(9))]
    if sort == "place" and len(array):
        array = array.astype(np.int64)
        array[int(rng.integers(len(array)))] = PLACES[int(rng.integers(len(PLACES)))]
    elif sort == "order":
        array = rng.permutation(array)
    elif sort == "cut":
        array = array[: int(rng.integers(len(array) + 1))]
    elif sort == "longer":
        array = np.concatenate([array, array[:1]])
    elif sort == "type":
        kinds = ["f8", "i1", "u8", "u1", "b1", ">i4", "O", "c16"]
        array = array.astype(kinds[int(rng.integers(len(kinds)))])
    elif sort == "values":
        X.data = X.data[: int(rng.integers(len(X.data) + 1))]
    elif sort == "shape":
        X._shape = (int(rng.integers(12)), int(rng.integers(9)))
    if name == "coords":
        X.coords = (array, X.coords[1]) if which == 0 else (X.coords[0], array)
    else:
        setattr(X, name, array)


def try_many(rng: np.random.Generator, n: int) -> tuple[int, int]:
    """(taken, refused): each as the loop says."""
    taken = refused = 0
    for i in range(n):
        X = sparse.csr_array(table(rng)).asformat(["csr", "csc", "coo"][i % 3])
        if rng.integers(2):  # flags that were right once
            X.has_canonical_format = True
        damage(rng, X)
        cells = loop(X)
        try:
            found = checked_csr(X)
        except InvalidDataError:
            refused += 1
            whole = X.format == "coo" or X.indptr.dtype.kind in "iu"
            kinds = X.coords if X.format == "coo" else (X.indices, X.indptr)
            integral = all(part.dtype.kind in "iu" for part in kinds)
            assert cells is None or not (whole and integral), (X.format, X.__dict__)
        else:
            taken += 1
            assert cells is not None, (X.format, X.__dict__)
            assert np.array_equal(found.toarray(), cells)
            assert found.has_canonical_format
    return taken, refused


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "b1"])
def test_every_format_is_read(rng, kind, dtype):
    X = table(rng).astype(dtype)
    for make in (sparse.csr_array, sparse.csr_matrix):
        given = make(X).asformat(kind)
        found = checked_csr(given)
        assert found.dtype == np.float64
        assert np.array_equal(found.toarray(), X.astype(float))
        assert not (found.data == 0).any()


def test_duplicates_are_summed_and_the_matrix_stays_as_it_is():
    parts = np.array([1.0, 2.0, 3.0]), np.array([4, 4, 0]), np.array([0, 3])
    X = sparse.csr_array(parts, shape=(1, 6))
    X.has_canonical_format = True  # which is not so
    assert checked_csr(X).toarray().tolist() == [[3.0, 0, 0, 0, 3.0, 0]]
    assert X.indices.tolist() == [4, 4, 0]


def test_random_damage(rng):
    taken, refused = try_many(rng, 300)
    assert taken > 20
    assert refused > 100


@pytest.mark.slow
def test_much_random_damage(rng):
    try_many(rng, 30_000)


def changed(kind: str) -> Any:
    """A matrix of 8 x 6 with one index outside."""
    X = sparse.csr_array(table(np.random.default_rng(0))).asformat(kind)
    if kind in ("csr", "csc", "bsr"):
        X.indices[0] = 10**9
    elif kind == "coo":
        X.coords[1][0] = -7
    elif kind == "dia":
        X.offsets = X.offsets + 10**6
    elif kind == "lil":
        X.rows[0] = [10**9] * len(X.data[0])
        X.data[0] = X.data[0] or [1.0]
        X.rows[0] = X.rows[0] or [10**9]
    else:
        X._dict[99, 99] = 1.0
    return X


@pytest.fixture(scope="module")
def fitted() -> LatentFeatures:
    X = sparse.csr_array(table(np.random.default_rng(0)))
    return LatentFeatures(PoissonGamma(), inference=MeanField(n_restarts=1, max_iter=3), random_state=0).fit(X)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_door_is_guarded(kind, fitted):
    blocks = LatentFeatures(PoissonGamma(), inference=StochasticMeanField())
    doors = [
        LatentFeatures(PoissonGamma()).fit, blocks.fit, blocks.partial_fit, lambda X: blocks.fit(iter([X])),
        fitted.transform, fitted.presence, fitted.score_samples, fitted.novelty,
        PoissonGamma().check_data, metrics.split_tokens, lambda X: metrics.perplexity(np.ones((8, 6)), X),
        check_batch, lambda X: RowBlocks(X, 3),
    ]  # fmt: skip
    for door in doors:
        with pytest.raises(InvalidDataError):
            door(changed(kind))


def test_distances_are_guarded():
    D = sparse.csr_array(np.eye(4) + 1)
    D.indices[0] = 10**9
    with pytest.raises(InvalidDataError, match="hold together"):
        as_distances(D)
