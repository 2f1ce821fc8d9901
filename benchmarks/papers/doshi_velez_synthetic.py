"""Samplers of the linear-Gaussian model against the clock: Figures 4 to 7 of Doshi-Velez et al. (2009).

    python benchmarks/papers/doshi_velez_synthetic.py [--samplers A,B] [--restarts 3] [--seconds 3] [--picture PATH]
                                                      [--json PATH] [--full]

Z is drawn from truncated sticks, X = Z A + noise. In the last half of the rows a third of the dims, others in each
row, are held out. All samplers know the same hyperparameters, those behind the data, and a restart begins at the same
draw of Z from the prior for all of them; nothing is annealed. A score (TLL) is the log density of the held-out cells of
a row, given Z and the observed cells, features integrated out. The final one is the sum over rows of the log of its
mean density over states of the second half of a run. Time is wall time on one thread of BLAS, without scoring. About
three minutes; --full adds the grids of N and D (an hour). See benchmarks/README.md.
"""

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.quality.record import Record, listed
from benchmarks.tables import machine, show_table
from thali import IBP, CollapsedGibbs, Gibbs, LinearGaussian, SliceSampler, StickBreakingIBP
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.running.shapes.chains import iterate

# Anything that `thali.running.shapes.chains.iterate` serves and whose state has Z in `local.z` can stand here.
SAMPLERS: dict[str, Any] = {
    "collapsed Gibbs": CollapsedGibbs(moves=0.0, group=1),
    "uncollapsed Gibbs": Gibbs(moves=0.0),
    "importance births": Gibbs(moves=0.0, births="importance"),
    "slice": SliceSampler(moves=0.0),
    "as it comes": CollapsedGibbs(n_warmup=100),  # bits in groups, moves of columns, and
}
SEARCHES = ("as it comes",)  # a start of its own instead of the random one; the time of the search is counted
FEWEST_STEPS = 10  # of a run, however long they take
CURVES = [(500, 500, 20), (100, 500, 25)]  # Figures 4 and 5: N, D, K
TRUNCATIONS = (5, 10, 15, 20, 25)  # Figure 6
GRID_ROWS, GRID_DIMS, GRID_FEATURES = (5, 10, 50, 100, 500, 1000), (5, 10, 50, 100, 500, 1000), 20  # Figure 7
N_GRID_STEPS = 1000
NOISE_VAR, FEATURE_VAR = 1.0, 1.0
KEY = ("part", "n_rows", "n_dims", "n_features", "sampler", "restart")
Array = np.ndarray
Entry = dict[str, Any]


class Problem(NamedTuple):
    """Data with the Z behind them and the cells that are held out."""

    X: Array
    Z: Array
    hidden: Array
    mass: float

    @property
    def test_rows(self) -> Array:
        return np.flatnonzero(self.hidden.any(axis=1))

    def model(self) -> Model:
        return Model(IBP(mass=self.mass), LinearGaussian(noise_var=NOISE_VAR, feature_var=FEATURE_VAR))


def make_problem(n_rows: int, n_dims: int, n_features: int) -> Problem:
    """K sticks of mass K / 4; the least of them has a weight of about exp(-4)."""
    rng = np.random.default_rng([n_rows, n_dims, n_features])
    mass = n_features / 4
    Z = StickBreakingIBP(mass=mass, truncation=n_features).simulate(rng, n_rows)
    A = math.sqrt(FEATURE_VAR) * rng.standard_normal((n_features, n_dims))
    X = Z @ A + math.sqrt(NOISE_VAR) * rng.standard_normal((n_rows, n_dims))
    hidden = np.zeros(X.shape, dtype=bool)
    for row in range(math.ceil(n_rows / 2), n_rows):
        hidden[row, rng.choice(n_dims, max(1, round(n_dims / 3)), replace=False)] = True
    return Problem(X, Z[:, Z.any(axis=0)], hidden, mass)


