"""Rows per second of `thali stream` through a pipe, beside the library on the same rows.

    .venv/bin/python benchmarks/speed/stream.py [--rows 200000] [--dims 100] [--rounds 3]

Each line is a program of its own that takes in a block of rows ten times over, and once: the difference is the time
of a row, without start-up and compilation. The library gets them from an array by `partial_fit`, 8192 at a time.
`cpu` counts all threads of `thali stream`, `wall` what passes: text is parsed in a thread beside the fit, which needs a
second core. The least of the rounds. Ratios are to the library's; the target is 2.

Then the printing of rows by `thali simulate` alone, and the same into `thali stream`: what is slower rules.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thali import IBP

THALI = [sys.executable, "-m", "thali"]
N_BLOCKS = 10  # times that the same rows come
STREAM = [*THALI, "stream", "--mass", "2", "--seed", "0", "-q"]
LIBRARY = """
import sys, numpy as np, thali
X = np.load(sys.argv[1])
model = thali.LatentFeatures(prior=thali.IBP(mass=2.0), inference=thali.RecursiveIBP(), random_state=0, verbose=False)
for at in range(0, len(X), 8192):
    model.partial_fit(X[at : at + 8192])
print(model.n_components_)
"""

Source = tuple[list[str], Path | None]  # a command, and what is piped into it


class Time(NamedTuple):
    """Of a program: seconds of the processor, and what passed."""

    cpu: float
    wall: float


def run(command: list[str], source: Path | None = None) -> Time:
    """A program, with a file through a pipe on its standard input."""
    begin = time.perf_counter()
    writer = None if source is None else subprocess.Popen(["cat", str(source)], stdout=subprocess.PIPE)
    taken = subprocess.Popen(
        command, stdin=subprocess.DEVNULL if writer is None else writer.stdout, stdout=subprocess.DEVNULL
    )
    if writer is not None and writer.stdout is not None:
        writer.stdout.close()
    _, status, used = os.wait4(taken.pid, 0)
    taken.returncode = os.waitstatus_to_exitcode(status)
    if writer is not None:
        writer.wait()
    if taken.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:6])} ... ended with exit code {taken.returncode}")
    return Time(used.ru_utime + used.ru_stime, time.perf_counter() - begin)


def write(folder: Path, X: np.ndarray, n_times: int) -> dict[str, Source]:
    """Files with these rows, so many times; for each way in the command and what is piped into it."""
    array = folder / f"{n_times}.npy"
    np.save(array, np.tile(X, (n_times, 1)))
    names = [f"dim_{d}" for d in range(X.shape[1])]
    lines = {
        "csv": [",".join(map(repr, row)) for row in X.tolist()],
        "json arrays": [json.dumps(row) for row in X.tolist()],
        "json objects": [json.dumps(dict(zip(names, row, strict=True))) for row in X.tolist()],
    }
    found: dict[str, Source] = {"library": ([sys.executable, "-c", LIBRARY, str(array)], None)}
    for name, text in lines.items():
        path = folder / f"{n_times}-{name.replace(' ', '-').replace(',', '')}.txt"
        path.write_text(n_times * ("\n".join(text) + "\n"), encoding="utf-8")
        found[name] = (STREAM, path)
    return found


def compare(X: np.ndarray, folder: Path, n_rounds: int) -> None:
    whole, part = write(folder, X, N_BLOCKS), write(folder, X, 1)
    n = (N_BLOCKS - 1) * len(X)
    run(*part["csv"])  # compiles
    print("way in             cpu us/row   ratio   wall us/row   ratio    rows/s", flush=True)
    own: Time | None = None
    for name in whole:
        times = [(run(*whole[name]), run(*part[name])) for _ in range(n_rounds)]
        cpu = min(long.cpu for long, _ in times) - min(short.cpu for _, short in times)
        wall = min(long.wall for long, _ in times) - min(short.wall for _, short in times)
        own = own or Time(cpu, wall)
        print(
            f"{name:18s} {1e6 * cpu / n:10.2f} {cpu / own.cpu:7.2f} {1e6 * wall / n:13.2f} {wall / own.wall:7.2f} "
            f"{n / wall:9.0f}",
            flush=True,
        )


def simulated(n_rows: int, n_dims: int) -> None:
    """What `thali simulate` needs to print rows, and the same rows into `thali stream`."""
    print("\nprogram                                   s      rows/s, start-up included")
    for digits in ([], ["--digits", "6"]):
        rows = [*THALI, "simulate", "--rows", str(n_rows), "--dims", str(n_dims), "--mass", "2", "--noise-var", "0.25"]
        rows += ["--feature-var", "1", "--seed", "1", *digits, "-o", "-"]
        for words, takes in (("simulate", False), ("simulate | stream", True)):
            begin = time.perf_counter()
            first = subprocess.Popen(
                rows, stdout=subprocess.PIPE if takes else subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if takes:
                subprocess.run(STREAM, stdin=first.stdout, stdout=subprocess.DEVNULL, check=True)
            first.wait()
            seconds = time.perf_counter() - begin
            name = f"{words}{', 6 digits' if digits else ''}"
            print(f"{name:36s} {seconds:7.2f} {n_rows / seconds:11.0f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dims", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rng = np.random.default_rng(1)
    n_block = max(given.rows // N_BLOCKS, 1)
    Z = IBP(mass=2.0).simulate(rng, n_block)
    A = rng.standard_normal((Z.shape[1], given.dims))
    X = Z @ A + 0.5 * rng.standard_normal((n_block, given.dims))
    print(f"{given.rows} rows x {given.dims} dims of {Z.shape[1]} features")
    with tempfile.TemporaryDirectory() as folder:
        compare(X, Path(folder), given.rounds)
    simulated(given.rows, given.dims)
