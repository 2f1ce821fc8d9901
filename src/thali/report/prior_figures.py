"""Figures of priors: draws of Z, how many features to expect, what a truncation leaves out, marginals row by row.

As in `figures`, each function takes plain arrays and returns a matplotlib `Figure`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from thali.core.binary import left_ordered
from thali.errors import InvalidDataError
from thali.report import style

__all__ = ["Simulated", "draws_of_z", "features_against_rows", "marginals_against_draws", "truncation_curves"]


class Simulated(NamedTuple):
    """Means of simulations at some places, with their standard errors."""

    at: ArrayLike
    mean: ArrayLike
    error: ArrayLike


def draws_of_z(draws: Mapping[str, ArrayLike]) -> Figure:
    """Draw binary matrices side by side, each in left-ordered form: rows down, features across, a one is dark."""
    if not draws:
        return style.message_figure("no draws")
    matrices = {name: left_ordered(Z) for name, Z in draws.items()}
    figure = style.new_figure(0.5 + 1.8 * len(matrices), 3.4)
    panels = figure.subplots(1, len(matrices), squeeze=False, sharey=len({len(Z) for Z in matrices.values()}) == 1)[0]
    for axes, (name, Z) in zip(panels, matrices.items(), strict=True):
        n_rows, n_features = Z.shape
        shown = Z if n_features else np.zeros((n_rows, 1))
        extent = (0.5, max(n_features, 1) + 0.5, n_rows + 0.5, 0.5)
        colours = style.colour_map(style.SHARE)
        axes.imshow(shown, aspect="auto", cmap=colours, vmin=0, vmax=1, interpolation="nearest", extent=extent)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4, min_n_ticks=1))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5, min_n_ticks=1))
        axes.set_xlabel("feature")
        style.headline(axes, f"{name}\nK = {n_features}")
        style.quiet_axes(axes)
    panels[0].set_ylabel("row")
    return figure


def features_against_rows(
    n_rows: ArrayLike, expected: Mapping[str, ArrayLike], draws: Mapping[str, ArrayLike] | None = None
) -> Figure:
    """Draw the expected number of features of the first n rows as a line per prior, and draws of it as thin steps.

    `draws[name]` has a line for each draw and a column for each entry of `n_rows`.
    """
    x = _line(n_rows, "n_rows")
    drawn = {} if draws is None else draws
    unknown = [name for name in drawn if name not in expected]
    if unknown:
        raise InvalidDataError(f"draws of {', '.join(unknown)}, but nothing is expected of that; give both")
    figure = style.new_figure(6.4, 3.6)
    axes = figure.subplots()
    for colour, (name, values) in zip(style.CYCLE, expected.items(), strict=False):
        for line in np.atleast_2d(np.asarray(drawn.get(name, np.empty((0, len(x)))), dtype=float)):
            axes.step(x, _line(line, name, len(x)), where="post", color=colour, linewidth=0.6, alpha=0.45)
        axes.plot(x, _line(values, name, len(x)), color=colour, linewidth=2, label=name)
    axes.set_xscale("log")
    axes.set_xlim(x.min(), x.max())
    axes.set_ylim(bottom=0)
    axes.set_xlabel("number of rows")
    axes.set_ylabel("features K")
    style.headline(axes, "Expected features" + (" and draws" if drawn else ""))
    style.quiet_axes(axes, grid=True)
    axes.legend(frameon=False, fontsize=8, labelcolor=style.INK)
    return figure


def truncation_curves(
    truncation: ArrayLike,
    curves: Mapping[str, ArrayLike],
    simulated: Simulated | None = None,
    unit: str = "features",
) -> Figure:
    """Draw the probability beyond a truncation and its bounds, on a linear and on a logarithmic scale.

    The first curve is the exact one; simulated means have bars of two standard errors.
    """
    x = _line(truncation, "truncation")
    lines = {name: _line(values, name, len(x)) for name, values in curves.items()}
    if not lines:
        raise InvalidDataError("curves must hold at least one line, got none")
    figure = style.new_figure(8.4, 3.4)
    panels = figure.subplots(1, 2)
    for axes in panels:
        for i, (name, values) in enumerate(lines.items()):
            colour = style.CYCLE[i % len(style.CYCLE)]
            dashes = (0, (4, 3)) if i % 3 == 2 else "-"  # neighbours may lie on each other
            width = 1.2 if i else 2.0
            axes.plot(x, values, color=colour, linestyle=dashes, linewidth=width, label=name, zorder=2 if i else 3)
        if simulated is not None:
            at, mean, error = (_line(part, "simulated") for part in simulated)
            shown = mean > 0
            bars = 2 * error[shown]
            axes.errorbar(
                at[shown], mean[shown], bars, fmt="o", markersize=3, color=style.INK, label="simulated", zorder=4
            )
        axes.set_xlabel(f"truncation, {unit}")
        style.quiet_axes(axes, grid=True)
    panels[0].set_ylim(-0.02, 1.02)
    lowest = min(float(values[values > 0].min(initial=1.0)) for values in lines.values())
    panels[1].set_ylim(max(lowest / 2, 1e-9), 1.5)  # before the scale: there may be nothing but zeros
    panels[1].set_yscale("log")
    panels[0].set_ylabel("probability")
    panels[0].legend(frameon=False, fontsize=8, labelcolor=style.INK)
    style.figure_headline(figure, "P(some row has a feature beyond the truncation)")
    return figure


def marginals_against_draws(
    exact: ArrayLike, frequency: ArrayLike, n_draws: int, rows: Sequence[int] | None = None
) -> Figure:
    """Draw P(z_nk = 1) over k as a line per row n, and its frequency among `n_draws` draws with two standard errors.

    Features are numbered in order of appearance; `rows` chooses the rows (from 1), by default five of them.
    """
    P, F = np.asarray(exact, dtype=float), np.asarray(frequency, dtype=float)
    if P.ndim != 2 or P.size == 0 or P.shape != F.shape:
        raise InvalidDataError(f"exact and frequency must be matrices of one shape, got {P.shape} and {F.shape}")
    chosen = np.unique(np.geomspace(1, len(P), 5).round().astype(int)) if rows is None else np.asarray(rows)
    if not ((chosen >= 1) & (chosen <= len(P))).all():
        raise InvalidDataError(f"rows must lie between 1 and {len(P)}, got {chosen.tolist()}")
    figure = style.new_figure(6.4, 3.6)
    axes = figure.subplots()
    k = np.arange(1, P.shape[1] + 1)
    for i, n in enumerate(chosen):
        colour = style.CYCLE[i % len(style.CYCLE)]
        axes.plot(k, P[n - 1], color=colour, linewidth=1.2, label=f"row {n}")
        error = np.sqrt(np.maximum(P[n - 1] * (1 - P[n - 1]), 0.0) / n_draws)
        axes.errorbar(k, F[n - 1], 2 * error, fmt="o", markersize=2.5, linewidth=0.8, color=colour)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("feature, in order of appearance")
    axes.set_ylabel("P(row has feature)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.headline(axes, f"Marginals (lines) and {style.count(n_draws, 'draw')} (points)")
    style.quiet_axes(axes, grid=True)
    axes.legend(frameon=False, fontsize=8, labelcolor=style.INK)
    return figure


def _line(values: ArrayLike, name: str, length: int | None = None) -> np.ndarray:
    """Values as a line of finite numbers."""
    line = np.asarray(values, dtype=float)
    if line.ndim != 1 or line.size == 0 or not np.isfinite(line).all() or (length is not None and len(line) != length):
        wanted = "finite numbers" if length is None else f"{length} finite numbers"
        raise InvalidDataError(f"{name} must be a list of {wanted}, got shape {line.shape}")
    return line
