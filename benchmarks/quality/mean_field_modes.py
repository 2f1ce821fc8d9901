"""Does mean field find the right number of features, and the features, by start and by trick?

    python benchmarks/quality/mean_field_modes.py [--sets A,B] [--recipes A,B] [--seeds 2] [--json PATH]

Single restarts, so that starts can be told apart, and the default of five restarts, K not given in any of them. A fit
is right if `n_components_` is that of the truth give or take one, and has found a feature if one of its own correlates
with it by 0.95 or more. See benchmarks/README.md.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.quality.record import Record, listed
from benchmarks.quality.sets import QualitySet
from benchmarks.tables import machine, show_table
from thali import LatentFeatures, MeanField, datasets

RECIPES: dict[str, dict[str, Any]] = {
    "default": {},
    "spectral": {"n_restarts": 1, "start": "spectral"},
    "spectral, no moves": {"n_restarts": 1, "start": "spectral", "moves": False},
    "empty": {"n_restarts": 1, "start": "empty"},
    "random": {"n_restarts": 1, "start": "random"},
    "random, no moves": {"n_restarts": 1, "start": "random", "moves": False},
    "random, annealed": {"n_restarts": 1, "start": "random", "annealing": 16.0},
    "random, annealed, no moves": {"n_restarts": 1, "start": "random", "annealing": 16.0, "moves": False},
    "random, gradual": {"n_restarts": 1, "start": "random", "gradual": True},
    "spectral, independent features": {"n_restarts": 1, "start": "spectral", "features": "independent"},
    "spectral, hard bits": {"n_restarts": 1, "start": "spectral", "bits": "hard"},
}
CORRELATED = 0.95
KEY = ("set", "recipe", "seed")


def make(name: str, seed: int) -> QualitySet:
    """A data set with its own seed: bars at two noise levels, or 20 features in 500 dims."""
    if name.startswith("bars"):
        data = datasets.bars(200, noise_var=float(name.removeprefix("bars-")) ** 2, random_state=seed)
        assert data.Z is not None
        assert data.features is not None
        assert data.noise_var is not None
        return QualitySet(name, data.X, data.Z, data.features, data.noise_var, "truth")
    rng = np.random.default_rng(seed)
    Z = (rng.random((500, 20)) < 0.15).astype(np.uint8)
    features = rng.standard_normal((20, 500))
    return QualitySet(name, Z @ features + 0.5 * rng.standard_normal((500, 500)), Z, features, 0.25, "truth")


SETS = ("bars-0.25", "bars-0.5", "wide")


def measure(name: str, recipe: str, seed: int) -> dict[str, Any]:
    problem = make(name, seed)
    inference = MeanField(**RECIPES[recipe])
    began = time.process_time()
    model = LatentFeatures(inference=inference, random_state=seed).fit(problem.X)
    seconds = time.process_time() - began
    K = len(problem.features)
    both = np.corrcoef(np.vstack([problem.features, model.components_]))
    best = both[:K, K:].max(axis=1, initial=0.0)
    return {
        "set": name,
        "recipe": recipe,
        "seed": seed,
        "K": model.n_components_,
        "truth": K,
        "found": float(np.mean(best >= CORRELATED)),
        "bound": model.posterior_.bound,
        "passes": int(model.history_["n_passes"].sum()),
        "spread": float(np.ptp(model.history_["objective"][:, -1])),
        "seconds": round(seconds, 2),
    }


def show(entries: list[dict[str, Any]], sets: list[str], recipes: list[str]) -> None:
    for name in sets:
        mine = [entry for entry in entries if entry["set"] == name]
        rows = []
        for recipe in recipes:
            fits = [entry for entry in mine if entry["recipe"] == recipe]
            if not fits:
                continue
            best = {seed: max(e["bound"] for e in mine if e["seed"] == seed) for seed in {e["seed"] for e in fits}}
            below = [best[entry["seed"]] - entry["bound"] for entry in fits]
            K = sorted(entry["K"] for entry in fits)
            right = np.mean([abs(entry["K"] - entry["truth"]) <= 1 for entry in fits])
            rows.append(
                [
                    recipe,
                    f"{right:.0%}",
                    f"{K[0]}-{K[len(K) // 2]}-{K[-1]}",
                    f"{np.mean([entry['found'] for entry in fits]):.0%}",
                    f"{np.median(below):.1f}",
                    f"{np.median([entry['passes'] for entry in fits]):.0f}",
                    f"{np.median([entry['seconds'] for entry in fits]):.1f}",
                ]
            )
        truth = mine[0]["truth"] if mine else 0
        heads = ["recipe", "K right", "K min-median-max", "features found", "nats below best", "passes", "CPU s"]
        show_table(f"{name}, {truth} features", heads, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=lambda text: listed(text, list(SETS)), default=list(SETS))
    parser.add_argument("--recipes", default=list(RECIPES), type=lambda text: text.split(";"), help="separated by ;")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    record = Record(arguments.json, {"correlated": CORRELATED}, KEY)
    record.about = machine()
    for seed in range(arguments.seeds):
        for name in arguments.sets:
            for recipe in arguments.recipes:
                if not record.has(name, recipe, seed):
                    record.add(measure(name, recipe, seed))
    show(record.entries, arguments.sets, arguments.recipes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
