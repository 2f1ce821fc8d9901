"""Figures of data whose rows are pictures: the features as tiles, the data against their reconstruction."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from thali.errors import InvalidDataError
from thali.report import style


def feature_images(
    features: ArrayLike,
    image_shape: tuple[int, int],
    prevalence: ArrayLike | None = None,
    max_features: int = 40,
) -> Figure:
    """Draw each feature as a picture on one colour scale, symmetric about 0.

    With `prevalence` (the share of rows that have each feature) the most frequent come first.
    """
    images = _pictures(features, image_shape, "features")
    total = len(images)
    if total == 0:
        return style.message_figure("no features")
    shares = None if prevalence is None else np.asarray(prevalence, dtype=float)
    if shares is not None and shares.shape != (total,):
        raise InvalidDataError(f"prevalence must have one share for each of {total} features, got {shares.shape}")
    order = np.arange(total) if shares is None else np.argsort(-shares, kind="stable")
    order = order[:max_features]
    n_columns = len(order) if len(order) <= 6 else min(8, -(-len(order) // 2))
    n_lines = -(-len(order) // n_columns)

    figure = style.new_figure(1.15 * n_columns + 0.9, 1.35 * n_lines + 0.5)
    limit = _limit(images[order])
    tiles: list[Axes] = []
    for rank, index in enumerate(order, 1):
        axes = figure.add_subplot(n_lines, n_columns, rank)
        shown = axes.imshow(images[index], cmap=style.colour_map(style.DIVERGING), vmin=-limit, vmax=limit)
        title = f"{rank}" if shares is None else f"{rank}  ·  {style.percent(shares[index])}"
        axes.set_title(title, fontsize=8, color=style.INK, pad=3)
        style.picture_axes(axes)
        tiles.append(axes)
    style.colour_bar(figure, shown, tiles, "value", height=1.35 * n_lines)
    what = style.count(total, "feature")
    what = what if len(order) == total else f"{len(order)} of {what}"
    style.figure_headline(figure, what if shares is None or total == 1 else f"{what}, by share of rows")
    return figure


def data_and_reconstruction(
    X_rows: ArrayLike, reconstruction_rows: ArrayLike, image_shape: tuple[int, int], max_rows: int = 8
) -> Figure:
    """Draw rows of data above their reconstructions and above what is left over; missing cells are grey."""
    data = _pictures(X_rows, image_shape, "X_rows")
    fitted = _pictures(reconstruction_rows, image_shape, "reconstruction_rows")
    if len(data) != len(fitted):
        raise InvalidDataError(f"got {len(data)} rows of data but {len(fitted)} reconstructions; give as many")
    if len(data) == 0:
        return style.message_figure("no rows")
    total, data, fitted = len(data), data[:max_rows], fitted[:max_rows]
    left = data - fitted
    known = np.concatenate([data[np.isfinite(data)], fitted[np.isfinite(fitted)]])
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    limit = _limit(left)

    figure = style.new_figure(1.1 * len(data) + 1.5, 3.9)
    grid = figure.subplots(3, len(data), squeeze=False)
    lines = (("data", data), ("reconstruction", fitted), ("residual", left))
    for axes_line, (label, pictures) in zip(grid, lines, strict=True):
        is_residual = label == "residual"
        colours = style.colour_map(style.DIVERGING if is_residual else style.SEQUENTIAL)
        lowest, highest = (-limit, limit) if is_residual else (low, high)
        for axes, picture in zip(axes_line, pictures, strict=True):
            shown = axes.imshow(picture, cmap=colours, vmin=lowest, vmax=highest)
            style.picture_axes(axes)
        axes_line[0].set_ylabel(label, fontsize=9, color=style.INK)
        if label != "data":
            over = grid[:2] if label == "reconstruction" else grid[2:]
            name = "residual" if is_residual else "value"
            style.colour_bar(figure, shown, list(over.ravel()), name, height=1.1 * len(over))
    what = style.count(total, "row")
    what = what if total == len(data) else f"First {len(data)} of {what}"
    missing = "; missing cells in grey" if np.isnan(data).any() else ""
    style.figure_headline(figure, f"{what}{missing}")
    return figure


def _pictures(rows: ArrayLike, image_shape: tuple[int, int], name: str) -> np.ndarray:
    """Return rows as (n, height, width)."""
    values = np.asarray(rows, dtype=float)
    height, width = image_shape
    if values.ndim != 2 or (len(values) and values.shape[1] != height * width):
        raise InvalidDataError(
            f"{name} must have the shape (n, {height * width}) to be pictures of {height} x {width}, got {values.shape}"
        )
    return values.reshape(len(values), height, width)


def _limit(values: np.ndarray) -> float:
    """Return the end of a colour scale that is symmetric about 0."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
