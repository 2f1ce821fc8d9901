"""Data that are read a block of rows at a time."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from thali.data.row_blocks import RowBlocks, check_batch, is_iterator, on_disk
from thali.errors import InvalidDataError


@pytest.fixture
def on_file(tmp_path, rng):
    path = tmp_path / "x.npy"
    np.save(path, rng.normal(size=(25, 3)).astype(np.float32))
    return path


@pytest.mark.parametrize("batch_size", [1, 7, 25, 1000])
def test_blocks_are_all_rows_in_order(on_file, batch_size):
    X = np.load(on_file, mmap_mode="r")
    blocks = RowBlocks(X, batch_size)
    read = [blocks.block(i) for i in range(blocks.n_blocks)]
    np.testing.assert_array_equal(np.vstack(read), X)
    assert {block.dtype for block in read} == {np.dtype(np.float64)}
    assert max(map(len, read)) == min(batch_size, 25)
    assert (blocks.n_rows, blocks.n_dims) == X.shape
    assert blocks.on_disk


def test_a_file_stays_as_it_is(on_file):
    before = on_file.read_bytes()
    blocks = RowBlocks(np.load(on_file, mmap_mode="r"), 10)
    blocks.block(0)[:] = 0.0  # a copy
    assert on_file.read_bytes() == before


def test_views_of_a_memory_map_are_on_disk(on_file):
    X = np.load(on_file, mmap_mode="r")
    assert on_disk(X[3:])
    assert on_disk(np.asarray(X))
    assert not on_disk(np.array(X))
    assert not on_disk([[1.0]])


def test_some_rows(rng):
    X = np.arange(40.0).reshape(20, 2)
    blocks = RowBlocks(X, 6)
    some = blocks.some_rows(rng, 5)
    assert len(some) == 5
    assert np.all(np.diff(some[:, 0]) > 0)
    assert set(some[:, 0]) <= set(X[:, 0])
    np.testing.assert_array_equal(blocks.some_rows(rng, 20), X)


def test_every_block_is_checked():
    seen = []
    blocks = RowBlocks(np.ones((5, 2)), 2, lambda rows: seen.append(len(rows)) or rows)
    for i in range(blocks.n_blocks):
        blocks.block(i)
    assert seen == [2, 2, 1]


def test_sparse_rows_stay_sparse():
    X = csr_matrix(np.eye(5))
    block = RowBlocks(X, 2).block(1)
    np.testing.assert_array_equal(block.toarray(), np.eye(5)[2:4])


def test_iterators():
    assert is_iterator(iter([1]))
    assert is_iterator(x for x in [1])
    assert not is_iterator([1])
    assert not is_iterator(np.ones((2, 2)))


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.ones(3), "must be a matrix.*Got shape"),
        ([[1.0]], "must be a matrix.*Got a list"),
        (np.ones((0, 3)), "must have a row and a dim"),
        (np.array([["a"]]), "must hold real numbers.*Got dtype"),
        (np.ones((2, 2), dtype=complex), "must hold real numbers.*Got dtype"),
    ],
)
def test_what_cannot_be_read(X, words):
    with pytest.raises(InvalidDataError, match=words):
        RowBlocks(X, 10)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.ones((2, 4)), r"shape \(n_rows, 3\), as before,.*Got \(2, 4\)"),
        (np.ones(3), "at least one row"),
        (np.ones((0, 3)), "at least one row"),
        ([["a", "b", "c"]], "real numbers"),
        ([[1.0, np.inf, 0.0]], "squares can be summed. Got inf"),
    ],
)
def test_bad_batches(X, words):
    with pytest.raises(InvalidDataError, match=words):
        check_batch(X, 3)
