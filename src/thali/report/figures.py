"""Figures of a fit: each function takes plain arrays and returns a matplotlib `Figure`, without a display."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike

from thali.errors import InvalidDataError, InvalidParameterError
from thali.report import style
from thali.report.pictures import data_and_reconstruction, feature_images

__all__ = [
    "data_and_reconstruction",
    "feature_images",
    "k_posterior",
    "loadings_heatmap",
    "presence_heatmap",
    "save",
    "traces",
]

_FORMATS = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
_NO_DATE = {"png": None, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_LABELS = {
    "n_features": "features K",
    "n_on": "entries on in Z",
    "log_joint": "log joint",
    "mass": "mass",
    "noise_var": "noise variance",
    "feature_var": "feature variance",
}


def k_posterior(probabilities: Mapping[int, float], truth: int | None = None, k: int | None = None) -> Figure:
    """Draw the posterior of the number of features in use as bars, the known answer marked above.

    The number that is reported, `k`, is dark; without one it is the mode.
    """
    if not probabilities:
        raise InvalidParameterError("probabilities must hold at least one number of features, got none")
    values = np.array(list(probabilities.values()), dtype=float)
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise InvalidParameterError(f"probabilities must be finite and at least 0, got {dict(probabilities)}")
    seen = [*probabilities, *(number for number in (truth, k) if number is not None)]
    margin = 1 if max(seen) - min(seen) < 4 else 0  # a lone bar says more with its empty neighbours
    ks = np.arange(max(min(seen) - margin, 0), max(seen) + margin + 1)
    heights = np.array([probabilities.get(int(number), 0.0) for number in ks])
    shown = int(ks[heights.argmax()]) if k is None else k

    figure = style.new_figure(min(3.4 + 0.3 * len(ks), 9.0), 2.9)
    axes = figure.subplots()
    colours = [style.BLUE if number == shown else style.PALE_BLUE for number in ks]
    bars = axes.bar(ks, heights, width=0.75, color=colours)
    if len(ks) <= 16:
        shares = [style.percent(height) if height > 0 else "" for height in heights]
        axes.bar_label(bars, shares, padding=2, fontsize=8, color=style.INK)
        axes.set_xticks(ks)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if truth is not None:
        _mark_truth(axes, truth, on_left=truth > ks.mean())
    axes.set_xlim(ks[0] - 0.9, ks[-1] + 0.9)
    top = heights.max() * 1.2 or 1.0  # room for the labels above the bars
    axes.set_ylim(0, top)
    axes.set_yticks([tick for tick in MaxNLocator(6).tick_values(0, top) if tick <= min(top, 1.0)])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("number of features in use")
    axes.set_ylabel("posterior probability")
    share = style.percent(heights[ks == shown][0])
    style.headline(axes, f"Most probable: K = {shown} ({share})" if k is None else f"Reported: K = {k} ({share})")
    style.quiet_axes(axes, grid=True)
    return figure


def _mark_truth(axes: Axes, truth: int, on_left: bool) -> None:
    """Mark the true K by a triangle at the top, clear of the bars and their labels."""
    top = axes.get_xaxis_transform()
    axes.plot([truth], [0.97], marker="v", markersize=6, color=style.ORANGE, transform=top)
    axes.annotate(
        f"true K = {truth}",
        (truth, 0.97),
        xycoords=top,
        xytext=(-7 if on_left else 7, 0),
        textcoords="offset points",
        ha="right" if on_left else "left",
        va="center",
        fontsize=8,
        color=style.ORANGE,
    )


def presence_heatmap(presence: ArrayLike, max_rows: int = 500) -> Figure:
    """Draw P(row has feature) for all rows and features, with the share of each feature above.

    Features go from frequent to rare, rows in descending lexicographic order of their features (as in the
    left-ordered form), so that groups of rows with the same features show as blocks.
    """
    P = np.asarray(presence, dtype=float)
    if P.ndim != 2:
        raise InvalidDataError(f"presence must be a matrix (rows, features), got shape {P.shape}")
    n_rows, n_features = P.shape
    if P.size == 0:
        return style.message_figure("no features" if n_rows else "no rows")
    shares = P.mean(axis=0)
    P = P[:, np.argsort(-shares, kind="stable")]
    P = P[np.lexsort((P < 0.5).T[::-1])]
    shown = np.unique(np.linspace(0, n_rows - 1, min(n_rows, max_rows)).round().astype(int))

    figure, top, main = _bars_above(np.sort(shares)[::-1], P[shown], style.SHARE, (0.0, 1.0), "P(row has feature)")
    top.set_ylim(0, 1)
    top.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    top.set_ylabel("share")
    main.set_xlabel("feature, by share of rows")
    main.set_ylabel("rows, sorted by their features")
    style.headline(top, f"{_part(len(shown), n_rows, 'row')}, {style.count(n_features, 'feature')}")
    return figure


def loadings_heatmap(loadings: ArrayLike, presence: ArrayLike | None = None, max_dims: int = 500) -> Figure:
    """Draw the loadings (n_features, n_dims), a row for each dim, with the number of dims of each feature above.

    Dims are sorted by the feature that moves them most. With `presence`, P(loading is not zero), those below one half
    are left blank.
    """
    G = np.asarray(loadings, dtype=float)
    P = (G != 0).astype(float) if presence is None else np.asarray(presence, dtype=float)
    if G.ndim != 2 or P.shape != G.shape:
        raise InvalidDataError(f"loadings and presence must be matrices of one shape, got {G.shape} and {P.shape}")
    n_features, n_dims = G.shape
    if G.size == 0:
        return style.message_figure("no dims" if n_features else "no features")
    shown_values = np.where(P >= 0.5, G, 0.0).T
    largest = np.abs(shown_values)
    order = np.lexsort((-largest.max(axis=1), np.where(largest.any(axis=1), largest.argmax(axis=1), n_features)))
    shown = order[np.unique(np.linspace(0, n_dims - 1, min(n_dims, max_dims)).round().astype(int))]
    limit = float(np.quantile(largest[largest > 0], 0.99)) if largest.any() else 1.0

    figure, top, main = _bars_above(
        (P >= 0.5).sum(axis=1), shown_values[shown], style.DIVERGING, (-limit, limit), "loading"
    )
    top.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    top.set_ylabel("dims")
    main.set_xlabel("factor")
    main.set_ylabel("dims, by the factor that moves them most")
    share = style.percent(float((P >= 0.5).mean()))
    style.headline(top, f"{_part(len(shown), n_dims, 'dim')}, {style.count(n_features, 'factor')}, {share} of loadings")
    return figure


def _bars_above(
    heights: np.ndarray, values: np.ndarray, colours: str, limits: tuple[float, float], label: str
) -> tuple[Figure, Axes, Axes]:
    """(figure, bars of each feature, a picture of the values with a column for each)."""
    n_features = len(heights)
    figure = style.new_figure(min(2.4 + 0.3 * n_features, 9.0), 5.2)
    top, main = figure.subplots(2, 1, sharex=True, height_ratios=[1, 6])
    top.bar(np.arange(1, n_features + 1), heights, width=0.8, color=style.BLUE)
    image = main.imshow(
        values, aspect="auto", cmap=style.colour_map(colours), vmin=limits[0], vmax=limits[1],
        interpolation="nearest", extent=(0.5, n_features + 0.5, len(values), 0),
    )  # fmt: skip
    main.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20, min_n_ticks=1))
    main.set_yticks([])
    for axes in (top, main):
        style.quiet_axes(axes)
    top.tick_params(bottom=False, labelbottom=False)
    figure.align_ylabels([top, main])
    style.colour_bar(figure, image, [main], label, height=4.0)
    return figure, top, main


def _part(n_shown: int, n: int, word: str) -> str:
    """How many are shown, if not all are."""
    every = style.count(n, word)
    return every if n_shown == n else f"{n_shown} of {every} shown"


def traces(draws: Mapping[str, ArrayLike], names: Sequence[str] | None = None) -> Figure:
    """Draw a panel for each quantity, a line for each chain; `names` chooses the quantities, in order."""
    chosen = list(draws) if names is None else list(names)
    unknown = [name for name in chosen if name not in draws]
    if unknown:
        raise InvalidParameterError(f"no draws named {', '.join(unknown)}; there are {', '.join(draws) or 'none'}")
    if not chosen:
        return style.message_figure("no draws")
    figure = style.new_figure(7.2, 0.5 + 1.25 * len(chosen))
    panels = figure.subplots(len(chosen), 1, sharex=True, squeeze=False)[:, 0]
    n_chains = 0
    for axes, name in zip(panels, chosen, strict=True):
        values = np.asarray(draws[name], dtype=float)
        if values.ndim != 2:
            raise InvalidDataError(f"draws of {name!r} must have the shape (chain, draw), got {values.shape}")
        whole = bool((values == np.round(values)).all())
        n_chains = max(n_chains, len(values))
        for chain, line in enumerate(values):
            colour = style.CYCLE[chain % len(style.CYCLE)]
            drawstyle = "steps-mid" if whole else "default"
            axes.plot(np.arange(1, len(line) + 1), line, color=colour, linewidth=0.8, alpha=0.8, drawstyle=drawstyle)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=whole))
        if whole and np.ptp(values) < 1:
            axes.set_ylim(values.min() - 1, values.max() + 1)
        axes.margins(x=0.01)
        axes.set_ylabel(_LABELS.get(name, name.replace("_", " ")))
        style.quiet_axes(axes, grid=True)
    panels[-1].set_xlabel("draw")
    figure.align_ylabels(panels)
    style.figure_headline(figure, "1 chain" if n_chains == 1 else f"{n_chains} chains, one colour each")
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write the figure as png, svg or pdf, by the suffix of `path`; the file appears whole or not at all.

    The same figure gives the same bytes: no dates are written and the ids in an svg are fixed.
    """
    path = Path(path)
    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        raise InvalidParameterError(f"a figure is saved as {', '.join(_FORMATS)}; got {path}. Change the suffix")
    if not path.parent.is_dir():
        raise InvalidParameterError(f"there is no directory {path.parent} to save {path.name} in; create it first")
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with matplotlib.rc_context({"svg.hashsalt": "thali"}):
            figure.savefig(partial, format=kind, metadata=_NO_DATE[kind])
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path
