"""The looks of every figure: colours that the colour-blind can tell apart, thin quiet axes.

Everything is set on the axes themselves. Nothing touches matplotlib's global settings, so that a figure of
ours looks the same in any program and leaves that program's own figures alone.
"""

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

INK = "#333333"
QUIET = "#8a8a8a"
MISSING = "#b8b8b8"
BLUE, ORANGE, PALE_BLUE = "#0072b2", "#d55e00", "#a9cce3"
# Okabe and Ito's palette, the darkest first; yellow is left out, being hard to see on white.
CYCLE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")

DIVERGING, SEQUENTIAL, SHARE = "RdBu_r", "viridis", "Blues"


def colour_map(name: str) -> Colormap:
    """Return a named colour map that shows missing cells in grey."""
    return matplotlib.colormaps[name].with_extremes(bad=MISSING)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure (sizes in inches) that fits its parts to each other."""
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def quiet_axes(axes: Axes, *, grid: bool = False) -> None:
    """Keep two thin axes with small ticks, and light horizontal lines where a height is to be read."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET)
    axes.tick_params(colors=QUIET, labelcolor=INK, labelsize=8, width=0.8, length=3)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(INK)
        label.set_fontsize(9)
    if grid:
        axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)


def picture_axes(axes: Axes) -> None:
    """Frame a picture with a hairline, without ticks."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color("#bbbbbb")
    axes.spines[:].set_linewidth(0.6)


def headline(axes: Axes, text: str) -> None:
    """Write a title above the left end of the axes."""
    axes.set_title(text, loc="left", fontsize=10, color=INK)


def figure_headline(figure: Figure, text: str) -> None:
    """Write a title above the whole figure, at the left."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=10, color=INK)


def colour_bar(figure: Figure, image: ScalarMappable, beside: Sequence[Axes], label: str, height: float) -> None:
    """Put a thin colour bar, about `height` inches high, to the right of the axes it explains."""
    bar = figure.colorbar(image, ax=list(beside), fraction=0.15, aspect=height / 0.11, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=QUIET, labelcolor=INK, labelsize=7, width=0.8, length=2)
    bar.ax.yaxis.set_major_locator(MaxNLocator(nbins=5))
    bar.set_label(label, fontsize=8, color=INK)


def percent(share: float) -> str:
    """Write a share as a percentage, and a small one as such rather than as 0 %."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def count(number: int, noun: str) -> str:
    """Write a number of things: 1 row, 12,000 rows."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def message_figure(text: str) -> Figure:
    """Return a figure that only says something, for when there is nothing to draw."""
    figure = new_figure(4.0, 1.2)
    figure.text(0.5, 0.5, text, ha="center", va="center", fontsize=10, color=INK)
    return figure
