"""How fast do the samplers and their variants mix? Effective samples of K and of the log joint per second.

    python benchmarks/quality/mixing.py [--sets A,B] [--variants A,B] [--chains 4] [--warmup 200] [--draws 1000]

All chains start at the Z that made the data, so that mixing is compared, not the luck of a start, and hyperparameters
are learned. Seconds are CPU seconds of sampling on one thread, without start and warm-up; variants take turns, chain by
chain. A variant must leave the posterior alone, so the means of K have to agree. See benchmarks/README.md.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.quality.chains import at_truth, effective_size, mean_error, n_common
from benchmarks.quality.record import Record, listed
from benchmarks.quality.sets import SETS, QualitySet
from benchmarks.tables import machine, show_table
from thali import IBP, CollapsedGibbs, Gibbs, LinearGaussian, SliceSampler
from thali.model import Model

VARIANTS: dict[str, Any] = {
    "as it comes": CollapsedGibbs(),  # groups, and a move in one step of ten
    "a move in each step": CollapsedGibbs(moves=1.0),
    "groups": CollapsedGibbs(moves=0.0),
    "single bits": CollapsedGibbs(moves=0.0, group=1),
    "uncollapsed": Gibbs(moves=0.0),
    "slice": SliceSampler(moves=0.0),
}
SUMMARIES = ("n_features", "n_common", "log_joint")
FEWEST_CHANGES = 10  # of a summary, in all chains: with fewer its effective size means nothing
KEY = ("set", "variant", "chain")
Entry = dict[str, Any]


def run_chain(problem: QualitySet, variant: str, chain: int, n_warmup: int, n_draws: int) -> Entry:
    """Traces of one chain, and the CPU seconds its draws took."""
    model = Model(IBP(), LinearGaussian().adapt(problem.X))
    data = model.observation.prepare(problem.X)
    inference = VARIANTS[variant]
    rng = np.random.default_rng([chain, 17])
    state = at_truth(inference, rng, model, data, problem)
    traces: dict[str, list[float]] = {name: [] for name in SUMMARIES}
    seconds = 0.0
    for iteration in range(n_warmup + n_draws):
        start = time.process_time()
        state, info = inference.step(rng, state, model, data)
        if iteration >= n_warmup:
            seconds += time.process_time() - start
            traces["n_features"].append(info.n_features)
            traces["n_common"].append(n_common(state.local.z))
            traces["log_joint"].append(round(info.log_joint, 3))
    return {"set": problem.name, "variant": variant, "chain": chain, "seconds": seconds, **traces}


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
    heads = [
        "data / variant", "draws", "CPU s", "ms/step", "K (error)", "ESS", "per s",
        "K common (error)", "ESS", "per s", "log joint (error)", "ESS", "per s",
    ]  # fmt: skip
    cells = []
    for row in rows:
        line = [f"{row['set']} / {row['variant']}", str(row["draws"]), f"{row['seconds']:.2f}"]
        line.append(f"{1e3 * row['seconds'] / row['draws']:.2f}")
        for name in SUMMARIES:
            part = row[name]
            digits = ".1f" if name == "log_joint" else ".2f"
            line.append(f"{part['mean']:{digits}} ({part['error']:{digits}})")
            line += ["still", "-"] if part["ess"] is None else [f"{part['ess']:.0f}", f"{part['per_second']:.1f}"]
        cells.append(line)
    show_table("Effective samples per CPU second, chains pooled", heads, cells)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=lambda t: listed(t, list(SETS)), default=list(SETS), metavar="A,B")
    parser.add_argument("--variants", type=lambda t: listed(t, list(VARIANTS)), default=list(VARIANTS), metavar="A,B")
    parser.add_argument("--chains", type=int, default=4, metavar="N")
    parser.add_argument("--warmup", type=int, default=200, metavar="N")
    parser.add_argument("--draws", type=int, default=1000, metavar="N")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)

    record = Record(options.json, {"n_warmup": options.warmup, "n_draws": options.draws}, KEY)
    record.about = {"machine": machine()}
    tiny = SETS["small"]()
    tiny = tiny._replace(X=tiny.X[:20, :6], Z=tiny.Z[:20], features=tiny.features[:, :6])
    rows = []
    with threadpool_limits(1):
        for variant in options.variants:
            run_chain(tiny, variant, 0, 3, 5)  # compiles, or loads from the cache
        for name in options.sets:
            problem = SETS[name]()
            for chain in range(options.chains):
                for variant in options.variants:
                    if not record.has(name, variant, chain):
                        record.add(run_chain(problem, variant, chain, options.warmup, options.draws))
            for variant in options.variants:
                chosen = [e for e in record.entries if (e["set"], e["variant"]) == (name, variant)]
                rows.append(summarise(chosen))
            print(f"{name}: done", file=sys.stderr, flush=True)
    show(rows)
    record.write(summary=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
