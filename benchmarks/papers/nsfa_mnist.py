"""Sparse factors of handwritten digits: what is found, what it costs (report on NSFA, Section 5, Figures 3 to 6).

    python benchmarks/papers/nsfa_mnist.py [--data FOLDER] [--quick] [--digits 200,400] [--sweeps 6000] [--white 1]
                                           [--pictures FOLDER] [--json PATH]

Digits are rows that own sparse loadings, pixels are columns (`sparse="rows"`, the report's orientation), without an
offset. 200 digits for training and 200 others for testing, in proportion to the frequency of each digit, from
`mnist_10k.npz`. The report does not say whether white is 1, as here, or 255 (`--white`); its priors are not relative to
that. Models: `full` learns mass, precisions and noise, all parameters of Gamma priors 1; `reduced` has mass 1 and both
levels at 2. Proposals of a row's own factors have the report's (lambda, pi), with the right ratio; `births and deaths`
is the library's own. All begin without factors. The second number of digits is fitted by the full model with births and
deaths only.

Scores are in nats per cell: `training` is log p(Y | everything), `rows` the density of test digits with all of theirs
summed out (annealed importance sampling: on average not too high), `report` the report's estimator for the same, which
is none (`nsfa_printed.report_estimator`). K and `rows` are those of the last third, by the log of the mean density.
`dense` and `sparse` are the numbers in loadings and factors for each one of the data (Eq. 34), all of them or those not
zero; `density` is the share of the factors that a digit has (the report divides by the number of pixels).

The last table has the CPU time of one step from as many leading directions of the data as the report had factors, 159
and 256, beside that of the products that a step cannot do without: F F', Y F', G' Y, G' G and G F.
See benchmarks/README.md.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers.heldout_cells import log_mean_rows
from benchmarks.papers.nsfa_printed import FULL, PROPOSAL, log_training, report_estimator, row_scores
from benchmarks.quality.record import Record
from benchmarks.tables import against, machine, show_table
from thali import IBP, Gibbs, PerDim, PerFeature, SparseFactorAnalysis
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.metrics import compression, density, relevance
from thali.observations.sparse.rows import LoadingRows
from thali.running.shapes.chains import iterate

FILE, SIDE = "mnist_10k.npz", 28
REDUCED = Model(
    IBP(mass=1.0),
    SparseFactorAnalysis("rows", PerDim(1.0, 2.0), PerFeature(1.0, 2.0), offset=None, noise_floor=1e-6, scale=1.0),
)
OWN = "full, births and deaths"
RUNS = {
    OWN: (FULL, Gibbs()),
    "full, proposals (10, 0.1)": (FULL, Gibbs(births="proposed", proposal=PROPOSAL)),
    "reduced, proposals (1, 0)": (REDUCED, Gibbs(births="proposed", proposal=(1.0, 0.0))),
    "reduced, proposals (10, 0.1)": (REDUCED, Gibbs(births="proposed", proposal=PROPOSAL)),
}
REPORT_SWEEPS, REPORT_K = 6000, {200: 159, 400: 256}
WALL = {200: 300.0, 400: 900.0}  # seconds that so many sweeps may take
PRODUCTS = 6.0  # times that a step may take as long as its products
KEPT = 0.35  # share of the loadings that are not zero where speed is measured
Array = np.ndarray
Entry = dict[str, Any]


class Digits(NamedTuple):
    train: Array
    label: Array  # of the training digits
    test: Array


def load(path: Path, n_digits: int, n_test: int, white: float = 1.0) -> Digits:
    """Training and test digits in proportion to their frequency, picked with a fixed seed."""
    with np.load(path, allow_pickle=False) as file:
        X, y = file["X"] * (white / 255.0), file["y"]
    rng = np.random.default_rng(5)
    parts = [rng.permutation(np.flatnonzero(y == digit)) for digit in range(10)]
    ends = np.rint(n_digits * np.cumsum([0, *map(len, parts)]) / len(y)).astype(int)
    n_each = np.diff(ends)
    train = np.concatenate([part[:n] for part, n in zip(parts, n_each, strict=True)])
    test = rng.permutation(np.concatenate([part[n : 2 * n] for part, n in zip(parts, n_each, strict=True)]))
    return Digits(X[train], y[train], X[test[:n_test]])


# --- runs -------------------------------------------------------------------------------------------


def run(digits: Digits, model: Model, inference: Any, n_sweeps: int, n_scored: int) -> tuple[Entry, LoadingRows]:
    """Traces, scores, and the last state."""
    Y, n_rows = digits.train, len(digits.train)
    rng, aside = np.random.default_rng([n_rows, 51]), np.random.default_rng([n_rows, 52])
    data = model.observation.engine(ChainRows).prepare(Y)
    begin = inference.replace(start=np.zeros((n_rows, 0))).init(rng, model, data, n_rows)
    late = 2 * n_sweeps // 3
    scored = {*np.geomspace(1, late, n_scored).astype(int), *np.linspace(late + 1, n_sweeps, n_scored).astype(int)}
    traced = {*np.linspace(1, n_sweeps, 100).astype(int), *scored}
    ks, lines, kept, seconds = [], [], [], 0.0
    start = time.perf_counter()
    for sweep, (state, info) in enumerate(iterate(rng, inference, model, data, n_rows, state=begin), start=1):
        seconds += time.perf_counter() - start
        ks.append(info.n_features)
        if sweep in traced:
            local = state.local
            line = {"sweep": sweep, "k": ks[-1], "training": log_training(Y, local) / Y.size}
            line |= {"dense": compression(local.v, Y.shape[1])}
            line |= {"sparse": compression(local.v, Y.shape[1], sparse_loadings=True)}
            if sweep in scored:
                now = Model(state.prior, state.observation)
                rows = row_scores(digits.test, now, data, local)
                line["rows"] = float(rows.mean() / Y.shape[1])
                line["report"] = float(report_estimator(aside, digits.test, now, local).mean() / Y.shape[1])
                kept += [rows] if sweep > late else []
            lines.append(line)
        if sweep == n_sweeps:
            break
        start = time.perf_counter()
    entry = {
        "k": float(np.mean(ks[late:])), "seconds": round(seconds, 2), "sweeps": n_sweeps,
        "rows": float(log_mean_rows(kept).mean() / Y.shape[1]), "trace": lines,
        "density": np.quantile(density(state.local.v), [0.0, 0.25, 0.5, 0.75, 1.0]).tolist(),
        "histogram": np.histogram(density(state.local.v), np.linspace(0, 1, 21))[0].tolist(),
    }  # fmt: skip
    return entry, state.local


def hardest(digits: Digits, local: LoadingRows, n: int = 5) -> tuple[Array, Array]:
    """A training row of each of the digits that need the most factors, and how many factors each of all ten needs."""
    used = np.count_nonzero(local.v, axis=1)
    needs = np.array([used[digits.label == digit].mean() for digit in range(10)])
    rng = np.random.default_rng(5)
    return np.array([rng.choice(np.flatnonzero(digits.label == d)) for d in np.argsort(-needs)[:n]]), needs


def speed(Y: Array, n_factors: int, n_steps: int) -> Entry:
    """The least CPU time of a step, and of its products, taken in turn; the first half of the steps is warm-up."""
    U, size, _ = np.linalg.svd(Y, full_matrices=False)
    codes = U[:, :n_factors] * size[:n_factors]
    codes[np.abs(codes) < np.quantile(np.abs(codes), 1 - KEPT)] = 0.0
    inference, rng = Gibbs(start=codes), np.random.default_rng(0)
    data = FULL.observation.engine(ChainRows).prepare(Y)
    state, ks, steps, products = inference.init(rng, FULL, data, len(Y)), [], [], []
    for _ in range(n_steps):
        start = time.process_time()
        state, _ = inference.step(rng, state, FULL, data)
        steps.append(time.process_time() - start)
        F, G = state.local.factors, state.local.v
        ks.append(len(F))
        start = time.process_time()
        F @ F.T, Y @ F.T, G.T @ Y, G.T @ G, G @ F
        products.append(time.process_time() - start)
    late = slice(n_steps // 2, None)
    return {
        "digits": len(Y), "k": float(np.median(ks[late])), "step": min(steps[late]), "products": min(products[late])
    }  # fmt: skip


# --- what it says -----------------------------------------------------------------------------------


def show(n_digits: int, entries: list[Entry]) -> None:
    cells = []
    for e in entries:
        last, low = e["trace"][-1], e["density"]
        wall = e["seconds"] * REPORT_SWEEPS / e["sweeps"]
        told = [line["report"] for line in e["trace"] if "report" in line]
        cells.append([
            e["run"], f"{e['k']:.1f}", f"{last['training']:.3f}", f"{e['rows']:.3f}",
            f"{told[0]:.1f} to {told[-1]:.1f}", f"{last['dense']:.2f}", f"{last['sparse']:.2f}",
            f"{low[0]:.2f} {low[2]:.2f} {low[4]:.2f}",
            against(wall, WALL.get(n_digits) if e["run"] == OWN else None, at_most=True),
        ])  # fmt: skip
    heads = ["run", "K", "training", "rows", "report", "dense", "sparse", "density: min, median, max"]
    heads.append(f"s for {REPORT_SWEEPS} sweeps")
    printed = f" (the report: K {REPORT_K[n_digits]}, dense 1)" if n_digits in REPORT_K else ""
    show_table(f"{n_digits} digits, {entries[0]['sweeps']} sweeps{printed}", heads, cells)
    for e in entries:
        some = [line for line in e["trace"] if "rows" in line]
        names = ("training", "rows", "report", "dense", "sparse")
        cells = [[str(s["sweep"]), str(s["k"]), *(f"{s[name]:.3f}" for name in names)] for s in some]
        show_table(f"By sweep: {n_digits} digits, {e['run']}", ["sweep", "K", *names], cells)
        print(f"\n  digits by density, in steps of 0.05: {e['histogram']}")
        print("  factors that each digit needs: " + ", ".join(f"{d}: {n:.0f}" for d, n in enumerate(e["needs"])))


def draw(digits: Digits, local: LoadingRows, entries: list[Entry], folder: Path) -> None:
    """Figures 3 to 6: relevant features and hard digits of the last state, compression, density, traces."""
    from thali.report import style
    from thali.report.figures import data_and_reconstruction, feature_images, save

    folder.mkdir(parents=True, exist_ok=True)
    n = len(digits.train)
    top = np.argsort(-relevance(local.v))[:8]
    rows, _ = hardest(digits, local)
    save(feature_images(local.factors[top], (SIDE, SIDE)), folder / f"features-{n}.png")
    fitted = local.v[rows] @ local.factors
    save(data_and_reconstruction(digits.train[rows], fitted, (SIDE, SIDE)), folder / f"hardest-{n}.png")
    figure = style.new_figure(13.0, 3.4)
    panels = figure.subplots(1, 6)
    for e, colour in zip(entries, style.CYCLE, strict=False):
        for axes, name in zip(panels, ("k", "training", "rows", "report", "dense"), strict=False):
            some = [(line["sweep"], line[name]) for line in e["trace"] if name in line]
            axes.plot(*zip(*some, strict=True), color=colour, linewidth=1.0, label=e["run"])
            style.headline(axes, f"{name}, by sweep")
        panels[5].stairs(e["histogram"], np.linspace(0, 1, 21), color=colour)
    style.headline(panels[5], "digits by density")
    panels[0].legend(fontsize=5)
    for axes in panels:
        style.quiet_axes(axes, grid=True)
    save(figure, folder / f"traces-{n}.png")
    print(f"\ndrawn: {folder}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the file is (else THALI_DATA)")
    parser.add_argument("--quick", action="store_true", help="200 digits, 60 sweeps, 5 test digits, one speed")
    parser.add_argument("--digits", type=lambda t: [int(k) for k in t.split(",")], default=[200, 400], metavar="A,B")
    parser.add_argument("--sweeps", type=int, default=REPORT_SWEEPS, metavar="N")
    parser.add_argument("--white", type=float, default=1.0, metavar="VALUE", help="of the lightest grey, 1 or 255")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw Figures 3 to 6 there")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    folder = options.data or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)
    if folder is None or not (folder / FILE).exists():
        print(f"left out: give the folder of {FILE} by --data or THALI_DATA")
        return 0

    sizes, n_sweeps = (options.digits[:1], 60) if options.quick else (options.digits, options.sweeps)
    n_test, n_scored = (5, 2) if options.quick else (50, 6)
    record = Record(options.json, {"sweeps": n_sweeps, "test": n_test, "white": options.white}, ("digits", "run"))
    record.about = {"machine": machine()}
    with threadpool_limits(1, "blas"):
        for n_digits in sizes:
            digits, shown = load(folder / FILE, n_digits, n_test, options.white), None
            for name, (model, inference) in RUNS.items():
                if (n_digits == sizes[0] or name == OWN) and not record.has(n_digits, name):
                    run(digits._replace(train=digits.train[:20]), model, inference, 3, 1)  # compiles
                    entry, local = run(digits, model, inference, n_sweeps, n_scored)
                    needs = hardest(digits, local)[1].tolist()
                    record.add({"digits": n_digits, "run": name, "needs": needs, **entry})
                    shown = local if name == OWN else shown
            entries = [e for e in record.entries if e["digits"] == n_digits]
            show(n_digits, entries)
            if options.pictures is not None and shown is not None:  # there is no state where a file was continued
                draw(digits, shown, entries, options.pictures)
        found = [
            speed(load(folder / FILE, n, 1).train, REPORT_K.get(n, n // 2), 10 if options.quick else 50) for n in sizes
        ]
    record.write(speed=found)
    cells = [
        [str(s["digits"]), f"{s['k']:.0f}", f"{1e3 * s['step']:.1f}", f"{1e3 * s['products']:.2f}",
         against(s["step"] / s["products"], PRODUCTS, at_most=True),
         against(REPORT_SWEEPS * s["step"], WALL.get(s["digits"]), at_most=True)]
        for s in found
    ]  # fmt: skip
    heads = ["digits", "K", "ms a step", "ms its products", "ratio", f"s for {REPORT_SWEEPS} such steps"]
    show_table("One step with about as many factors as in the report, CPU time on one thread", heads, cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
