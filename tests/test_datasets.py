"""The bundled data sets: their truth is what they say it is."""

import numpy as np
import pytest

from thali import datasets
from thali.errors import InvalidParameterError

SIMULATED = [(datasets.bars, 4, (6, 6), 0.5), (datasets.blocks, 8, (8, 8), 0.35)]


@pytest.mark.parametrize(("make", "n_features", "image_shape", "share"), SIMULATED)
def test_shapes_and_kinds(make, n_features, image_shape, share):
    data = make(30)
    n_dims = image_shape[0] * image_shape[1]
    assert data.X.shape == (30, n_dims)
    assert data.X.dtype == np.float64
    assert data.Z.shape == (30, n_features)
    assert set(np.unique(data.Z)) == {0, 1}
    assert data.features.shape == (n_features, n_dims)
    assert data.image_shape == image_shape
    assert data.noise_var == 0.25
    assert data.name == make.__name__
    assert data.description


@pytest.mark.parametrize(("make", "n_features", "image_shape", "share"), SIMULATED)
def test_rows_are_features_plus_noise_of_the_stated_variance(make, n_features, image_shape, share):
    data = make(4000, noise_var=0.09, random_state=3)
    residual = data.X - data.Z @ data.features
    n_cells = residual.size
    assert abs(residual.mean()) < 5 * np.sqrt(0.09 / n_cells)
    assert abs(residual.var() - 0.09) < 5 * 0.09 * np.sqrt(2 / n_cells)
    spread = np.sqrt(share * (1 - share) / len(data.Z))
    assert np.all(np.abs(data.Z.mean(axis=0) - share) < 5 * spread)


@pytest.mark.parametrize("make", [datasets.bars, datasets.blocks])
def test_without_noise_the_features_explain_everything(make):
    data = make(20, noise_var=0)
    np.testing.assert_array_equal(data.X, data.Z @ data.features)


@pytest.mark.parametrize("make", [datasets.bars, datasets.blocks])
def test_the_seed_decides(make):
    np.testing.assert_array_equal(make(10, random_state=1).X, make(10, random_state=1).X)
    assert not np.array_equal(make(10, random_state=1).X, make(10, random_state=2).X)
    by_generator = make(10, random_state=np.random.default_rng(1))
    np.testing.assert_array_equal(by_generator.X, make(10, random_state=1).X)


def test_bars_are_four_separate_glyphs():
    features = datasets.bars(1).features
    assert set(np.unique(features)) == {0.0, 1.0}
    assert features.sum(axis=1).tolist() == [5, 8, 6, 5]  # cross, ring, triangle, T
    assert features.sum(axis=0).max() == 1
    cross = features[0].reshape(6, 6)
    np.testing.assert_array_equal(cross[:3, :3], [[0, 1, 0], [1, 1, 1], [0, 1, 0]])


def test_blocks_are_overlapping_squares():
    pictures = datasets.blocks(1).features.reshape(8, 8, 8)
    corners = [tuple(np.argwhere(picture)[0]) for picture in pictures]
    assert corners == [(0, 0), (0, 2), (1, 3), (2, 1), (2, 4), (3, 3), (4, 2), (4, 4)]
    assert np.all(pictures.sum(axis=(1, 2)) == 16)
    assert pictures.sum(axis=0).max() >= 4
    assert np.linalg.matrix_rank(pictures.reshape(8, 64)) == 8


def test_digits_are_scaled_pictures_of_unknown_truth():
    data = datasets.digits()
    assert data.X.shape == (1797, 64)
    assert (data.X.min(), data.X.max()) == (0.0, 1.0)
    assert data.image_shape == (8, 8)
    assert data.Z is None
    assert data.features is None
    assert data.noise_var is None


@pytest.mark.parametrize("n_rows", [0, -1, 2.5, "many", True, None])
def test_bad_n_rows_is_refused(n_rows):
    with pytest.raises(InvalidParameterError, match="n_rows must be a whole number of at least 1, got"):
        datasets.bars(n_rows)


@pytest.mark.parametrize("noise_var", [-0.1, float("nan"), float("inf"), "little", True, None])
def test_bad_noise_var_is_refused(noise_var):
    with pytest.raises(InvalidParameterError, match="noise_var must be a finite number of at least 0"):
        datasets.blocks(5, noise_var=noise_var)


def test_counts_are_hills_with_weights():
    data = datasets.counts(4000, random_state=3)
    assert data.features.shape == (6, 60)
    np.testing.assert_allclose(data.features.sum(axis=1), 1.0)
    assert ((data.features > 0).sum(axis=1) == 20).all()
    assert (np.floor(data.X) == data.X).all()
    assert not data.X[data.Z.sum(axis=1) == 0].any()
    assert data.X.sum(axis=1).mean() == pytest.approx(60.0, rel=0.05)
    assert data.Z.mean() == pytest.approx(0.35, abs=0.02)
    np.testing.assert_array_equal(datasets.counts(10).X, datasets.counts(10, random_state=0).X)
    with pytest.raises(InvalidParameterError, match="row_size"):
        datasets.counts(10, row_size=-1)
