"""Small data sets to try a model on, each with its known answer where it has one.

`bars` and `blocks` are simulated from X = Z A + noise with features one can look at, `counts` from Poisson((Z * W) A);
`digits` is real.
"""

import math
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np

from thali.errors import InvalidParameterError
from thali.rng import Seed, make_generator

__all__ = ["Dataset", "bars", "blocks", "counts", "digits"]

_GLYPHS = (
    """
    .#....
    ###...
    .#....
    ......
    ......
    ......
    """,
    """
    ...###
    ...#.#
    ...###
    ......
    ......
    ......
    """,
    """
    ......
    ......
    ......
    #.....
    ##....
    ###...
    """,
    """
    ......
    ......
    ......
    ...###
    ....#.
    ....#.
    """,
)

_BLOCK_CORNERS = ((0, 0), (0, 2), (1, 3), (2, 1), (2, 4), (3, 3), (4, 2), (4, 4))
_BLOCK_SIDE = 4
_HILL = 20  # dims of a feature of `counts`


class Dataset(NamedTuple):
    """Data with the truth behind them; `Z`, `features` and `noise_var` are None where it is unknown."""

    name: str
    X: np.ndarray  # (n_rows, n_dims)
    Z: np.ndarray | None  # (n_rows, n_features) of 0 and 1
    features: np.ndarray | None  # (n_features, n_dims)
    noise_var: float | None
    image_shape: tuple[int, int] | None  # a row of X or of features, reshaped to this, is a picture
    description: str


def bars(n_rows: int = 500, *, noise_var: float = 0.25, random_state: Seed = 0) -> Dataset:
    """Simulate the demonstration of Griffiths and Ghahramani: four glyphs on a 6 x 6 grid.

    Each row has each glyph with probability 1/2, independently; the glyphs do not overlap. The right
    answer is K = 4, and any sound method should find it.
    """
    features = np.array([[char == "#" for char in "".join(glyph.split())] for glyph in _GLYPHS], dtype=float)
    description = "four glyphs on a 6 x 6 grid (Griffiths and Ghahramani), each in half of the rows"
    return _simulate("bars", features, (6, 6), 0.5, description, n_rows, noise_var, random_state)


def blocks(n_rows: int = 500, *, noise_var: float = 0.25, random_state: Seed = 0) -> Dataset:
    """Simulate eight overlapping 4 x 4 squares on an 8 x 8 grid, each in a row with probability 0.35.

    Harder than `bars`: most pixels belong to several squares, so that features explain each other away
    and a sampler can get caught with merged or split squares. The right answer is K = 8.
    """
    pictures = np.zeros((len(_BLOCK_CORNERS), 8, 8))
    for picture, (top, left) in zip(pictures, _BLOCK_CORNERS, strict=True):
        picture[top : top + _BLOCK_SIDE, left : left + _BLOCK_SIDE] = 1.0
    features = pictures.reshape(len(pictures), -1)
    description = "eight overlapping 4 x 4 squares on an 8 x 8 grid, each in 35 % of the rows"
    return _simulate("blocks", features, (8, 8), 0.35, description, n_rows, noise_var, random_state)


def counts(n_rows: int = 400, *, row_size: float = 60.0, random_state: Seed = 0) -> Dataset:
    """Simulate counts of 60 dims, words of documents say, made by six overlapping features, each in 35 % of the rows.

    A feature is a hill over 20 neighbouring dims and shares half of them with the next. In a row that has it, it makes
    a Poisson number of counts whose mean varies from row to row, Gamma distributed with shape 2; all features together
    make `row_size` on average. The right answer is K = 6; about one row in thirteen is empty.
    """
    _check(n_rows, row_size, "row_size")
    rng = make_generator(random_state)
    hill = np.minimum(np.arange(1, _HILL + 1), np.arange(_HILL, 0, -1.0))
    n_features, share = 6, 0.35
    features = np.zeros((n_features, n_features * _HILL // 2))
    features[:, :_HILL] = hill / hill.sum()
    features = np.array([np.roll(row, k * _HILL // 2) for k, row in enumerate(features)])
    Z = (rng.random((n_rows, n_features)) < share).astype(np.int64)
    weights = rng.gamma(2.0, 0.5 * row_size / (share * n_features), Z.shape)
    X = rng.poisson((Z * weights) @ features).astype(float)
    description = "counts of 60 dims made by six overlapping features, each in 35 % of the rows"
    return Dataset("counts", X, Z, features, None, None, description)


def digits() -> Dataset:
    """Load the 1797 handwritten digits bundled with scikit-learn: 8 x 8 pixels with values from 0 to 1."""
    from sklearn.datasets import load_digits

    pixels, _ = load_digits(return_X_y=True)
    description = "1797 handwritten digits of 8 x 8 pixels (UCI, bundled with scikit-learn), values from 0 to 1"
    return Dataset("digits", pixels / 16.0, None, None, None, (8, 8), description)


def _simulate(
    name: str,
    features: np.ndarray,
    image_shape: tuple[int, int],
    share: float,
    description: str,
    n_rows: int,
    noise_var: float,
    random_state: Seed,
) -> Dataset:
    """Draw X = Z A + noise, where each row has each feature with probability `share`."""
    _check(n_rows, noise_var, "noise_var")
    rng = make_generator(random_state)
    Z = (rng.random((n_rows, len(features))) < share).astype(np.int64)
    noise = rng.standard_normal((n_rows, features.shape[1]))
    X = Z @ features + math.sqrt(noise_var) * noise
    return Dataset(name, X, Z, features, float(noise_var), image_shape, description)


def _check(n_rows: int, size: float, name: str) -> None:
    if not isinstance(n_rows, Integral) or isinstance(n_rows, bool) or n_rows < 1:
        raise InvalidParameterError(f"n_rows must be a whole number of at least 1, got {n_rows!r}")
    is_number = isinstance(size, Real) and not isinstance(size, bool)
    if not is_number or not math.isfinite(size) or size < 0:
        hint = " (a variance, not a standard deviation)" if name == "noise_var" else ""
        raise InvalidParameterError(f"{name} must be a finite number of at least 0{hint}, got {size!r}")
