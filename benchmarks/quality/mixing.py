"""How fast do the samplers mix? Effective samples of K, log joint and a held-out score per second.

    python benchmarks/quality/mixing.py [--sets A,B] [--variants A,B] [--chains 2] [--warmup 150] [--draws 600]
        [--hidden 0.05]

All chains start at the codes that made the data, so that mixing is compared, not the luck of a start, and
hyperparameters are learned. 5 % of the cells are hidden, the same for all; the score of a state is the mean log density
that it gives them (none with --hidden 0). Seconds are CPU seconds of sampling on one thread, without start and warm-up;
variants take turns, chain by chain. A variant must leave the posterior alone, so all means have to agree: where they do
not, the last table says so. See benchmarks/README.md.
"""

import argparse
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.quality.chains import at_truth, disagreements, effective_size, mean_error, n_common
from benchmarks.quality.record import Record, listed
from benchmarks.quality.sets import SETS, WEIGHTED_SETS, QualitySet
from benchmarks.tables import machine, show_table
from thali import IBP, ICA, CollapsedGibbs, FactorAnalysis, Gibbs, LinearGaussian, SliceSampler
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.posteriors.prediction import scorer

ALL_SETS = {**SETS, **WEIGHTED_SETS}
USUAL = ["bars-1", "mid", "wide", *WEIGHTED_SETS]
MODELS: dict[str, Any] = {  # by the law of the weights; without a floor, which other chains would have to find
    "none": LinearGaussian(),
    "normal": FactorAnalysis(noise_floor=0.0),
    "laplace": ICA(noise_floor=0.0),
}
VARIANTS: dict[str, Any] = {
    "as it comes": CollapsedGibbs(),  # groups, and a move in one step of ten
    "a move in each step": CollapsedGibbs(moves=1.0),
    "groups": CollapsedGibbs(moves=0.0),
    "single bits": CollapsedGibbs(moves=0.0, group=1),
    "uncollapsed": Gibbs(moves=0.0, n_threads=1),
    "importance": Gibbs(moves=0.0, births="importance"),
    "slice": SliceSampler(moves=0.0),
}
WEIGHTED_VARIANTS = ("uncollapsed", "slice")
SUMMARIES = {"n_features": ".2f", "n_common": ".2f", "log_joint": ".1f", "score": ".4f"}
HIDDEN = 0.05  # of the cells, unless told otherwise
FEWEST_CHANGES = 10  # of a summary, in all chains: with fewer its effective size means nothing
KEY = ("set", "variant", "chain")
Entry = dict[str, Any]


def hide(X: np.ndarray, share: float) -> np.ndarray:
    """X with NaN in the hidden cells; every row and dim keeps a cell."""
    hidden = X.copy()
    hidden[np.random.default_rng(0).random(X.shape) < share] = np.nan
    hidden[np.isnan(hidden).all(axis=1), 0] = X[np.isnan(hidden).all(axis=1), 0]
    return hidden


def run_chain(
    problem: QualitySet, observation: Any, inference: Any, chain: int, n_warmup: int, n_draws: int, share: float
) -> dict[str, Any]:
    """Traces of one chain, and the CPU seconds its draws took."""
    X = hide(problem.X, share)
    model = Model(IBP(), observation.adapt(X))
    data = model.observation.engine(ChainRows).prepare(X)
    score = scorer(X, problem.X) if share > 0 else lambda draw: 0.0
    rng = np.random.default_rng([chain, 17])
    state = at_truth(inference, rng, model, data, problem)
    traces: dict[str, list[float]] = {name: [] for name in SUMMARIES}
    seconds = 0.0
    for iteration in range(n_warmup + n_draws):
        start = time.process_time()
        state, info = inference.step(rng, state, model, data)
        if iteration >= n_warmup:
            seconds += time.process_time() - start
            z, codebook = state.local.z, state.observation.engine(ChainRows).codebook(data, state.local)
            traces["n_features"].append(info.n_features)
            traces["n_common"].append(n_common(z))
            traces["log_joint"].append(round(info.log_joint, 3))
            draw = SimpleNamespace(observation=state.observation, z=z, codebook=codebook)
            traces["score"].append(round(score(draw), 6))
    return {"chain": chain, "seconds": seconds, **traces}