def row_scores(problem: Problem, Z: Array) -> Array:
    """Log density of the held-out cells of each test row given Z, cell by cell.

    Each dim has its own posterior of the features, from its observed cells alone.
    """
    X, hidden, rows = problem.X, problem.hidden, problem.test_rows
    Z = Z[:, Z.any(axis=0)].astype(float)
    by_rows = Z.shape[1] > hidden.sum(axis=0).mean()
    mean, var = (_held_out_by_rows if by_rows else _held_out_by_features)(X, hidden, Z)
    cells = -0.5 * (np.log(2 * np.pi * NOISE_VAR * var) + (X - mean) ** 2 / (NOISE_VAR * var))
    return np.sum(cells[rows], axis=1, where=hidden[rows])


def _held_out_by_features(X: Array, hidden: Array, Z: Array) -> tuple[Array, Array]:
    """Mean and variance (in units of the noise) of the hidden cells, by a K x K matrix for each dim."""
    n_features = Z.shape[1]
    seen = (~hidden).astype(float)
    outer = (Z[:, :, None] * Z[:, None, :]).reshape(len(Z), n_features**2)
    gram = (seen.T @ outer).reshape(X.shape[1], n_features, n_features) + NOISE_VAR / FEATURE_VAR * np.eye(n_features)
    P = np.linalg.inv(gram)
    features = np.squeeze(P @ ((X * seen).T @ Z)[:, :, None], 2)
    return Z @ features.T, 1.0 + outer @ P.reshape(len(P), n_features**2).T


def _held_out_by_rows(X: Array, hidden: Array, Z: Array) -> tuple[Array, Array]:
    """The same by a matrix for the hidden cells of each dim: what a complete dim would say of them, without them."""
    hat = Z @ np.linalg.solve(Z.T @ Z + NOISE_VAR / FEATURE_VAR * np.eye(Z.shape[1]), Z.T)
    guess = hat @ np.where(hidden, 0.0, X)
    mean, var = np.zeros(X.shape), np.ones(X.shape)
    for dim in range(X.shape[1]):
        rows = np.flatnonzero(hidden[:, dim])
        S_inv = np.linalg.inv(np.eye(len(rows)) - hat[np.ix_(rows, rows)])
        mean[rows, dim], var[rows, dim] = S_inv @ guess[rows, dim], np.diag(S_inv)
    return mean, var


def log_mean(rows: list[Array]) -> float:
    """Sum over rows of the log of the mean density over states."""
    return float((np.logaddexp.reduce(rows) - math.log(len(rows))).sum())


# --- one run --------------------------------------------------------------------------------------


def run(problem: Problem, sampler: str, restart: int, *, seconds: float = math.inf, n_steps: float = math.inf) -> Entry:
    """A trace of (seconds, steps, K, sum of row scores) and the final score of a run of so many seconds or steps."""
    model, X = problem.model(), np.where(problem.hidden, np.nan, problem.X)
    rng = np.random.default_rng([restart, 11])
    trace, late = [], []
    when = sorted([*np.geomspace(0.0025, 1.0, 20), *np.linspace(0.5, 1.0, 11)])  # shares of the run
    used, step, start = 0.0, 0, time.perf_counter()
    data, inference = model.observation.engine(ChainRows).prepare(X), SAMPLERS[sampler]
    begin = None
    if sampler not in SEARCHES:
        complete = np.where(problem.hidden, np.nanmean(X, axis=0), X)
        begin = inference.at(model.prior, model.observation, data, model.prior.simulate(rng, len(X)), complete)
    for state, info in iterate(rng, inference, model, data, len(X), state=begin):
        used += time.perf_counter() - start
        step += 1
        progress = max(used / seconds, step / n_steps)
        done = progress >= 1.0 and step >= FEWEST_STEPS
        if progress >= when[0]:
            scores = row_scores(problem, state.local.z)
            trace.append((round(used, 4), step, info.n_features, round(float(scores.sum()), 2)))
            if progress >= 0.5:
                late.append(scores)
            when = [share for share in when if share > progress] or [1.0]
        if done:
            break
        start = time.perf_counter()
    return {
        "sampler": sampler,
        "restart": restart,
        "seconds": used,
        "steps": step,
        "tll": log_mean(late),
        "per_entry": log_mean(late) / int(problem.hidden.sum()),
        "k": trace[-1][2],
        "trace": trace,
    }


