"""Sparse factors of simulated data: the printed sampler and the corrected one (report on NSFA, Section 4, Figure 1).

    python benchmarks/papers/nsfa_toy.py [--quick] [--sweeps 6000] [--seed 0] [--picture PATH] [--json PATH]

Y = G F + noise as in the report: 100 rows that own sparse loadings G (`sparse="rows"`), 150 columns, mass 5, precisions
0.1, noise variances 0.2; 67 of the rows are for training, 33 for testing. The prior expects 25.9 features in all rows
(the report says 26.9) and 24.0 in 67 of them: a fit can count those that the training rows show. Fifty more columns of
the training rows are drawn for a score that needs no estimate.

Models: `full` learns mass, precisions and noise, all parameters of Gamma priors 1; `known` has the numbers that made
the data. A factor of a single row is noise by another name, so that `full` can count no others: `shared` are those of
two rows or more.

Samplers: Algorithm 1 as printed, which drops a row's own factors and then proposes new ones as if there had been none;
the same proposals with the right ratio; births and deaths, the library's own. These begin without factors, the last
line where the library would. The printed one is in Python, so that its time says nothing.

Scores are in nats per cell. `columns`: new columns of the training rows, exactly. `rows`: test rows, everything of
theirs summed out. `report`: the report's own estimator for test rows, which is none (`nsfa_printed.report_estimator`).
The first table has states of the last third, combined by the log of their mean density (`report`: mean of logs), the
second single states by sweep. See benchmarks/README.md.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers.heldout_cells import log_mean_rows
from benchmarks.papers.nsfa_printed import (
    FULL,
    PROPOSAL,
    PrintedAlgorithm,
    column_scores,
    log_training,
    report_estimator,
    row_scores,
)
from benchmarks.quality.record import Record
from benchmarks.tables import machine, show_table
from thali import IBP, Gibbs, SparseFactorAnalysis
from thali.core.model import Model
from thali.core.protocols.engines.chains import AuxiliaryRows, ChainRows
from thali.observations.sparse.rows import LoadingRows
from thali.running.shapes.chains import iterate

N_ROWS, N_TRAIN, N_COLUMNS, N_MORE = 100, 67, 150, 50
KNOWN = Model(IBP(mass=5.0), SparseFactorAnalysis("rows", noise_var=0.2, loading_var=10.0, offset=None, scale=1.0))
MODELS = {"full": FULL, "known": KNOWN}
NOTHING = np.zeros((N_TRAIN, 0))
SAMPLERS = {
    "printed Algorithm 1": PrintedAlgorithm(births="proposed", proposal=PROPOSAL, start=NOTHING),
    "corrected proposals": Gibbs(births="proposed", proposal=PROPOSAL, start=NOTHING),
    "births and deaths": Gibbs(start=NOTHING),
    "births and deaths, own start": Gibbs(),
}
SCORES = ("training", "columns", "rows", "report")
Array = np.ndarray
Entry = dict[str, Any]


class Toy(NamedTuple):
    train: Array  # (N_TRAIN, N_COLUMNS)
    columns: Array  # (N_TRAIN, N_MORE), more columns of the same rows
    rows: Array  # (N_ROWS - N_TRAIN, N_COLUMNS) for testing
    truth: LoadingRows  # of the training rows and what is visible there
    n_features: int  # in all rows


def simulate(seed: int) -> Toy:
    rng = np.random.default_rng([seed, 41])
    Z = KNOWN.prior.simulate(rng, N_ROWS)
    Y, local = KNOWN.observation.engine(AuxiliaryRows).simulate_local(rng, Z, N_COLUMNS + N_MORE)
    order = rng.permutation(N_ROWS)
    train, test = order[:N_TRAIN], order[N_TRAIN:]
    seen = local.z[train].any(axis=0)
    V, F = local.v[train][:, seen], local.factors[seen, :N_COLUMNS]
    truth = LoadingRows((V != 0).astype(np.uint8), V, F, local.precisions[seen], local.noise[train], local.levels)
    return Toy(Y[train, :N_COLUMNS].copy(), Y[train, N_COLUMNS:].copy(), Y[test, :N_COLUMNS].copy(), truth, Z.shape[1])


# --- runs -------------------------------------------------------------------------------------------


def scored(rng: np.random.Generator, toy: Toy, model: Model, data: Any, local: LoadingRows) -> dict[str, Array]:
    """The scores of one state, in nats, by column or by row; training has their mean."""
    return {
        "training": np.array([log_training(toy.train, local) / N_TRAIN]),
        "columns": column_scores(toy.columns, local),
        "rows": row_scores(toy.rows, model, data, local),
        "report": report_estimator(rng, toy.rows, model, local),
    }


def per_cell(name: str, values: Array) -> float:
    return float(np.mean(values) / (N_TRAIN if name == "columns" else N_COLUMNS))


def run(toy: Toy, model: Model, inference: Any, n_sweeps: int, n_scored: int, seed: int) -> Entry:
    """K after every sweep, scores after some of them, and those of the states of the last third together."""
    rng, aside = np.random.default_rng([seed, 42]), np.random.default_rng([seed, 43])
    data = model.observation.engine(ChainRows).prepare(toy.train)
    begin = inference.init(rng, model, data, N_TRAIN)
    late = 2 * n_sweeps // 3
    early = np.geomspace(1, late, n_scored).astype(int)
    when = {*early.tolist(), *np.linspace(late + 1, n_sweeps, n_scored).astype(int).tolist()}
    ks, shared, lines, kept = [], [], [], []
    seconds, start = 0.0, time.perf_counter()
    for sweep, (state, info) in enumerate(iterate(rng, inference, model, data, N_TRAIN, state=begin), start=1):
        seconds += time.perf_counter() - start
        ks.append(info.n_features)
        shared.append(int((state.local.z.sum(axis=0, dtype=int) > 1).sum()))
        if sweep in when:
            found = scored(aside, toy, Model(state.prior, state.observation), data, state.local)
            lines.append({"sweep": sweep, "k": ks[-1], "shared": shared[-1]})
            lines[-1] |= {name: per_cell(name, values) for name, values in found.items()}
            if sweep > late:
                kept.append(found)
        if sweep == n_sweeps:
            break
        start = time.perf_counter()
    numbers, times = np.unique(ks[late:], return_counts=True)
    mixed = {name: log_mean_rows([one[name] for one in kept]) for name in ("columns", "rows")}
    mixed |= {name: np.mean([one[name] for one in kept], axis=0) for name in ("training", "report")}
    return {
        "k": float(np.mean(ks[late:])), "shared": float(np.mean(shared[late:])), "seconds": round(seconds, 2),
        "histogram": [[int(k), float(n / times.sum())] for k, n in zip(numbers, times, strict=True)],
        **{name: per_cell(name, values) for name, values in mixed.items()}, "by_sweep": lines,
    }  # fmt: skip


# --- what it says -----------------------------------------------------------------------------------


def show(toy: Toy, entries: list[Entry]) -> None:
    truth, rng = toy.truth, np.random.default_rng(0)
    shared = int((truth.z.sum(axis=0, dtype=int) > 1).sum())
    data = KNOWN.observation.engine(ChainRows).prepare(toy.train)
    found = scored(rng, toy, KNOWN, data, truth)
    cells = [["truth, visible in training", str(truth.z.shape[1]), str(shared)]]
    cells[0] += [f"{per_cell(name, found[name]):.3f}" for name in SCORES] + [""]
    for e in entries:
        scores = [f"{e[name]:.3f}" for name in SCORES]
        cells.append([
            f"{e['model']}, {e['sampler']}", f"{e['k']:.1f}", f"{e['shared']:.1f}", *scores, f"{e['seconds']:.1f}"
        ])  # fmt: skip
    title = f"Last third of the sweeps ({toy.n_features} features in all rows; the report: 32, and K a third less)"
    show_table(title, ["model, sampler", "K", "shared", *SCORES, "s"], cells)
    for e in entries:
        words = ", ".join(f"{k}: {share:.2f}" for k, share in e["histogram"] if share >= 0.005)
        print(f"\n  P(K), {e['model']}, {e['sampler']}: {words}")
    for e in entries:
        lines = e["by_sweep"]
        some = [lines[i] for i in np.unique(np.linspace(0, len(lines) - 1, 10).astype(int))]
        cells = [
            [str(line[name]) for name in ("sweep", "k", "shared")] + [f"{line[name]:.3f}" for name in SCORES]
            for line in some
        ]
        show_table(f"By sweep: {e['model']}, {e['sampler']}", ["sweep", "K", "shared", *SCORES], cells)


def draw(toy: Toy, entries: list[Entry], path: Path) -> None:
    """Figure 1 for each sampler of the full model: training and test scores by sweep, and K."""
    from thali.report import style
    from thali.report.figures import save

    figure = style.new_figure(13.0, 3.2)
    panels = figure.subplots(1, 5)
    for e, colour in zip([e for e in entries if e["model"] == "full"], style.CYCLE, strict=False):
        sweeps = [line["sweep"] for line in e["by_sweep"]]
        for axes, name in zip(panels, SCORES, strict=False):
            axes.plot(sweeps, [line[name] for line in e["by_sweep"]], color=colour, linewidth=1.0)
            axes.set_xscale("log")
            style.headline(axes, f"{name}, by sweep")
        panels[4].plot(*zip(*e["histogram"], strict=True), "o-", color=colour, markersize=3, label=e["sampler"])
    panels[4].axvline(toy.truth.z.shape[1], color=style.QUIET, linestyle="--")
    style.headline(panels[4], "P(K); dashed: visible in training")
    panels[4].legend(fontsize=6)
    for axes in panels:
        style.quiet_axes(axes, grid=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)
    print(f"\ndrawn: {path}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="150 sweeps of the full model, few of them scored")
    parser.add_argument("--sweeps", type=int, default=6000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the data and of the chains")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw Figure 1 there (png, svg or pdf)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    n_sweeps, n_scored = (150, 8) if options.quick else (options.sweeps, 40)
    toy = simulate(options.seed)
    record = Record(options.json, {"sweeps": n_sweeps, "seed": options.seed}, ("model", "sampler"))
    record.about = {"machine": machine()}
    with threadpool_limits(1, "blas"):
        for inference in SAMPLERS.values():
            run(toy, FULL, inference, 3, 1, 0)  # compiles, or loads from the cache
        for name, model in MODELS.items():
            for sampler, inference in SAMPLERS.items():
                if not (options.quick and name == "known") and not record.has(name, sampler):
                    found = run(toy, model, inference, n_sweeps, n_scored, options.seed)
                    record.add({"model": name, "sampler": sampler, **found})
        show(toy, record.entries)
    if options.picture is not None:
        draw(toy, record.entries, options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
