"""How much memory and time does a fit of data on disk take, and does it find what made them?

    python benchmarks/speed/out_of_core.py [--rows 1000000] [--dims 50] [--features 10] [--method memoised]

Single-precision rows are written to a file and fitted from a memory map by `StochasticMeanField`, in a process of its
own whose largest resident memory is measured, the file's pages that it has mapped included.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.tables import machine, show_table

NOISE = 0.5
BLOCK = 50_000
TARGET_GB = 2.0


def truth(n_features: int, n_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """(features, how many rows have each)."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n_features, n_dims)), np.linspace(0.5, 0.05, n_features)


def write(path: Path, n_rows: int, n_dims: int, n_features: int) -> None:
    """Rows a block at a time, so that this process stays small, too."""
    A, weights = truth(n_features, n_dims)
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n_rows, n_dims))
    rng = np.random.default_rng(1)
    for start in range(0, n_rows, BLOCK):
        stop = min(start + BLOCK, n_rows)
        Z = rng.random((stop - start, n_features)) < weights
        X[start:stop] = Z @ A + rng.normal(0, NOISE, (stop - start, n_dims))
    X.flush()


def fit(path: str, method: str, n_features: int) -> dict[str, Any]:
    """What a fresh process finds, and what it takes."""
    import thali

    X = np.load(path, mmap_mode="r")
    small = thali.LatentFeatures(inference=thali.StochasticMeanField(n_epochs=1), random_state=0)
    small.fit(np.asarray(X[:200], dtype=float))  # kernels are compiled, or read from their cache
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    model = thali.LatentFeatures(inference=thali.StochasticMeanField(method=method), random_state=0).fit(X)
    seconds = time.perf_counter() - begin
    A, _ = truth(n_features, X.shape[1])
    distance = np.linalg.norm(model.components_[:, None] - A, axis=2).min(axis=0) / np.linalg.norm(A, axis=1)
    return {
        "seconds": seconds,
        "passes": model.history_["bound"].shape[1],
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "GB before": before / 2**20,
        "features": model.n_components_,
        "found": int((distance < 0.05).sum()),
        "noise sd": float(np.sqrt(np.mean(model.posterior_.q.model.observation.noise_var))),
        "verdict": model.check(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dims", type=int, default=50)
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--method", default="memoised", choices=["memoised", "robbins-monro"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fit:
        print(json.dumps(fit(args.fit, args.method, args.features)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write(path, args.rows, args.dims, args.features)
        size = path.stat().st_size / 2**30
        given = ["--fit", str(path), "--method", args.method, "--features", str(args.features)]
        done = subprocess.run([sys.executable, __file__, *given], check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    for name, value in machine().items():
        print(f"{name}: {value}")
    missed = "" if found["peak GB"] < TARGET_GB else "  MISSED"
    show_table(
        f"{args.rows} x {args.dims} in single precision ({size:.2f} GB), {args.features} features, {args.method}",
        ["seconds", "passes", "peak GB", "GB before the fit", "features", "of them true", "noise sd (true)"],
        [
            [
                f"{found['seconds']:.1f}", str(found["passes"]), f"{found['peak GB']:.2f}{missed}",
                f"{found['GB before']:.2f}", str(found["features"]), str(found["found"]),
                f"{found['noise sd']:.4f} ({NOISE})",
            ]
        ],
    )  # fmt: skip
    print(found["verdict"])
    if args.json:
        args.json.write_text(json.dumps(found | {"machine": machine()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