def sweep_time(problem: Problem, sampler: str) -> Entry:
    """Milliseconds of a step from the Z behind the data, the least of several."""
    model, X = problem.model(), np.where(problem.hidden, np.nan, problem.X)
    data, rng, inference = model.observation.engine(ChainRows).prepare(X), np.random.default_rng(0), SAMPLERS[sampler]
    state = inference.at(model.prior, model.observation, data, problem.Z, problem.X)
    times = []
    for _ in range(12):
        start = time.perf_counter()
        state, _ = inference.step(rng, state, model, data)
        times.append(time.perf_counter() - start)
    return {"sampler": sampler, "restart": 0, "k": problem.Z.shape[1], "ms": 1e3 * min(times)}


# --- what it says ---------------------------------------------------------------------------------


def mean_sd(values: list[float], digits: str = ".0f") -> str:
    return f"{np.mean(values):{digits}} +- {np.std(values, ddof=min(1, len(values) - 1)):{digits}}"


def chosen(entries: list[Entry], part: str, shape: tuple[int, int, int], sampler: str) -> list[Entry]:
    key = (part, *shape, sampler)
    return [e for e in entries if (e["part"], e["n_rows"], e["n_dims"], e["n_features"], e["sampler"]) == key]


def show_runs(
    title: str, entries: list[Entry], part: str, shapes: list[tuple[int, int, int]], names: list[str]
) -> None:
    cells = []
    for shape in shapes:
        problem = make_problem(*shape)
        truth, n_cells = float(row_scores(problem, problem.Z).sum()), int(problem.hidden.sum())
        label = f"N {shape[0]}, D {shape[1]}, K {problem.Z.shape[1]}"
        cells.append([f"{label} / the Z behind them", "", "", f"{truth:.0f}", f"{truth / n_cells:.3f}", ""])
        for name in names:
            runs = chosen(entries, part, shape, name)
            if runs:
                cells.append([
                    f"  {name}", f"{np.mean([e['seconds'] for e in runs]):.1f}",
                    f"{np.mean([e['steps'] for e in runs]):.0f}", mean_sd([e["tll"] for e in runs]),
                    mean_sd([e["per_entry"] for e in runs], ".3f"), mean_sd([e["k"] for e in runs], ".1f"),
                ])  # fmt: skip
    show_table(title, ["data / sampler", "s", "steps", "TLL", "per held-out entry", "K"], cells)


def show_times(entries: list[Entry], shapes: list[tuple[int, int, int]], names: list[str]) -> None:
    cells = []
    for shape in shapes:
        timed = [e for name in names for e in chosen(entries, "time", shape, name)]
        cells.append([f"{timed[0]['k']} of {shape[2]} sticks", *(f"{e['ms']:.2f}" for e in timed)])
    title = f"Milliseconds of a step against K (Figure 6), N {shapes[0][0]}, D {shapes[0][1]}"
    show_table(title, ["K", *names], cells)


