"""Does a fit reach the best mode that is known, and does it report the right number of features?

    python benchmarks/quality/modes.py [--sets A,B] [--recipes A,B] [--seeds 20] [--jobs 1] [--json PATH]

The best known mode of a data set is the highest mean free energy of any chain of any recipe and seed, chains started
at the truth included. A fit succeeds if its best chain is within 20 nats of that (plus three Monte Carlo errors) and
`n_components_` is right. An interrupted run is continued by the same command. See benchmarks/README.md.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.quality.chains import FromTruth, common_counts, lacks, mean_error, most_frequent
from benchmarks.quality.record import Record, listed
from benchmarks.quality.sets import SETS, QualitySet
from benchmarks.tables import machine, show_table
from thali import CollapsedGibbs, LatentFeatures

RECIPES: dict[str, dict[str, Any] | None] = {  # settings of CollapsedGibbs; None: LatentFeatures() as it comes
    "default": None,
    "spectral": {"start": "spectral"},  # the default sampler, without the search for a start
    "annealed": {"start": "annealed"},
    "empty": {"start": "empty"},
    "gibbs": {"start": "empty", "moves": 0.0, "group": 1},  # single-site Gibbs from K = 0
}
USUAL = ["default", "spectral", "gibbs"]
TRUTH = "truth"  # the reference: the default sampler, started at the Z that made the data
NEAR = 20.0  # nats
KEY = ("set", "recipe", "seed")
Entry = dict[str, Any]


# --- one fit --------------------------------------------------------------------------------------


def estimator(problem: QualitySet, recipe: str, seed: int, length: dict[str, Any], n_jobs: int | None) -> Any:
    options: dict[str, Any] = {"random_state": seed} if n_jobs is None else {"random_state": seed, "n_jobs": n_jobs}
    if recipe == TRUTH:
        return LatentFeatures(inference=FromTruth(**length, truth=problem), **options)
    settings = RECIPES[recipe]
    if settings is None and not length:
        return LatentFeatures(**options)
    return LatentFeatures(inference=CollapsedGibbs(**length, **(settings or {})), **options)


def measure(name: str, recipe: str, seed: int, length: dict[str, Any], n_jobs: int | None) -> Entry:
    problem = SETS[name]()
    model = estimator(problem, recipe, seed, length, n_jobs)
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(problem.X)
    if model.interrupted_:  # half a fit is no figure
        raise KeyboardInterrupt
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    draws = model.posterior_.draws
    energy = draws["free_energy"]
    common = common_counts(model.posterior_)
    return {
        "set": name,
        "recipe": recipe,
        "seed": seed,
        "seconds": round(wall, 3),
        "cpu_seconds": round(cpu, 3),
        "n_components": int(model.n_components_),
        "converged": bool(model.converged_),
        # one figure per chain
        "free_energy": [float(chain.mean()) for chain in energy],
        "free_energy_error": [mean_error(chain) for chain in energy],
        "log_joint": [float(chain.mean()) for chain in draws["log_joint"]],
        "k_persistent": [int(k) for k in model.posterior_.consensus.chain_features],
        "k_common": [most_frequent(chain) for chain in common],
        "k_raw": [most_frequent(chain) for chain in draws["n_features"]],
        "k_raw_mean": [float(chain.mean()) for chain in draws["n_features"]],
        "noise_var": [float(chain.mean()) for chain in draws["noise_var"]],
    }


def warm_up(recipes: list[str]) -> None:
    """Compile, or load from the cache, what the recipes need."""
    problem = SETS["small"]()
    tiny = problem._replace(X=problem.X[:20, :6], Z=problem.Z[:20], features=problem.features[:, :6])
    for recipe in recipes:
        estimator(tiny, recipe, 0, {"n_warmup": 3, "n_draws": 5}, 1).fit(tiny.X)


def all_entries(tasks: list[tuple[Any, ...]], recipes: list[str], jobs: int) -> Iterator[Entry]:
    if jobs == 1:
        warm_up(recipes)
        for task in tasks:
            yield measure(*task)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), warm_up, (recipes,)) as pool:
        futures = [pool.submit(measure, *task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:  # Ctrl-C: what has not begun is left for the next run
            pool.shutdown(cancel_futures=True)


# --- what it says ---------------------------------------------------------------------------------


def best_chain(entry: Entry) -> int:
    return int(np.argmax(entry["free_energy"]))


def best_known(entries: list[Entry]) -> Entry:
    """The entry that holds the best chain."""
    return max(entries, key=lambda entry: max(entry["free_energy"]))


def right_k(problem: QualitySet, best: Entry) -> int | None:
    if problem.right == "open":
        return None
    return problem.Z.shape[1] if problem.right == "truth" else int(best["n_components"])


def is_near(entry: Entry, chain: int, best: Entry) -> bool:
    top = best_chain(best)
    error = math.hypot(entry["free_energy_error"][chain], best["free_energy_error"][top])
    allowance = min(3.0 * error, NEAR)  # the error of a chain on the move is large, and no excuse
    return bool(entry["free_energy"][chain] >= best["free_energy"][top] - NEAR - allowance)


def judge(problem: QualitySet, entries: list[Entry], best: Entry) -> dict[str, Any]:
    """What the fits of one recipe on one data set amount to."""
    top = max(best["free_energy"])
    right = right_k(problem, best)
    reached = [is_near(e, best_chain(e), best) for e in entries]
    known = [right is None or e["n_components"] == right for e in entries]
    behind = [max(e["free_energy"]) - top for e in entries]
    chains = [is_near(e, chain, best) for e in entries for chain in range(len(e["free_energy"]))]
    return {
        "set": problem.name,
        "recipe": entries[0]["recipe"],
        "fits": len(entries),
        "success": None if right is None else float(np.mean(np.logical_and(reached, known))),
        "mode_reached": float(np.mean(reached)),
        "chains_at_mode": float(np.mean(chains)),
        "right_k": right,
        "k_right": None if right is None else float(np.mean(known)),
        "behind": [max(behind), float(np.median(behind)), min(behind)],
        "seconds": float(np.median([e["seconds"] for e in entries])),
        "cpu_seconds": float(np.median([e["cpu_seconds"] for e in entries])),
        "k_reported": _spread([e["n_components"] for e in entries]),
        "k_common": _spread([k for e in entries for k in e["k_common"]]),
        "k_raw": _spread([k for e in entries for k in e["k_raw"]]),
        "converged": float(np.mean([e["converged"] for e in entries])),
    }


def _spread(values: list[int]) -> list[float]:
    return [float(min(values)), float(np.median(values)), float(max(values))]


def judge_all(entries: list[Entry], names: list[str]) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        of_set = [entry for entry in entries if entry["set"] == name]
        for recipe in [TRUTH, *RECIPES]:
            chosen = [entry for entry in of_set if entry["recipe"] == recipe]
            if chosen:
                rows.append(judge(SETS[name](), chosen, best_known(of_set)))
    return rows


def show(rows: list[dict[str, Any]], entries: list[Entry]) -> None:
    heads = [
        "data / recipe", "fits", "success", "at mode", "K right", "chains at mode", "wall s", "CPU s",
        "behind: best / median / worst", "K reported", "K common", "K raw", "right K",
    ]  # fmt: skip
    cells = []
    for row in rows:
        spreads = ["-".join(f"{v:g}" for v in row[name]) for name in ("k_reported", "k_common", "k_raw")]
        cells.append([
            f"{row['set']} / {row['recipe']}", str(row["fits"]),
            *(_percent(row[name]) for name in ("success", "mode_reached", "k_right", "chains_at_mode")),
            f"{row['seconds']:.2f}", f"{row['cpu_seconds']:.2f}",
            " / ".join(f"{v:.0f}" for v in row["behind"]), *spreads, str(row["right_k"] or "open"),
        ])  # fmt: skip
    show_table("Fits that reach the best known mode (K: lowest-median-highest; behind: nats)", heads, cells)
    show_best(entries, list(dict.fromkeys(row["set"] for row in rows)))


def show_best(entries: list[Entry], names: list[str]) -> None:
    cells = []
    for name in names:
        problem = SETS[name]()
        best = best_known([entry for entry in entries if entry["set"] == name])
        chain = best_chain(best)
        surprise = problem.right == "truth" and best["n_components"] != problem.Z.shape[1]
        cells.append([
            name, f"{best['recipe']}, seed {best['seed']}",
            f"{best['free_energy'][chain]:.1f} ({best['free_energy_error'][chain]:.1f})",
            f"{best['log_joint'][chain]:.1f}",
            f"{best['n_components']}{' (truth: ' + str(problem.Z.shape[1]) + ')' if surprise else ''}",
            str(best["k_common"][chain]), str(best["k_raw"][chain]),
            f"{best['noise_var'][chain]:.4g} ({problem.noise_var:.4g})",
        ])  # fmt: skip
    heads = ["data", "found by", "free energy (error)", "log joint", "K reported", "K common", "K raw", "noise (true)"]
    show_table("The best known modes", heads, cells)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


# --- the run --------------------------------------------------------------------------------------


def usable(recipes: list[str]) -> list[str]:
    """Those that this version of the library can run; the others are named."""
    kept = []
    for recipe in recipes:
        missing = lacks(RECIPES[recipe] or {})
        if missing:
            print(f"left out: {recipe} (CollapsedGibbs has no setting {', '.join(missing)})")
        else:
            kept.append(recipe)
    return kept


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=lambda t: listed(t, list(SETS)), default=list(SETS), metavar="A,B")
    known = list(RECIPES)
    parser.add_argument("--recipes", type=lambda t: listed(t, known), default=USUAL, metavar="A,B", help=str(known))
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="fits per data set and recipe")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="fits at a time (their wall times suffer)")
    parser.add_argument("--warmup", type=int, metavar="N", help="sweeps to drop, instead of the default's number")
    parser.add_argument("--draws", type=int, metavar="N", help="draws, instead of the default's number")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    parser.add_argument("--show", action="store_true", help="only show what the --json file holds")
    options = parser.parse_args(arguments)

    lengths = {"n_warmup": options.warmup, "n_draws": options.draws}
    length = {name: value for name, value in lengths.items() if value is not None}
    record = Record(options.json, {"length": length}, KEY)
    record.about = {"machine": machine()}
    if not options.show:
        recipes = usable(options.recipes)
        n_jobs = None if options.jobs == 1 else max(1, (os.cpu_count() or 1) // options.jobs)
        tasks = [
            (name, recipe, seed, length, n_jobs)
            for name in options.sets
            for recipe, n_seeds in [(TRUTH, 1), *((recipe, options.seeds) for recipe in recipes)]
            for seed in range(n_seeds)
            if not record.has(name, recipe, seed)
        ]
        for done, entry in enumerate(all_entries(tasks, [TRUTH, *recipes], options.jobs), 1):
            record.add(entry)
            energies = ", ".join(f"{value:.1f}" for value in entry["free_energy"])
            what = f"{entry['set']} / {entry['recipe']} seed {entry['seed']}"
            found = f"K {entry['n_components']}, free energy {energies}"
            print(f"{done}/{len(tasks)}  {what}: {entry['seconds']:.1f} s, {found}", flush=True)
    rows = judge_all(record.entries, options.sets)
    show(rows, record.entries)
    if rows and not options.show:
        record.write(summary=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
