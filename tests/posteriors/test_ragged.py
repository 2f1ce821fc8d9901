"""Lists of arrays packed into two flat arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thali.posteriors.ragged import Ragged

shapes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=6)


@settings(deadline=None, derandomize=True)
@given(shapes, st.sampled_from([np.uint8, np.float64, np.int64]), st.integers(0, 2**32 - 1))
def test_round_trip(shapes, dtype, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(2, size=shape).astype(dtype) for shape in shapes]
    ragged = Ragged.pack(arrays)
    assert len(ragged) == len(arrays)
    assert ragged.is_sound()
    again = Ragged(ragged.values, ragged.shapes)
    for i, array in enumerate(arrays):
        for packed in (ragged[i], again[i]):
            assert packed.dtype == dtype
            assert packed.shape == array.shape
            assert np.array_equal(packed, array)


@pytest.mark.parametrize("ndim", [0, 1, 3])
def test_other_numbers_of_axes(ndim, rng):
    arrays = [rng.standard_normal((2,) * ndim) for _ in range(3)]
    ragged = Ragged.pack(arrays)
    assert all(np.array_equal(ragged[i], a) for i, a in enumerate(arrays))


def test_binary_arrays_take_one_bit_per_cell():
    assert Ragged.pack([np.ones((8, 100), np.uint8)]).values.size == 100


def test_what_comes_out_is_a_copy():
    ragged = Ragged.pack([np.zeros((2, 2))])
    ragged[0][:] = 5
    assert (ragged[0] == 0).all()


def test_an_unsound_pair_is_noticed():
    ragged = Ragged.pack([np.zeros((2, 2)), np.zeros((1, 3))])
    assert not Ragged(ragged.values[:-1], ragged.shapes).is_sound()
    assert not Ragged(ragged.values, ragged.shapes[:1]).is_sound()
    assert not Ragged(ragged.values, -ragged.shapes).is_sound()


def test_index_out_of_range_is_an_error():
    ragged = Ragged.pack([np.zeros((2, 2))])
    with pytest.raises(IndexError):
        ragged[1]