def draw(entries: list[Entry], shapes: list[tuple[int, int, int]], names: list[str], path: Path) -> None:
    """Score per held-out entry against time, one panel a data set, time against K, and the grid if there is one."""
    from thali.report import style
    from thali.report.figures import save

    grid = [entry for entry in entries if entry["part"] == "grid"]
    ends = sorted({min(e["n_rows"] for e in grid), max(e["n_rows"] for e in grid)}) if grid else []
    figure = style.new_figure(4.0 * (len(shapes) + len(ends)) + 3.4, 3.4)
    panels = figure.subplots(1, len(shapes) + 1 + len(ends))
    timing = panels[len(shapes)]
    colours = dict(zip(names, style.CYCLE, strict=False))
    for axes, shape in zip(panels, shapes, strict=False):
        problem = make_problem(*shape)
        n_cells = int(problem.hidden.sum())
        axes.axhline(row_scores(problem, problem.Z).sum() / n_cells, color=style.QUIET, linewidth=0.8, linestyle="--")
        for name in names:
            runs = [np.array(e["trace"]) for e in chosen(entries, "curve", shape, name)]
            if not runs:
                continue
            first = max(run[0, 0] for run in runs)
            at = np.geomspace(first, min(run[-1, 0] for run in runs), 60)
            lines = [run[np.maximum(np.searchsorted(run[:, 0], at * (1 + 1e-9)) - 1, 0), 3] / n_cells for run in runs]
            mean, sd = np.mean(lines, axis=0), np.std(lines, axis=0)
            axes.plot(at, mean, color=colours[name], linewidth=1.4, label=name)
            axes.fill_between(at, mean - sd, mean + sd, color=colours[name], alpha=0.15, linewidth=0)
        axes.set_xscale("log")
        axes.set_xlabel("seconds")
        style.headline(axes, f"N = {shape[0]}, D = {shape[1]}, K = {problem.Z.shape[1]}")
        style.quiet_axes(axes, grid=True)
    panels[0].set_ylabel("log density per held-out entry")
    panels[0].legend(frameon=False, fontsize=8)
    timed = [e for e in entries if e["part"] == "time"]
    for name in names:
        points = sorted((e["k"], e["ms"]) for e in timed if e["sampler"] == name)
        if points:
            timing.plot(*zip(*points, strict=True), color=colours[name], marker="o", markersize=3, linewidth=1.2)
    timing.set_ylim(bottom=0)
    timing.set_xticks(TRUNCATIONS)
    timing.set_xlabel("K")
    style.headline(timing, "milliseconds of a step")
    style.quiet_axes(timing, grid=True)
    for axes, n_rows in zip(panels[len(shapes) + 1 :], ends, strict=True):  # a line goes from few dims to many
        for name in names:
            points = []
            for n_dims in GRID_DIMS:
                runs = chosen(entries, "grid", (n_rows, n_dims, GRID_FEATURES), name)
                if runs:
                    points.append((np.mean([e["seconds"] for e in runs]), np.mean([e["per_entry"] for e in runs])))
            if points:
                axes.plot(*zip(*points, strict=True), color=colours[name], marker="o", markersize=3, linewidth=1.2)
                axes.plot(*points[0], color=colours[name], marker="o", markersize=7)
        axes.set_xscale("log")
        axes.set_xlabel("seconds")
        style.headline(axes, f"N = {n_rows}, D from {GRID_DIMS[0]} (large dot) to {GRID_DIMS[-1]}")
        style.quiet_axes(axes, grid=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)
    print(f"drawn: {path}", flush=True)


# --- the run --------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    names = list(SAMPLERS)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samplers", type=lambda t: listed(t, names), default=names, metavar="A,B")
    parser.add_argument("--restarts", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of each run of Figures 4 and 5")
    parser.add_argument("--full", action="store_true", help="also the grids of rows and dims (Figure 7)")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw the curves there (png, svg or pdf)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)

    record = Record(options.json, {"seconds": options.seconds}, KEY)
    record.about = {"machine": machine()}
    times = [(100, 500, n_features) for n_features in TRUNCATIONS]
    grid = [(n_rows, n_dims, GRID_FEATURES) for n_rows in GRID_ROWS for n_dims in GRID_DIMS]
    parts = [("curve", CURVES, options.restarts), ("time", times, 1), ("grid", grid if options.full else [], 3)]
    with threadpool_limits(1):
        for name in options.samplers:
            run(make_problem(12, 6, 3), name, 0, n_steps=10)  # compiles, or loads from the cache
        for part, shapes, restarts in parts:
            for shape in shapes:
                problem = make_problem(*shape)
                for restart in range(restarts):
                    for name in options.samplers:  # in turn, so that all see the same load
                        if record.has(part, *shape, name, restart):
                            continue
                        if part == "curve":
                            entry = run(problem, name, restart, seconds=options.seconds)
                        elif part == "time":
                            entry = sweep_time(problem, name)
                        else:
                            entry = run(problem, name, restart, n_steps=N_GRID_STEPS)
                        place = dict(zip(KEY[1:4], shape, strict=True))
                        record.add({"part": part, **place, **entry})
        show_runs("Held-out cells (Figures 4 and 5)", record.entries, "curve", CURVES, options.samplers)
        show_times(record.entries, times, options.samplers)
        if options.full:
            title = f"Held-out cells after {N_GRID_STEPS} steps (Figure 7)"
            show_runs(title, record.entries, "grid", grid, options.samplers)
        if options.picture is not None:
            draw(record.entries, CURVES, options.samplers, options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
