"""Five speakers in ten microphones: who is heard again? (the set-up of Knowles & Ghahramani 2007, with known sources)

    python benchmarks/papers/speakers.py [--data FOLDER] [--rows 1000] [--noise 0.1] [--seeds 2] [--json PATH]

Recordings of five speakers (`audio_speakers_fsdd.npz`, standardised) are mixed by a fixed random 10 x 5 matrix, whose
columns have length 1, and noise with `--noise` times the standard deviation of a microphone is added. The rows are
moments picked at random. A source is scored by the absolute correlation with its partner among what a method finds,
one to one, with the largest sum. FastICA is told that there are five, the infinite model is told nothing. The folder
may also be given by THALI_DATA. See benchmarks/README.md.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import FastICA

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.quality.record import Record
from benchmarks.tables import machine, show_table
from thali import ICA, LatentFeatures

FILE = "audio_speakers_fsdd.npz"
N_SPEAKERS, N_MICROPHONES = 5, 10
KEY = ("method", "seed")
Array = np.ndarray


class Mixture(NamedTuple):
    X: Array  # (n_rows, n_microphones)
    sources: Array  # (n_rows, n_speakers), standardised
    speakers: list[str]


def load(path: Path, n_rows: int, noise: float) -> Mixture:
    with np.load(path, allow_pickle=False) as file:
        sound, names = file["X"][:N_SPEAKERS].astype(float), file["speaker"][:N_SPEAKERS]
    rng = np.random.default_rng(5)
    sources = ((sound - sound.mean(axis=1, keepdims=True)) / sound.std(axis=1, keepdims=True)).T
    mixing = rng.standard_normal((N_SPEAKERS, N_MICROPHONES))
    mixing /= np.linalg.norm(mixing, axis=1, keepdims=True)
    rows = rng.choice(len(sources), n_rows, replace=False)
    clean = sources[rows] @ mixing
    X = clean + noise * np.sqrt(clean.var(axis=0).mean()) * rng.standard_normal(clean.shape)
    return Mixture(X, sources[rows], [str(name) for name in names])


def fast_ica(X: Array, seed: int) -> Array:
    return FastICA(N_SPEAKERS, whiten="unit-variance", random_state=seed, max_iter=2000).fit_transform(X)


def infinite_ica(X: Array, seed: int) -> Array:
    return LatentFeatures(ICA(), random_state=seed).fit(X).transform(X)


METHODS: dict[str, Callable[[Array, int], Array]] = {"FastICA, 5 given": fast_ica, "ICA, K found": infinite_ica}


def matched(sources: Array, found: Array) -> list[float]:
    """Absolute correlation of each source with its partner, 0 where there is none."""
    n = sources.shape[1]
    varies = found[:, found.std(axis=0) > 0]
    table = np.abs(np.corrcoef(sources.T, varies.T)[:n, n:])
    scores = np.zeros(n)
    left, right = linear_sum_assignment(table, maximize=True)
    scores[left] = table[left, right]
    return [float(score) for score in scores]


def show(mixture: Mixture, entries: list[dict[str, Any]]) -> None:
    cells = []
    for method in METHODS:
        for entry in (e for e in entries if e["method"] == method):
            scores = [f"{value:.3f}" for value in [*entry["correlation"], float(np.mean(entry["correlation"]))]]
            cells.append([f"{method}, seed {entry['seed']}", str(entry["k"]), *scores, f"{entry['seconds']:.2f}"])
    heads = ["method", "K", *mixture.speakers, "mean", "s"]
    show_table("Absolute correlation of each speaker with what was found", heads, cells)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the file is (else THALI_DATA)")
    parser.add_argument("--rows", type=int, default=1000, metavar="N", help="moments taken")
    parser.add_argument("--noise", type=float, default=0.1, metavar="SHARE", help="sd, in sds of a microphone")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="fits of each method")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    folder = options.data or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)
    if folder is None or not (folder / FILE).exists():
        print(f"left out: give the folder of {FILE} by --data or THALI_DATA")
        return 0

    mixture = load(folder / FILE, options.rows, options.noise)
    record = Record(options.json, {"rows": options.rows, "noise": options.noise}, KEY)
    record.about = {"machine": machine()}
    for name, method in METHODS.items():
        method(mixture.X[:40], 0)  # compiles, or loads from the cache
        for seed in range(options.seeds):
            if record.has(name, seed):
                continue
            start = time.perf_counter()
            found = method(mixture.X, seed)
            seconds = round(time.perf_counter() - start, 3)
            correlation = matched(mixture.sources, found)
            record.add(
                {"method": name, "seed": seed, "k": found.shape[1], "correlation": correlation, "seconds": seconds}
            )
    show(mixture, record.entries)
    return 0


if __name__ == "__main__":
    sys.exit(main())
