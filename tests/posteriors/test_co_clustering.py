"""Who is together with whom, and the draw that shows it best."""

import numpy as np
import pytest

from thali.posteriors.co_clustering import co_clustering


def test_against_pairs_in_full(rng):
    drawn = rng.integers(3, size=(15, 6))
    together, nearest = co_clustering(drawn)
    same = (drawn[:, :, None] == drawn[:, None, :]).astype(float)
    np.testing.assert_allclose(together, same.mean(axis=0))
    gaps = np.sum((same - same.mean(axis=0)) ** 2, axis=(1, 2))
    assert gaps[nearest] == pytest.approx(gaps.min())


def test_numbers_of_classes_do_not_matter(rng):
    drawn = rng.integers(3, size=(15, 6))
    renumbered = np.array([rng.permutation(3)[classes] for classes in drawn])
    np.testing.assert_allclose(co_clustering(renumbered)[0], co_clustering(drawn)[0])
