"""Figures of rows that are near each other: features over time or space, and how many features rows share.

As in `figures`, each function takes plain arrays and returns a matplotlib `Figure`.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from thali.errors import InvalidDataError
from thali.report import style

__all__ = ["features_in_space", "features_over_time", "shared_matrices"]

Array = np.ndarray


def features_over_time(times: ArrayLike, presence: ArrayLike) -> Figure:
    """Draw P(row has feature) against time, a strip for each feature, first those that come first.

    `presence` (n_rows, n_features) is that of `LatentFeatures.presence`; rows may come in any order of time.
    """
    t, P = _numbers(times, "times", 1), _presence(presence)
    if len(t) != len(P):
        raise InvalidDataError(f"times must have one entry for each of {len(P)} rows, got {len(t)}")
    if P.size == 0:
        return style.message_figure("no features" if len(P) else "no rows")
    order = np.argsort(t, kind="stable")
    t, P = t[order], P[order]
    middle = (np.arange(len(t)) @ P) / np.maximum(P.sum(axis=0), 1e-300)  # where its rows are, on average
    shown = np.lexsort((middle, P.sum(axis=0) == 0))
    figure = style.new_figure(7.2, 0.6 + 0.55 * P.shape[1])
    panels = figure.subplots(P.shape[1], 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, feature in zip(panels, shown, strict=True):
        axes.fill_between(t, P[:, feature], step="mid", color=style.BLUE, linewidth=0)
        axes.set_ylim(0, 1)
        axes.set_yticks([])
        axes.set_ylabel(f"{feature + 1}", rotation=0, ha="right", va="center")
        axes.margins(x=0)
        style.quiet_axes(axes)
    panels[-1].set_xlabel("time")
    style.figure_headline(figure, f"P(row has feature), {style.count(P.shape[1], 'feature')}")
    return figure


def features_in_space(points: ArrayLike, presence: ArrayLike) -> Figure:
    """Draw where the rows with each feature are: a map for each, P(row has feature) as the darkness of its points.

    `points` (n_rows, 2) are coordinates; of more than two, give those that are to be seen.
    """
    xy, P = _numbers(points, "points", 2), _presence(presence)
    if xy.shape != (len(P), 2):
        raise InvalidDataError(f"points must have two coordinates for each of {len(P)} rows, got shape {xy.shape}")
    if P.size == 0:
        return style.message_figure("no features" if len(P) else "no rows")
    n_across = min(P.shape[1], 4)
    n_down = -(-P.shape[1] // n_across)
    figure = style.new_figure(0.8 + 2.0 * n_across, 0.3 + 2.1 * n_down)
    panels = figure.subplots(n_down, n_across, sharex=True, sharey=True, squeeze=False).ravel()
    for feature, axes in enumerate(panels):
        if feature >= P.shape[1]:
            axes.set_visible(False)
            continue
        last = np.argsort(P[:, feature], kind="stable")  # dark points above pale ones
        drawn = axes.scatter(
            *xy[last].T, c=P[last, feature], s=14, cmap=style.colour_map(style.SHARE), vmin=0, vmax=1,
            edgecolors="#bbbbbb", linewidths=0.4,
        )  # fmt: skip
        axes.set_aspect("equal", adjustable="box")
        style.headline(axes, f"feature {feature + 1}, {style.percent(P[:, feature].mean())}")
        style.quiet_axes(axes)
    style.colour_bar(figure, drawn, list(panels), "P(row has feature)", height=2.0 * n_down)
    return figure


def shared_matrices(matrices: Mapping[str, ArrayLike], order: ArrayLike | None = None) -> Figure:
    """Draw how many features rows share, E[ZZ'], side by side on one scale: of the prior, of the posterior.

    `prior.expected_shared(...)` and `fit.posterior_.expected_shared()` give them. Rows are shown in the order of the
    values `order`, such as their times; else as they come. The diagonal, what a row shares with itself, is left blank.
    """
    if not matrices:
        return style.message_figure("no matrices")
    tables = {name: _numbers(values, name, 2) for name, values in matrices.items()}
    sizes = {table.shape for table in tables.values()}
    n_rows = max(size[0] for size in sizes)
    if sizes != {(n_rows, n_rows)}:
        raise InvalidDataError(f"the matrices must be square and of one size, got {sorted(sizes)}")
    if n_rows < 2:
        return style.message_figure("no two rows")
    rows = np.arange(n_rows) if order is None else np.argsort(_numbers(order, "order", 1), kind="stable")
    if len(rows) != n_rows:
        raise InvalidDataError(f"order must have one entry for each of {n_rows} rows, got {len(rows)}")
    apart = ~np.eye(n_rows, dtype=bool)
    top = max(float(table[apart].max()) for table in tables.values()) or 1.0
    figure = style.new_figure(0.9 + 2.9 * len(tables), 3.1)
    panels = figure.subplots(1, len(tables), squeeze=False, sharey=True)[0]
    for axes, (name, table) in zip(panels, tables.items(), strict=True):
        values = np.where(apart, table, np.nan)[np.ix_(rows, rows)]
        image = axes.imshow(
            values, cmap=style.colour_map(style.SEQUENTIAL), vmin=0, vmax=top, interpolation="nearest",
            extent=(0.5, n_rows + 0.5, n_rows + 0.5, 0.5),
        )  # fmt: skip
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True, nbins=5, min_n_ticks=1))
        style.headline(axes, f"{name}: {table[apart].mean():.2g} on average")
        style.quiet_axes(axes)
    panels[0].set_ylabel("row" if order is None else "row, in order")
    style.colour_bar(figure, image, list(panels), "features that two rows share", height=2.6)
    return figure


def _presence(values: ArrayLike) -> Array:
    P = _numbers(values, "presence", 2)
    if P.size and (P.min() < 0 or P.max() > 1):
        raise InvalidDataError("presence must be probabilities, from 0 to 1")
    return P


def _numbers(values: ArrayLike, name: str, n_axes: int) -> Array:
    array = np.asarray(values, dtype=float)
    if array.ndim != n_axes or not np.isfinite(array).all():
        what = "a list" if n_axes == 1 else "a matrix"
        raise InvalidDataError(f"{name} must be {what} of finite numbers, got shape {array.shape}")
    return array