def summarise(entries: list[Entry]) -> dict[str, Any]:
    """Chains of one variant on one data set, pooled."""
    seconds = sum(entry["seconds"] for entry in entries)
    row: dict[str, Any] = {
        "set": entries[0]["set"],
        "variant": entries[0]["variant"],
        "chains": len(entries),
        "draws": sum(len(entry["log_joint"]) for entry in entries),
        "seconds": seconds,
    }
    for name in SUMMARIES:
        values = np.array([entry[name] for entry in entries], dtype=float)
        moving = np.count_nonzero(np.diff(values, axis=1)) >= FEWEST_CHANGES
        ess = effective_size(values) if moving else None
        row[name] = {
            "mean": float(values.mean()),
            "error": float(np.sqrt(sum(mean_error(chain) ** 2 for chain in values)) / len(values)),
            "ess": ess,
            "per_second": None if ess is None else ess / seconds,
        }
    return row


def show(rows: list[dict[str, Any]]) -> None:
    heads = ["data / variant", "draws", "CPU s", "ms/step"]
    for name in ("K", "K common", "log joint", "held-out"):
        heads += [f"{name} (error)", "ESS", "per s"]
    cells = []
    for row in rows:
        line = [f"{row['set']} / {row['variant']}", str(row["draws"]), f"{row['seconds']:.2f}"]
        line.append(f"{1e3 * row['seconds'] / row['draws']:.2f}")
        for name, digits in SUMMARIES.items():
            part = row[name]
            line.append(f"{part['mean']:{digits}} ({part['error']:{digits}})")
            line += ["still", "-"] if part["ess"] is None else [f"{part['ess']:.0f}", f"{part['per_second']:.1f}"]
        cells.append(line)
    show_table("Effective samples per CPU second, chains pooled", heads, cells)
    found = disagreements(rows, list(SUMMARIES))
    heads = ["data / variant", "of", "mean", "that of", "mean", "errors apart", "ESS"]
    if found:
        show_table(
            "Means that differ by more than 4 errors: with few effective samples the error is not known", heads, found
        )
    else:
        print("\nAll variants agree on the means of each set within 4 errors.")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=lambda t: listed(t, list(ALL_SETS)), default=USUAL, metavar="A,B")
    parser.add_argument("--variants", type=lambda t: listed(t, list(VARIANTS)), default=list(VARIANTS), metavar="A,B")
    parser.add_argument("--chains", type=int, default=2, metavar="N")
    parser.add_argument("--warmup", type=int, default=150, metavar="N")
    parser.add_argument("--draws", type=int, default=600, metavar="N")
    parser.add_argument("--hidden", type=float, default=HIDDEN, metavar="SHARE", help="of the cells")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)

    record = Record(options.json, {"n_warmup": options.warmup, "n_draws": options.draws, "hidden": options.hidden}, KEY)
    record.about = {"machine": machine()}
    rows = []
    with threadpool_limits(1):
        for name in options.sets:
            problem = ALL_SETS[name]()
            model = MODELS[problem.law]
            variants = [v for v in options.variants if problem.law == "none" or v in WEIGHTED_VARIANTS]
            for variant in variants:
                run_chain(problem, model, VARIANTS[variant], 0, 1, 4, options.hidden)  # compiles, or loads
            for chain in range(options.chains):
                for variant in variants:
                    if not record.has(name, variant, chain):
                        settings = chain, options.warmup, options.draws, options.hidden
                        entry = run_chain(problem, model, VARIANTS[variant], *settings)
                        record.add({"set": name, "variant": variant, **entry})
            for variant in variants:
                rows.append(summarise([e for e in record.entries if (e["set"], e["variant"]) == (name, variant)]))
            print(f"{name}: done", file=sys.stderr, flush=True)
    show(rows)
    record.write(summary=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
